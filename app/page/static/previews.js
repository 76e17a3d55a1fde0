/**
 * Show every filter of the gallery on the chosen image instead of the drawn house.
 *
 * A small copy of the image is sent with eight filters at a time, so that the pictures appear one
 * after the other and no request counts as many images.
 */

import { isCancelled, post } from "./api.js";
import { announce, byId } from "./dom.js";
import { TaskQueue } from "./tasks.js";

const SIDE = 320;
const TOGETHER = 8;
const AT_A_TIME = 2;

/** The pictures of the gallery; `images` are its `<img>` elements by the name of the filter. */
export class Previews {
  constructor(filters, images) {
    this.filters = filters;
    this.images = images;
    this.queue = new TaskQueue(AT_A_TIME);
    this.tasks = [];
    this.drawn = new Map([...images].map(([name, image]) => [name, image.src]));
    this.made = [];
    this.button = byId("gallery-own");
    this.button.addEventListener("click", () => (this.own ? this.#back() : this.#start()));
  }

  /** Offer the pictures of an image that the browser can show, or none for null. */
  offer(picture) {
    if (this.own && picture !== this.own) this.#back();
    this.picture = picture?.shown ? picture : null;
    this.button.hidden = !this.picture;
  }

  async #start() {
    this.own = this.picture;
    this.button.textContent = "Show the drawn house";
    announce(`Every filter is computed for ${this.own.name}.`);
    const copy = await small(this.own.shown);
    for (let n = 0; n < this.filters.length; n += TOGETHER) {
      const some = this.filters.slice(n, n + TOGETHER);
      this.tasks.push(this.queue.add((signal) => this.#some(some, copy, signal)));
    }
  }

  #back() {
    for (const task of this.tasks) task.abort();
    this.tasks = [];
    for (const [name, image] of this.images) image.src = this.drawn.get(name);
    for (const address of this.made) URL.revokeObjectURL(address);
    this.made = [];
    this.own = null;
    this.button.textContent = "Show them on my picture";
    byId("gallery-error").hidden = true;
  }

  async #some(filters, copy, signal) {
    const form = new FormData();
    form.append("files", copy, "copy.png");
    form.append("labels", "false");
    form.append("format", "webp");
    const versions = filters.map(({ name, example }) => ({ id: name, ops: [example] }));
    form.append("versions", JSON.stringify(versions));
    try {
      const reply = await post("process", form, { signal });
      const { results } = await reply.json();
      for (const { id, image } of results[0].versions) if (image) this.#show(id, image);
    } catch (error) {
      if (isCancelled(error)) return;
      byId("gallery-error").hidden = false;
      byId("gallery-error").textContent = error.message;
    }
  }

  #show(name, { data, media_type: type }) {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const address = URL.createObjectURL(new Blob([bytes], { type }));
    this.made.push(address);
    this.images.get(name).src = address;
  }
}

/** Return a PNG of an image with sides of at most 320 pixels. */
async function small(address) {
  const image = new Image();
  image.src = address;
  await image.decode();
  const scale = Math.min(1, SIDE / Math.max(image.naturalWidth, image.naturalHeight));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(image.naturalWidth * scale));
  canvas.height = Math.max(1, Math.round(image.naturalHeight * scale));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
