/**
 * The gallery: every filter with its picture before and after, and a search over them.
 */

import { titleOf } from "./controls.js";
import { byId, el } from "./dom.js";

/**
 * Show the filters; `onadd(op)` is called with the example of the one that a person chooses.
 * Return the elements of their pictures by name.
 */
export function installGallery(filters, onadd) {
  const images = new Map();
  const cards = filters.map((each) => [cardOf(each, images, onadd), wordsOf(each)]);
  byId("gallery-list").append(...cards.map(([card]) => card));
  const search = byId("gallery-search");
  const count = byId("gallery-count");
  const find = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const [card, text] of cards) {
      card.hidden = !words.every((word) => text.includes(word));
      found += card.hidden ? 0 : 1;
    }
    count.textContent = found === 0
      ? `No filter fits “${search.value}”. Try “blur”, “edges” or “colour”.`
      : `${found} of ${cards.length} filters`;
  };
  search.addEventListener("input", find);
  find();
  return images;
}

function wordsOf({ name, description, parameters }) {
  return `${titleOf(name)} ${name} ${description} ${Object.keys(parameters)}`.toLowerCase();
}

function cardOf(record, images, onadd) {
  const title = titleOf(record.name);
  const picture = el("img", { src: `filters/${record.name}/thumbnail`, loading: "lazy",
    alt: `What ${title} does to a picture`, decoding: "async" });
  images.set(record.name, picture);
  const add = el("button", { type: "button", class: "small", "aria-label": `Add ${title}`,
    onclick: () => onadd(record.example) }, "Add to chain");
  const count = Object.keys(record.parameters).length;
  const options = count === 1 ? "1 option" : `${count || "no"} options`;
  return el("li", { class: "filter-card" }, picture, el("h3", {}, title),
    el("p", {}, record.description),
    el("div", { class: "row" }, add, el("span", { class: "note" }, options)));
}
