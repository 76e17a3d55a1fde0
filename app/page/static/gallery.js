/**
 * The gallery, where filters are chosen: groups, a search, and a picture of each filter.
 *
 * The pictures show a drawn house until a person has chosen an image; then a small copy of it is sent
 * with eight filters at a time, while the gallery is shown, so that the pictures appear one after the
 * other and no request counts as many images.
 */

import { isCancelled, post } from "./api.js";
import { titleOf } from "./controls.js";
import { byId, el } from "./dom.js";
import { TaskQueue } from "./tasks.js";

const SIDE = 320;
const TOGETHER = 8;
const AT_A_TIME = 2;

/** The gallery of all filters; `onadd(op)` gets the example of a filter that a person chooses. */
export class Gallery {
  constructor(filters, onadd) {
    // The page has no field for the picture that an overlay needs.
    this.filters = filters.filter(({ name }) => name !== "overlay")
      .toSorted((one, other) => one.group.localeCompare(other.group));
    this.queue = new TaskQueue(AT_A_TIME);
    this.tasks = [];
    this.made = [];
    this.cards = this.filters.map((record) => cardOf(record, onadd));
    this.images = new Map(this.cards.map(({ name, image }) => [name, image]));
    this.search = byId("gallery-search");
    this.groups = Map.groupBy(this.cards, ({ group }) => group);
    byId("gallery-list").append(...[...this.groups].map(([group, cards]) => el("section",
      { class: "group", "aria-label": titleOf(group) }, el("h3", {}, titleOf(group)),
      el("ul", {}, cards.map(({ node }) => node)))));
    const names = ["", ...this.groups.keys()];
    byId("gallery-groups").append(...names.map((group) => el("label", {}, el("input", {
      type: "radio", name: "group", value: group, checked: group === "",
      onchange: () => this.#find(),
    }), el("span", {}, titleOf(group) || "All"))));
    this.search.addEventListener("input", () => this.#find());
    this.#find();
  }

  /** Show the pictures of an image that the browser can show, or of the drawn house for null. */
  async show(picture) {
    const own = picture?.shown ? picture : null;
    if (own === this.own) return;
    this.#forget();
    this.own = own;
    if (!own) return;
    const { blob } = await own.copy(SIDE);
    for (let n = 0; n < this.filters.length && own === this.own; n += TOGETHER) {
      const some = this.filters.slice(n, n + TOGETHER);
      this.tasks.push(this.queue.add((signal) => this.#some(some, blob, signal)));
    }
  }

  #find() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = document.querySelector("input[name=group]:checked").value;
    let found = 0;
    for (const { node, group, text } of this.cards) {
      const fits = !chosen || chosen === group;
      node.hidden = !(fits && words.every((word) => text.includes(word)));
      found += node.hidden ? 0 : 1;
    }
    for (const section of byId("gallery-list").children) {
      section.hidden = !section.querySelector("li:not([hidden])");
    }
    byId("gallery-count").textContent = found === 0
      ? `No filter fits “${this.search.value}”. Try “blur”, “edges” or “colour”.`
      : `${found} of ${this.cards.length} filters`;
  }

  #forget() {
    for (const task of this.tasks) task.abort();
    this.tasks = [];
    for (const [name, image] of this.images) image.src = drawnHouse(name);
    for (const address of this.made) URL.revokeObjectURL(address);
    this.made = [];
    byId("gallery-error").hidden = true;
  }

  async #some(filters, copy, signal) {
    const form = new FormData();
    form.append("files", copy, "copy");
    form.append("labels", "false");
    form.append("format", "webp");
    const versions = filters.map(({ name, example }) => ({ id: name, ops: [example] }));
    form.append("versions", JSON.stringify(versions));
    try {
      const reply = await post("process", form, { signal });
      const { results } = await reply.json();
      for (const { id, image } of results[0].versions ?? []) if (image) this.#put(id, image);
    } catch (error) {
      if (isCancelled(error)) return;
      byId("gallery-error").hidden = false;
      byId("gallery-error").textContent = `The previews could not be made. ${error.message}`;
    }
  }

  #put(name, { data, media_type: type }) {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const address = URL.createObjectURL(new Blob([bytes], { type }));
    this.made.push(address);
    this.images.get(name).src = address;
  }
}

function drawnHouse(name) {
  return `filters/${name}/thumbnail`;
}

function cardOf({ name, group, description, parameters, example }, onadd) {
  const title = titleOf(name);
  const image = el("img", { src: drawnHouse(name), loading: "lazy", alt: "", decoding: "async" });
  const button = el("button", { type: "button", class: "filter-card", "aria-label": `Add ${title}`,
    onclick: () => onadd(example) }, image, el("strong", {}, title), el("span", {}, description));
  const text = [title, name, group, description, ...Object.keys(parameters)].join(" ").toLowerCase();
  return { name, group, text, image, node: el("li", {}, button) };
}
