/**
 * The chain of filters that a person builds: steps that can be added, moved, switched off, removed.
 *
 * What is sent are the parameters that differ from their defaults, so that the code to copy is
 * short. `null` leaves a parameter out, which the server reads as its default. A crop begins at the
 * whole picture, and its rectangle never leaves the picture; a side that reaches the picture's edge is
 * left out, so that it also fits other pictures.
 */

import { control, stepOf, titleOf } from "./controls.js";
import { announce, byId, el, iconButton, newId } from "./dom.js";

const UP = "M8 3.5v9M4 7.5l4-4 4 4";
const DOWN = "M8 3.5v9M4 8.5l4 4 4-4";
const REMOVE = "M4 4l8 8M12 4l-8 8";

/**
 * The chain; `catalogue` are the filters by name. `onchange(what)` is called after every change;
 * `what` names the parameter that changed, or is null if steps did.
 */
export class Chain {
  constructor(catalogue, onchange) {
    this.catalogue = catalogue;
    this.onchange = onchange;
    this.steps = [];
    this.size = null; // of the picture that goes in: [width, height]
    this.list = byId("steps");
  }

  /** Return the chain as the option `ops`: one object for each step that is switched on. */
  get ops() {
    return this.#active().map((step) => step.op());
  }

  /** Return all steps as entries of `ops`; the steps that are switched off say `off`. */
  get saved() {
    return this.steps.map((step) => (step.on ? step.op() : { ...step.op(), off: true }));
  }

  /** Build the steps of `saved` again; return the names of filters that this server does not have. */
  restore(saved) {
    const known = saved.filter(({ name }) => this.catalogue.has(name));
    this.steps = [];
    for (const op of known) this.steps.push(new Step(this.catalogue.get(op.name), op, this));
    this.#show();
    return saved.filter((op) => !known.includes(op)).map(({ name }) => name);
  }

  /** Return the size of the picture behind all steps, or null where a step changes the size. */
  get sizeNow() {
    const same = this.steps.every(({ shape }) => !["turned", "resized"].includes(shape));
    return same ? this.size : null;
  }

  /** Fit the controls of crops to the size of the picture that goes in. */
  fit(size) {
    const other = String(size) !== String(this.size);
    this.size = size;
    if (size && other && this.steps.some(({ name }) => name === "crop")) this.restore(this.saved);
  }

  /**
   * Return the chain for a copy of the picture that is smaller by `scale`: lengths in pixels shrink
   * with it. From a `resize` on, sizes are those of the real result.
   */
  shrunk(scale) {
    let factor = scale;
    return this.#active().map((step) => {
      if (step.name === "resize") factor = 1;
      return step.op(factor);
    });
  }

  /** Add a filter at the end with the parameters of `op`, and move the focus to it. */
  add(op) {
    const start = op.name === "crop" ? { name: "crop" } : op;
    const step = new Step(this.catalogue.get(op.name), start, this);
    this.steps.push(step);
    this.#show();
    announce(`${titleOf(op.name)} was added as step ${this.steps.length}.`);
    this.onchange(null);
    return step;
  }

  /** Remove all steps. */
  clear() {
    this.steps = [];
    this.#show();
    announce("The chain is empty.");
    this.onchange(null);
  }

  move(step, by) {
    const from = this.steps.indexOf(step);
    const to = from + by;
    if (to < 0 || to >= this.steps.length) return;
    this.steps.splice(from, 1);
    this.steps.splice(to, 0, step);
    this.#show();
    step.focusMove(by);
    announce(`${titleOf(step.name)} is step ${to + 1} of ${this.steps.length}.`);
    this.onchange(null);
  }

  remove(step) {
    const at = this.steps.indexOf(step);
    this.steps.splice(at, 1);
    this.#show();
    const next = this.steps[Math.min(at, this.steps.length - 1)];
    if (next) next.focus();
    else byId("add-filter").focus();
    announce(`${titleOf(step.name)} was removed.`);
    this.onchange(null);
  }

  /** Show the messages of a problem at the controls they are about; return those left over. */
  showErrors(errors) {
    const active = this.#active();
    for (const step of this.steps) step.clearErrors();
    return errors.filter(({ path, message }) => {
      const found = path.match(/^ops\[(\d+)\]\.(\w+)/);
      return !(found && active[Number(found[1])]?.showError(found[2], message));
    });
  }

  #active() {
    return this.steps.filter((step) => step.on);
  }

  #show() {
    this.list.replaceChildren(...this.steps.map((step) => step.node));
    byId("chain-empty").hidden = this.steps.length > 0;
    byId("clear-chain").hidden = this.steps.length === 0;
  }
}

/** One filter of the chain with the controls of its parameters. */
class Step {
  constructor(record, op, chain) {
    this.name = record.name;
    this.schemas = record.parameters;
    this.shape = record.result_shape;
    this.whole = record.name === "crop" ? chain.sizeNow : null;
    this.controls = {};
    for (const [name, schema] of Object.entries(record.parameters)) {
      const [shown, usual] = this.whole ? within(schema, name, this.whole) : [schema, schema.default];
      const value = op[name] === undefined ? usual : op[name];
      this.controls[name] = control(name, shown, value, () => {
        if (this.whole) this.#stayWithin(name);
        chain.onchange(`${chain.steps.indexOf(this)}.${name}`);
      });
    }
    for (const [start, length, most] of this.#sides()) {
      if (op[length] === undefined) this.controls[length].set(most - this.controls[start].get());
    }
    this.node = this.#drawn(record, op.off === true, chain);
  }

  get on() {
    return this.toggle.checked;
  }

  /** Return the step as an entry of `ops`, for a picture that is smaller by `scale`. */
  op(scale = 1) {
    const op = { name: this.name };
    const rest = this.#sides().filter(([start, length, most]) =>
      this.controls[start].get() + this.controls[length].get() === most).map((each) => each[1]);
    for (const [name, { get }] of Object.entries(this.controls)) {
      const value = scaled(get(), this.schemas[name], scale);
      const usual = this.schemas[name].default;
      if (rest.includes(name)) continue;
      if (value !== null && JSON.stringify(value) !== JSON.stringify(usual)) op[name] = value;
    }
    return op;
  }

  focus() {
    this.heading.focus();
  }

  focusMove(by) {
    (by < 0 ? this.up : this.down).focus();
  }

  clearErrors() {
    for (const each of Object.values(this.controls)) each.showError(null);
  }

  showError(name, message) {
    const found = this.controls[name];
    found?.showError(message.charAt(0).toUpperCase() + message.slice(1));
    return Boolean(found);
  }

  /** Return the sides of a crop: the names of where it starts and how long it is, and the most. */
  #sides() {
    return this.whole
      ? [["left", "width", this.whole[0]], ["top", "height", this.whole[1]]] : [];
  }

  /** Change the other end of a crop where the rectangle would leave the picture. */
  #stayWithin(name) {
    for (const [start, length, most] of this.#sides()) {
      const value = (each) => this.controls[each].get();
      if (value(start) + value(length) <= most) continue;
      const other = name === start ? length : start;
      this.controls[other].set(Math.max(name === start ? 1 : 0, most - value(name)));
    }
  }

  #drawn(record, off, chain) {
    const title = titleOf(record.name);
    const id = newId("step");
    this.heading = el("h3", { id, tabindex: -1 }, title);
    this.toggle = el("input", { type: "checkbox", role: "switch", checked: !off,
      "aria-label": `Apply ${title}`, onchange: () => this.#toggled(chain) });
    this.up = iconButton(`Move ${title} up`, UP, () => chain.move(this, -1));
    this.down = iconButton(`Move ${title} down`, DOWN, () => chain.move(this, 1));
    const remove = iconButton(`Remove ${title}`, REMOVE, () => chain.remove(this));
    const controls = Object.values(this.controls).map((each) => each.node);
    return el("li", { class: off ? "step off" : "step", "aria-labelledby": id },
      el("div", { class: "step-head" }, this.toggle, this.heading, this.up, this.down, remove),
      el("p", { class: "help" }, record.description), controls);
  }

  #toggled(chain) {
    this.node.classList.toggle("off", !this.on);
    chain.onchange(null);
  }
}

/** Return a parameter of a crop for pictures of a size, and its value for the whole picture. */
function within(schema, name, [width, height]) {
  const most = name === "left" || name === "width" ? width : height;
  if (schema.minimum === 0) return [{ ...schema, maximum: most - 1 }, 0];
  return [{ ...schema, ...schema.anyOf[0], anyOf: undefined, maximum: most }, most];
}

/** Return a length in pixels for a picture that is smaller by `scale`; other values stay. */
function scaled(value, schema, scale) {
  if (scale === 1 || schema.unit !== "px" || typeof value !== "number") return value;
  const own = schema.anyOf?.find((each) => each.type !== "null") ?? schema;
  const step = stepOf(own);
  const start = own.minimum ?? 0;
  const kept = own.type === "integer"
    ? start + Math.round((value * scale - start) / step) * step : value * scale;
  return Math.min(own.maximum ?? kept, Math.max(start, kept));
}
