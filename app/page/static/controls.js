/**
 * Make the control of one parameter from its JSON Schema.
 *
 * A control is `{ node, get, set, showError }`: `get()` returns the value to send, and numbers have
 * `set(value)`, which shows another one. Numbers get a slider and a field with their unit, booleans a switch, enumerations a list, colours a picker, lists of
 * numbers a grid. A parameter that may be null gets a switch that leaves it out.
 */

import { el, newId } from "./dom.js";

const LOGARITHMIC = 300;
const MOST_LINEAR = 400;

/** Return the control of parameter `name`; `onchange` is called whenever its value changes. */
export function control(name, schema, value, onchange) {
  const id = newId(name);
  const inner = schema.anyOf?.find((each) => each.type !== "null");
  const own = inner ? { ...schema, ...inner, anyOf: undefined } : schema;
  const field = inner ? optional(own, id, value, onchange) : fieldOf(own, id, value, onchange);
  return labelled(name, own, id, field);
}

/** Return the words for a parameter's name: `sigma_color` is "Sigma color". */
export function titleOf(name) {
  const words = name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function fieldOf(schema, id, value, onchange) {
  if (schema.type === "boolean") return switchField(schema, id, value, onchange);
  if (schema.enum) return listField(schema, id, value, onchange);
  if (schema.type === "array") return matrixField(schema, id, value, onchange);
  if (schema.pattern?.includes("0-9a-fA-F")) return colourField(schema, id, value, onchange);
  if (schema.type === "string") return textField(schema, id, value, onchange);
  return numberField(schema, id, value, onchange);
}

function labelled(name, schema, id, field) {
  const unit = el("span", { class: "unit" }, unitOf(schema));
  const label = el("label", { for: id }, titleOf(name), " ", unit);
  const help = el("p", { class: "help", id: `${id}-help` }, schema.description ?? "");
  const error = el("p", { class: "error", id: `${id}-error`, hidden: true });
  const node = el("div", { class: "control", "data-parameter": name },
    el("div", { class: "control-head" }, label, field.head),
    field.body, error, help);
  const showError = (text) => {
    error.textContent = text ?? "";
    error.hidden = !text;
    for (const input of node.querySelectorAll("input, select")) {
      input.setAttribute("aria-invalid", text ? "true" : "false");
    }
  };
  const described = node.querySelector(`#${CSS.escape(id)}`);
  described?.setAttribute("aria-describedby", `${id}-help ${id}-error`);
  return { node, get: field.get, set: field.set, showError };
}

/** Return the words for a unit behind a name; ratios and counts have none. */
function unitOf(schema) {
  const words = { ratio: "", count: "", degree: "°" };
  return words[schema.unit] ?? schema.unit ?? "";
}

function numberField(schema, id, value, onchange) {
  const step = schema.type === "integer" ? stepOf(schema) : "any";
  const number = el("input", { type: "number", id, class: "number", value: value ?? schema.minimum,
    min: schema.minimum, max: schema.maximum, step, inputmode: "decimal" });
  const head = number;
  const get = () => (number.value === "" ? schema.default : Number(number.value));
  if (!hasSlider(schema)) {
    number.addEventListener("input", onchange);
    return { head, body: null, get, set: (value) => { number.value = value; } };
  }
  const scale = scaleOf(schema);
  const slider = el("input", { type: "range", min: 0, max: scale.positions, step: 1,
    "aria-label": schema.title ?? "Value" });
  const follow = () => {
    slider.value = scale.toPosition(Math.max(schema.minimum, get()));
    tell();
  };
  const tell = () => {
    slider.setAttribute("aria-valuetext", `${get()} ${unitOf(schema)}`.trim());
    slider.style.setProperty("--filled", `${(slider.value / scale.positions) * 100}%`);
  };
  slider.addEventListener("input", () => {
    number.value = scale.toValue(Number(slider.value));
    tell();
    onchange();
  });
  number.addEventListener("input", () => {
    follow();
    onchange();
  });
  follow();
  const set = (value) => {
    number.value = value;
    follow();
  };
  return { head, body: slider, get, set };
}

function switchField(schema, id, value, onchange) {
  const input = el("input", { type: "checkbox", role: "switch", id, checked: Boolean(value),
    onchange });
  return { head: input, body: null, get: () => input.checked };
}

function listField(schema, id, value, onchange) {
  const options = schema.enum.map((each) =>
    el("option", { value: each, selected: each === value }, titleOf(String(each))));
  const select = el("select", { id, onchange }, options);
  return { head: select, body: null, get: () => select.value };
}

function textField(schema, id, value, onchange) {
  const input = el("input", { type: "text", id, value: value ?? "", oninput: onchange });
  return { head: null, body: input, get: () => input.value };
}

/** A parameter that may be null: a switch, and the control itself while the switch is on. */
function optional(schema, id, value, onchange) {
  const innerId = `${id}-value`;
  const start = schema.type === "string" ? "808080" : startOf(schema);
  const field = fieldOf({ ...schema, default: start }, innerId, value ?? start, onchange);
  const on = el("input", { type: "checkbox", role: "switch", id,
    checked: value !== null && value !== undefined });
  const inner = el("div", { class: "optional", hidden: !on.checked }, field.head, field.body);
  inner.querySelector(`#${CSS.escape(innerId)}`)?.setAttribute("aria-label", "Value");
  on.addEventListener("change", () => {
    inner.hidden = !on.checked;
    onchange();
  });
  return { head: on, body: inner, get: () => (on.checked ? field.get() : null), set: field.set };
}

/** Return where an optional number begins: a usual size of pictures, if it is allowed. */
function startOf(schema) {
  return Math.min(schema.maximum, Math.max(schema.minimum, schema.maximum > 1000 ? 320 : 2));
}

/** Return the control of a colour such as `ff8800`, or `ff880080` where opacity is allowed. */
function colourField(schema, id, value, onchange) {
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

/** Return the control of a list of numbers, or of a list of equally long rows of numbers. */
function matrixField(schema, id, value, onchange) {
  return schema.items.type === "array"
    ? resizable(schema, id, value ?? schema.default, onchange)
    : fixed(schema, id, value ?? schema.default, onchange);
}

function fixed(schema, id, value, onchange) {
  const columns = value.length % 4 === 0 ? 4 : value.length;
  const cells = value.map((each, n) =>
    cell(schema.items, each, place(n, columns), n === 0 ? id : null, onchange));
  const body = grid(cells, columns);
  return { head: null, body, get: () => cells.map(read) };
}

function resizable(schema, id, value, onchange) {
  let rows = value;
  let cells = [];
  const body = el("div", { class: "grid-scroll" });
  const most = schema.maxLength ?? schema.maxItems;
  const size = (word, start, own) => el("input", { type: "number", class: "number", min: 1,
    max: most, step: 1, value: start, "aria-label": word, id: own });
  const height = size("Rows", rows.length, id);
  const width = size("Columns", rows[0].length, null);
  const get = () => cells.map((row) => row.map(read));
  const draw = () => {
    const columns = rows[0].length;
    cells = rows.map((row, y) => row.map((each, x) =>
      cell(schema.items.items, each, place(y * columns + x, columns), null, onchange)));
    body.replaceChildren(grid(cells.flat(), columns));
  };
  const resize = () => {
    if (!height.checkValidity() || !width.checkValidity()) return;
    rows = resized(get(), Number(height.value), Number(width.value));
    draw();
    onchange();
  };
  for (const input of [height, width]) input.addEventListener("change", resize);
  draw();
  const head = el("span", { class: "quantity" }, height, "×", width);
  return { head, body, get };
}

/** Return the rows cut or filled with zeros, with the middle of the old rows in the middle. */
function resized(rows, height, width) {
  const down = Math.floor(height / 2) - Math.floor(rows.length / 2);
  const across = Math.floor(width / 2) - Math.floor(rows[0].length / 2);
  return Array.from({ length: height }, (_, y) =>
    Array.from({ length: width }, (_, x) => rows[y - down]?.[x - across] ?? 0));
}

function grid(cells, columns) {
  const node = el("div", { class: "grid" }, cells);
  node.style.setProperty("--columns", columns);
  return node;
}

function place(n, columns) {
  return `Row ${Math.floor(n / columns) + 1}, column ${(n % columns) + 1}`;
}

function cell(schema, value, name, id, onchange) {
  return el("input", { type: "number", class: "number", value, min: schema.minimum,
    max: schema.maximum, step: "any", "aria-label": name, id, oninput: onchange });
}

function read(input) {
  return input.value === "" ? 0 : Number(input.value);
}

/** Return the distance of allowed values: 1 or 2 for integers, a power of ten for numbers. */
export function stepOf(schema) {
  if (schema.type === "integer") return schema.not?.multipleOf === 2 ? 2 : 1;
  return Math.min(1, 10 ** Math.floor(Math.log10((schema.maximum - schema.minimum) / 80)));
}

/**
 * Return how the values of a schema lie on a slider: `positions`, `toValue(position)` and
 * `toPosition(value)`. Ranges over several powers of ten are logarithmic, so that small values,
 * which differ most to the eye, do not share one position.
 */
function scaleOf(schema) {
  return isWide(schema) ? logarithmic(schema) : linear(schema);
}

/** Return whether a slider makes sense: not for numbers such as seeds, which have no order. */
function hasSlider(schema) {
  return schema.minimum !== undefined && schema.maximum <= 1e9;
}

function isWide(schema) {
  const { minimum: low, maximum: high, default: usual } = schema;
  if (low < 0) return false;
  const span = high - low;
  const small = usual - low < span / 20 && (usual > low || (schema.type === "number" && span > 20));
  return small || span / stepOf(schema) > MOST_LINEAR || (low > 0 && high / low >= 50);
}

function linear(schema) {
  const { minimum: low, maximum: high } = schema;
  const step = stepOf(schema);
  const positions = Math.floor((high - low) / step + 1e-9);
  return {
    positions,
    toValue: (position) => rounded(low + position * step),
    toPosition: (value) => Math.round((value - low) / step),
  };
}

/** Every position has a value of its own: integers are whole, other numbers have three digits. */
function logarithmic(schema) {
  const { minimum: low, maximum: high } = schema;
  const step = stepOf(schema);
  const shift = low > 0 ? 0 : Math.min(1, (schema.default || 10) / 10);
  const [from, to] = [Math.log(low + shift), Math.log(high + shift)];
  const allowed = (value) => {
    if (schema.type !== "integer") return Number(value.toPrecision(3));
    return low + Math.round((value - low) / step) * step;
  };
  const values = new Set([low]);
  for (let n = 1; n < LOGARITHMIC; n += 1) {
    values.add(rounded(allowed(Math.exp(from + ((to - from) * n) / LOGARITHMIC) - shift)));
  }
  const sorted = [...values.add(high)].filter((each) => each >= low && each <= high);
  const distance = (value, position) => Math.abs(sorted[position] - value);
  return {
    positions: sorted.length - 1,
    toValue: (position) => sorted[position],
    toPosition: (value) =>
      sorted.reduce((best, _, n) => (distance(value, n) < distance(value, best) ? n : best), 0),
  };
}

/** Return a number without the last bits that sums of decimal fractions leave. */
function rounded(value) {
  return Number(value.toPrecision(12));
}
