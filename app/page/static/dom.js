/**
 * Build elements: the only place that creates them. Text is always text, never markup.
 */

const SVG = "http://www.w3.org/2000/svg";

/** Return an element; attributes named `on…` are listeners, `null` and `false` leave one out. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Return an element of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Return the element with an id of `index.html`. */
export function byId(id) {
  return document.getElementById(id);
}

/** Say something to screen readers without moving the focus. */
export function announce(text) {
  byId("announcer").textContent = text;
}

let ids = 0;

/** Return an id that no other element has. */
export function newId(word) {
  ids += 1;
  return `${word}-${ids}`;
}

/** Return a button with a drawn icon whose name only screen readers and tooltips show. */
export function iconButton(name, path, onclick) {
  const drawn = svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" },
    svg("path", { d: path }));
  return el("button", { type: "button", class: "icon", "aria-label": name, title: name, onclick },
    drawn);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}
