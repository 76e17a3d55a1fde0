/**
 * Apply the chain to all images, and save the results together as a ZIP.
 */

import { isCancelled } from "./api.js";
import { announce, byId, el } from "./dom.js";
import { distinct, zipOf } from "./zip.js";

/** The work on all images of a workbench, in its queue. */
export class Batch {
  constructor(queue, workbench) {
    this.queue = queue;
    this.workbench = workbench;
    this.controllers = [];
    this.left = 0;
    byId("filter-all").addEventListener("click", () => this.start());
  }

  get running() {
    return this.left > 0;
  }

  /** Show the button where there are several images and a chain. */
  offer(images, steps) {
    const button = byId("filter-all");
    button.hidden = images < 2 || steps === 0;
    button.disabled = this.running;
    button.textContent = this.running
      ? `Filtering: ${this.left} left`
      : `Filter all ${images} and save as ZIP`;
  }

  cancel() {
    for (const controller of this.controllers) controller.abort();
    this.controllers = [];
    this.left = 0;
  }

  start() {
    const pictures = [...this.workbench.pictures];
    const { work } = this.workbench;
    const results = new Map();
    const failed = [];
    this.left = pictures.length;
    byId("batch-note").textContent = "";
    this.controllers = pictures.map((picture) => this.queue.add(async (signal) => {
      try {
        results.set(picture, await picture.filter(work, signal, () => {}));
      } catch (error) {
        if (isCancelled(error)) return;
        failed.push(`${picture.name}: ${error.message}`);
      }
      this.left -= 1;
      if (this.left === 0) await this.#finish(pictures, results, failed);
      this.workbench.refresh();
    }));
    this.workbench.refresh();
  }

  async #finish(pictures, results, failed) {
    const kept = pictures.filter((each) => results.has(each)).map((each) => results.get(each));
    const words = [`${kept.length} of ${pictures.length} images were filtered.`, ...failed];
    byId("batch-note").textContent = words.slice(0, 6).join(" ");
    announce(words[0]);
    if (!kept.length) return;
    const names = distinct(kept.map(({ name }) => name));
    save(await zipOf(kept.map(({ blob }, n) => [names[n], blob])), "darkroom.zip");
  }
}

/** Let the browser save a file. */
export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
