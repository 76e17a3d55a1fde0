/**
 * The chain of filters that a person builds: steps that can be added, moved, switched off, removed.
 *
 * What is sent are the parameters that differ from their defaults, so that the code to copy is
 * short. `null` leaves a parameter out, which the server reads as its default.
 */

import { control, titleOf } from "./controls.js";
import { announce, byId, el, iconButton, newId } from "./dom.js";

const UP = "M8 3.5v9M4 7.5l4-4 4 4";
const DOWN = "M8 3.5v9M4 8.5l4 4 4-4";
const REMOVE = "M4 4l8 8M12 4l-8 8";

/** The chain; `catalogue` are the filters by name, `onchange` is called after every change. */
export class Chain {
  constructor(catalogue, onchange) {
    this.catalogue = catalogue;
    this.onchange = onchange;
    this.steps = [];
    this.list = byId("steps");
  }

  /** Return the chain as the option `ops`: one object for each step that is switched on. */
  get ops() {
    return this.#active().map((step) => step.op());
  }

  /** Add a filter at the end with the parameters of `op`, and move the focus to it. */
  add(op) {
    const step = new Step(this.catalogue.get(op.name), op, this);
    this.steps.push(step);
    this.#show();
    announce(`${titleOf(op.name)} was added as step ${this.steps.length}.`);
    this.onchange();
    return step;
  }

  /** Remove all steps. */
  clear() {
    this.steps = [];
    this.#show();
    announce("The chain is empty.");
    this.onchange();
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
    this.onchange();
  }

  remove(step) {
    const at = this.steps.indexOf(step);
    this.steps.splice(at, 1);
    this.#show();
    const next = this.steps[Math.min(at, this.steps.length - 1)];
    if (next) next.focus();
    else byId("add-filter").focus();
    announce(`${titleOf(step.name)} was removed.`);
    this.onchange();
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
    this.controls = {};
    for (const [name, schema] of Object.entries(record.parameters)) {
      const value = op[name] === undefined ? schema.default : op[name];
      this.controls[name] = control(name, schema, value, () => chain.onchange());
    }
    this.node = this.#drawn(record, chain);
  }

  get on() {
    return this.toggle.checked;
  }

  /** Return the step as an entry of `ops`. */
  op() {
    const op = { name: this.name };
    for (const [name, { get }] of Object.entries(this.controls)) {
      const value = get();
      const usual = this.schemas[name].default;
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

  #drawn(record, chain) {
    const title = titleOf(record.name);
    const id = newId("step");
    this.heading = el("h3", { id, tabindex: -1 }, title);
    this.toggle = el("input", { type: "checkbox", role: "switch", checked: true,
      "aria-label": `Apply ${title}`, onchange: () => this.#toggled(chain) });
    this.up = iconButton(`Move ${title} up`, UP, () => chain.move(this, -1));
    this.down = iconButton(`Move ${title} down`, DOWN, () => chain.move(this, 1));
    const remove = iconButton(`Remove ${title}`, REMOVE, () => chain.remove(this));
    const controls = Object.values(this.controls).map((each) => each.node);
    return el("li", { class: "step", "aria-labelledby": id },
      el("div", { class: "step-head" }, this.toggle, this.heading, this.up, this.down, remove),
      el("p", { class: "help" }, record.description), controls);
  }

  #toggled(chain) {
    this.node.classList.toggle("off", !this.on);
    chain.onchange();
  }
}
