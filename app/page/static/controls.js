/**
 * Make the control of one parameter from its JSON Schema.
 *
 * A control is `{ node, get, showError }`: `get()` returns the value to send. Numbers get a slider
 * and a field with their unit, booleans a switch, enumerations a list, colours a picker, lists of
 * numbers a grid. A parameter that may be null gets a switch that leaves it out.
 */

import { colourField } from "./colour.js";
import { el, newId } from "./dom.js";
import { matrixField } from "./matrix.js";
import { hasSlider, scaleOf, stepOf } from "./scale.js";

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
  return { node, get: field.get, showError };
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
    return { head, body: null, get };
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
  return { head, body: slider, get };
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
  return { head: on, body: inner, get: () => (on.checked ? field.get() : null) };
}

/** Return where an optional number begins: a usual size of pictures, if it is allowed. */
function startOf(schema) {
  return Math.min(schema.maximum, Math.max(schema.minimum, schema.maximum > 1000 ? 320 : 2));
}
