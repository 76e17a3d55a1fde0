/**
 * The images of the page: each has its own state, labels, error and results, and is an island.
 *
 * An image is a file or a URL. Labels come by `/classify`; of what the browser cannot show (URLs,
 * because the page loads nothing from other servers, and TIFF) `/process` also returns a picture.
 */

import { isCancelled, post, sentence, stagesOf } from "./api.js";
import { networkOption } from "./networks.js";
import { savedName } from "./snippets.js";

/** A chain that changes nothing: it turns a file that the browser cannot show into a PNG. */
const SHOWN = '[{"id": "shown", "name": "brightness", "factor": 1, "format": "png"}]';

const THUMBNAIL = 160;

/** One image; `changed(image)` is called whenever something about it changes. */
export class Picture {
  constructor({ file = null, url = null }, changed) {
    this.file = file;
    this.url = url;
    this.name = file ? file.name || "pasted.png" : nameOf(url);
    this.changed = changed;
    this.state = "waiting"; // then: working, busy, done, failed, cancelled
    this.note = "";
    this.predictions = null;
    this.model = null;
    this.result = null; // of the chain: what `filter` returns, and its object URL
    this.size = null; // of the picture that is shown: [width, height]
    this.shown = null; // an object URL that the browser can show
    this.thumbnail = null;
  }

  /** Ask for the labels, and for a picture where the browser has none; never throws. */
  async label(signal) {
    this.predictions = null;
    this.#set("working");
    try {
      await this.#readable();
      await this.#show();
      const reply = await this.#post(this.shown ? "classify" : "process", signal);
      const answer = await reply.json();
      this.model = answer.model ?? null;
      const [record] = answer.results;
      if (record.versions?.[0].image) await this.#showVersion(record.versions[0].image);
      if (!record.predictions) throw new Error(sentence(record.error.detail));
      this.predictions = record.predictions;
      this.#set("done");
    } catch (error) {
      this.#failed(error);
    }
  }

  /**
   * Return a copy of the shown picture with at most `side` pixels a side, and its scale. A file that
   * is small itself is its own copy.
   */
  async copy(side) {
    const scale = Math.min(1, side / Math.max(...this.size));
    if (scale === 1 && this.file) return { blob: this.file, scale };
    if (this.copied?.side === side) return this.copied;
    const image = new Image();
    image.src = this.shown;
    await image.decode();
    const kind = this.file?.type === "image/jpeg" ? "image/jpeg" : "image/png";
    const canvas = drawn(image, this.size, scale);
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, kind, 0.9));
    return (this.copied = { blob, scale, side });
  }

  /** Send the image, or a `copy`, through a chain; return the result, or throw what went wrong. */
  async filter({ ops, options, key }, signal, onwait, copy = null) {
    const form = this.#form(copy);
    form.append("ops", JSON.stringify(ops));
    for (const [name, value] of Object.entries(options)) form.append(name, String(value));
    const started = performance.now();
    const reply = await post("filter", form, { signal, onwait });
    const blob = await reply.blob();
    const milliseconds = performance.now() - started;
    const format = blob.type.replace("image/", "");
    return { key, blob, milliseconds, stages: stagesOf(reply), name: savedName(this, format) };
  }

  /** Keep a result of the chain, or none, to be shown. */
  keep(result) {
    if (this.result) URL.revokeObjectURL(this.result.address);
    this.result = result && { ...result, address: URL.createObjectURL(result.blob) };
  }

  /** Return whether the image failed or was cancelled, so that it can be tried again. */
  get unfinished() {
    return this.state === "failed" || this.state === "cancelled";
  }

  /** Forget what the browser keeps for the image. */
  forget() {
    this.keep(null);
    if (this.shown) URL.revokeObjectURL(this.shown);
    this.shown = null;
  }

  /** Mark the image as cancelled, if it is not done. */
  cancelled() {
    if (this.state !== "done" && this.state !== "failed") this.#set("cancelled", "Cancelled");
  }

  #form(copy = null) {
    const form = new FormData();
    if (copy) form.append("files", copy, this.name);
    else if (this.url) form.append("urls", this.url);
    else form.append("files", this.file, this.name);
    return form;
  }

  #post(path, signal) {
    const form = this.#form();
    if (path === "process") form.append("versions", SHOWN);
    for (const [name, value] of Object.entries(networkOption())) form.append(name, value);
    const onwait = (seconds) => this.#set("busy", `Server busy: trying again in ${seconds} s`);
    return post(path, form, { signal, onwait });
  }

  /** Fail in plain words where the browser cannot read a file, which `fetch` would not tell. */
  async #readable() {
    await this.file?.slice(0, 1).arrayBuffer().catch(() => {
      throw new Error("The file cannot be read. It may have been moved or changed; add it again.");
    });
  }

  /** Show a file by the browser itself, if it can; a small copy becomes the thumbnail. */
  async #show() {
    if (!this.file || this.shown) return;
    await this.#showBlob(this.file).catch(() => {}); // the server shows what the browser cannot
  }

  async #showVersion({ media_type: type, data }) {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    await this.#showBlob(new Blob([bytes], { type }));
  }

  async #showBlob(blob) {
    const whole = await createImageBitmap(blob);
    this.size = [whole.width, whole.height];
    this.thumbnail = drawn(whole, this.size, Math.min(1, THUMBNAIL / Math.min(...this.size)));
    whole.close();
    this.shown = URL.createObjectURL(blob);
    this.changed(this);
  }

  #set(state, note = "") {
    this.state = state;
    this.note = note;
    this.changed(this);
  }

  #failed(error) {
    if (isCancelled(error)) this.#set("cancelled", "Cancelled");
    else this.#set("failed", error.message);
  }
}

/** Return a canvas with an image of a size, drawn smaller by `scale`. */
function drawn(image, size, scale) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = size.map((each) => Math.max(1, Math.round(each * scale)));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

function nameOf(url) {
  try {
    const { hostname, pathname } = new URL(url);
    return decodeURIComponent(pathname.split("/").pop()) || hostname;
  } catch {
    return url;
  }
}
