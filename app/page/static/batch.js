/**
 * Apply the chain to all images, and save the results together as a ZIP.
 */

import { isCancelled } from "./api.js";
import { announce, byId, el } from "./dom.js";

const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  let sum = n;
  for (let bit = 0; bit < 8; bit += 1) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
  return sum;
});

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

/**
 * Return the ZIP of `files`, pairs of a name and a Blob; names must differ. Images are stored without
 * compression, because they would not get smaller (APPNOTE 6.3.3).
 */
async function zipOf(files) {
  const parts = [];
  const entries = [];
  let offset = 0;
  for (const [name, blob] of files) {
    const bytes = new Uint8Array(await blob.arrayBuffer());
    const written = new TextEncoder().encode(name);
    const fields = [20, 0x800, 0, 0, 0x21, crc32(bytes), bytes.length, bytes.length];
    const local = record("PK\x03\x04", "2222244422", [...fields, written.length, 0]);
    const central = record("PK\x01\x02", "22222244422222" + "44",
      [20, ...fields, written.length, 0, 0, 0, 0, 0, offset]);
    parts.push(local, written, blob);
    entries.push(central, written);
    offset += local.length + written.length + bytes.length;
  }
  const size = entries.reduce((sum, each) => sum + each.length, 0);
  const end = record("PK\x05\x06", "2222442",
    [0, 0, files.length, files.length, size, offset, 0]);
  return new Blob([...parts, ...entries, end], { type: "application/zip" });
}

/** Return names that differ: the second `a.png` becomes `a-2.png`. */
function distinct(names) {
  const taken = new Set();
  return names.map((name) => {
    const [, stem, ending] = name.match(/^(.*?)(\.[^.]*)?$/s);
    let chosen = name;
    for (let n = 2; taken.has(chosen); n += 1) chosen = `${stem}-${n}${ending ?? ""}`;
    taken.add(chosen);
    return chosen;
  });
}

/** Return little-endian fields after a signature; `widths` has the bytes of each as a digit. */
function record(signature, widths, values) {
  const sizes = [...widths].map(Number);
  const view = new DataView(new ArrayBuffer(4 + sizes.reduce((sum, each) => sum + each, 0)));
  [...signature].forEach((letter, n) => view.setUint8(n, letter.charCodeAt(0)));
  let at = 4;
  sizes.forEach((width, n) => {
    if (width === 2) view.setUint16(at, values[n], true);
    else view.setUint32(at, values[n], true);
    at += width;
  });
  return new Uint8Array(view.buffer);
}

function crc32(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) sum = (sum >>> 8) ^ TABLE[(sum ^ byte) & 0xff];
  return (sum ^ 0xffffffff) >>> 0;
}
