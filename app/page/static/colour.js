/**
 * The field of a colour: a picker, the code as text, and a slider of opacity where the schema
 * allows eight digits.
 */

import { el } from "./dom.js";

/** Return the control of a colour such as `ff8800`, or `ff880080` where opacity is allowed. */
export function colourField(schema, id, value, onchange) {
  const withAlpha = schema.pattern.includes("{8}");
  const [colour, opacity] = parted(value ?? schema.default ?? "000000");
  const picker = el("input", { type: "color", id, value: `#${colour}` });
  const code = el("input", { type: "text", class: "code", value: colour, maxlength: 7,
    spellcheck: "false", autocomplete: "off", "aria-label": "Colour code" });
  const alpha = withAlpha
    ? el("input", { type: "range", min: 0, max: 255, value: opacity, "aria-label": "Opacity" })
    : null;
  const get = () => {
    const written = code.value.replace(/^#/, "").toLowerCase();
    return alpha && /^[0-9a-f]{6}$/.test(written) ? written + byte(Number(alpha.value)) : written;
  };
  const changed = () => {
    if (alpha) {
      const percent = Math.round(Number(alpha.value) / 2.55);
      alpha.setAttribute("aria-valuetext", `${percent} %`);
      alpha.style.setProperty("--filled", `${percent}%`);
    }
    onchange();
  };
  picker.addEventListener("input", () => {
    code.value = picker.value.slice(1);
    if (alpha?.value === "0") alpha.value = 255; // a colour that is chosen is meant to be seen
    changed();
  });
  code.addEventListener("input", () => {
    if (/^#?[0-9a-f]{6}$/i.test(code.value)) picker.value = `#${code.value.replace(/^#/, "")}`;
    changed();
  });
  alpha?.addEventListener("input", changed);
  alpha?.style.setProperty("--filled", `${opacity / 2.55}%`);
  const body = alpha
    ? el("div", { class: "opacity" }, el("span", { "aria-hidden": "true" }, "Opacity"), alpha)
    : null;
  return { head: el("span", { class: "quantity" }, picker, code), body, get };
}

function parted(text) {
  const code = text.replace(/^#/, "").toLowerCase();
  const long = code.length === 3 ? [...code].map((digit) => digit + digit).join("") : code;
  return [long.slice(0, 6), long.length === 8 ? parseInt(long.slice(6), 16) : 255];
}

function byte(value) {
  return value.toString(16).padStart(2, "0");
}
