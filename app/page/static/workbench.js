/**
 * The workbench: images that a person gave, the chosen one, the chain, and what is computed.
 *
 * Labels are asked for at once, four images at a time. While a control moves, the chain is applied
 * to a small copy of the chosen image; a moment after the last change, to the image itself. A newer
 * request cancels the one before. "Filter all" applies the chain to every image, four at a time.
 */

import { isCancelled } from "./api.js";
import { Batch, save } from "./batch.js";
import { announce, byId } from "./dom.js";
import { Picture } from "./images.js";
import { labelsCsv, labelsJson } from "./labels.js";
import { Strip } from "./strip.js";
import { TaskQueue } from "./tasks.js";
import { show, showError, showWorking } from "./viewer.js";

const AT_A_TIME = 4;
const PAUSE = 350; // milliseconds after the last change of a control
const QUICKEST = 60; // milliseconds between two small copies while a control moves, at least
const SLOWEST = 300;
const SIDE = 720; // pixels of the small copy's longer side

/** The workbench; `chain` and `output` are set when the server's catalogue has come. */
export class Workbench {
  constructor(onchange) {
    this.onchange = onchange;
    this.pictures = [];
    this.chosen = null;
    this.chain = null;
    this.output = null;
    this.took = 0; // milliseconds that the last small copy took
    this.next = null; // the timer of the next small copy
    this.tasks = new Map();
    this.queue = new TaskQueue(AT_A_TIME);
    this.strip = new Strip((each) => this.choose(each), (each) => this.#label(each));
    this.batch = new Batch(this.queue, this);
    byId("cancel").addEventListener("click", () => this.cancel());
    byId("clear").addEventListener("click", () => this.clear());
    byId("save-csv").addEventListener("click", () =>
      save(new Blob([labelsCsv(this.pictures)], { type: "text/csv" }), "labels.csv"));
    byId("save-json").addEventListener("click", () =>
      save(new Blob([labelsJson(this.pictures)], { type: "application/json" }), "labels.json"));
    byId("retry").addEventListener("click", () => this.retry());
    this.#summarise();
  }

  addFiles(files) {
    this.#add(files.map((file) => new Picture({ file }, (each) => this.#changed(each))));
  }

  addUrls(urls) {
    this.#add(urls.map((url) => new Picture({ url }, (each) => this.#changed(each))));
  }

  choose(picture) {
    this.chosen = picture;
    this.strip.choose(picture);
    if (picture?.result && picture.result.key !== this.work.key) picture.keep(null);
    showError(null);
    this.chain?.fit(picture?.size ?? null);
    show(picture);
    this.filterSoon(0);
    this.onchange();
  }

  /** Apply the chain to a small copy now, and to the chosen image after a pause without changes. */
  filterSoon(pause = PAUSE) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#filter(), pause);
    if (!pause) return;
    this.next ??= setTimeout(() => {
      this.next = null;
      this.#preview();
    }, Math.min(SLOWEST, Math.max(QUICKEST, this.took)));
  }

  /** Return the chain and the output options as they are now; `key` is both as text. */
  get work() {
    const [ops, options] = [this.chain?.ops ?? [], this.output?.options ?? {}];
    return { ops, options, key: JSON.stringify([ops, options]) };
  }

  /** End all work; what is done stays. */
  cancel() {
    this.batch.cancel();
    for (const controller of this.tasks.values()) controller.abort();
    for (const picture of this.pictures) picture.cancelled();
    this.tasks.clear();
    announce("Cancelled. What was done stays.");
    this.#summarise();
  }

  clear() {
    this.cancel();
    this.filtering?.abort();
    for (const picture of this.pictures) picture.forget();
    this.pictures = [];
    this.strip.clear();
    this.choose(null);
    this.#summarise();
    byId("files").focus();
    announce("All images were removed.");
  }

  #add(pictures) {
    const first = this.chosen ?? pictures[0];
    for (const picture of pictures) {
      this.pictures.push(picture);
      this.strip.add(picture);
      this.#label(picture);
    }
    if (first !== this.chosen) this.choose(first);
    const count = pictures.length;
    announce(count === 1 ? "1 image was added." : `${count} images were added.`);
    this.#summarise();
  }

  #label(picture) {
    picture.state = "waiting";
    this.#changed(picture);
    this.tasks.set(picture, this.queue.add(async (signal) => {
      await picture.label(signal);
      this.tasks.delete(picture);
      this.#summarise();
      if (this.tasks.size === 0) announce(this.#words());
    }));
  }

  /** Ask again for the labels of all images that failed or were cancelled. */
  retry() {
    for (const picture of this.pictures) {
      if (picture.unfinished) this.#label(picture);
    }
  }

  /** Ask for the labels of all images again, for instance of another network. */
  relabel() {
    this.cancel();
    for (const picture of this.pictures) this.#label(picture);
  }

  #changed(picture) {
    this.strip.update(picture);
    if (picture !== this.chosen) return;
    this.chain?.fit(picture.size);
    show(picture);
  }

  /** Show the chain on a small copy; errors are told by the image itself, which follows. */
  async #preview() {
    const picture = this.chosen;
    if (!picture?.shown || !this.chain?.ops.length) return;
    this.filtering?.abort();
    const { signal } = (this.filtering = new AbortController());
    const started = performance.now();
    try {
      const { blob, scale } = await picture.copy(SIDE);
      const work = { ...this.work, ops: this.chain.shrunk(scale), key: null };
      const result = await picture.filter(work, signal, () => {}, blob);
      if (signal.aborted || picture !== this.chosen) return;
      picture.keep({ ...result, preview: true });
      this.took = performance.now() - started;
      show(picture);
    } catch {
      this.took = SLOWEST;
    }
  }

  async #filter() {
    clearTimeout(this.next);
    this.next = null;
    this.filtering?.abort();
    const picture = this.chosen;
    if (!picture || !this.chain) return;
    const { work } = this;
    if (!work.ops.length) picture.keep(null);
    if (!work.ops.length || picture.result?.key === work.key) {
      this.#ended(picture, null);
      return;
    }
    const controller = (this.filtering = new AbortController());
    showWorking(true);
    const onwait = (seconds) => showError(`The server is busy: trying again in ${seconds} s.`);
    try {
      picture.keep(await picture.filter(work, controller.signal, onwait));
      this.#ended(picture, null);
    } catch (error) {
      if (isCancelled(error)) return;
      picture.keep(null);
      this.#ended(picture, error);
    }
  }

  /** Show the end of filtering, with messages at the controls that they are about. */
  #ended(picture, error) {
    showWorking(false);
    const left = this.chain.showErrors(error?.errors ?? []);
    const atControls = error?.errors?.length && !left.length;
    showError(error ? (atControls ? "A filter has a wrong value: see its message." : error.message)
      : null);
    if (picture === this.chosen) show(picture);
  }

  #words() {
    const done = this.pictures.filter(({ state }) => state === "done").length;
    const bad = this.pictures.filter(({ state }) => state === "failed").length;
    const failed = bad ? `, ${bad} failed` : "";
    return `${done} of ${this.pictures.length} labelled${failed}`;
  }

  #summarise() {
    const count = this.pictures.length;
    const unfinished = this.pictures.some((each) => each.unfinished);
    byId("images-section").hidden = count === 0;
    byId("summary").textContent = count ? this.#words() : "";
    byId("save-labels").hidden = !this.pictures.some(({ predictions }) => predictions);
    byId("cancel").hidden = this.tasks.size === 0 && !this.batch.running;
    byId("retry").hidden = !unfinished || this.tasks.size > 0;
    byId("progress").hidden = this.tasks.size === 0;
    byId("progress").max = count || 1;
    byId("progress").value = count - this.tasks.size;
    this.batch.offer(count, this.chain?.ops.length ?? 0);
  }

  /** Draw counts and buttons again, after the chain or the batch changed. */
  refresh() {
    this.#summarise();
  }
}
