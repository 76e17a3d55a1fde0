/**
 * Format and quality of filtered images: controls made from the OpenAPI document's own schemas.
 *
 * An option that a format does not have is an error on the server, so only those of the chosen
 * format are shown. Without a format the answer has the format of the picture that went in.
 */

import { control } from "./controls.js";
import { byId } from "./dom.js";

const OPTIONS = {
  "": ["metadata"],
  jpeg: ["quality", "chroma", "progressive", "metadata"],
  gif: ["frames"],
  png: ["png_level", "metadata", "frames"],
  webp: ["quality", "lossless", "metadata", "frames"],
  avif: ["quality", "avif_speed", "chroma", "metadata"],
};

/** What an option is where it is not given, so that its control begins there. */
const USUAL = {
  quality: { jpeg: 90, webp: 80, avif: 75 },
  chroma: { jpeg: "420", avif: "420" },
  progressive: { jpeg: false },
  lossless: { webp: false },
  png_level: { png: null }, // without a level PNGs are made of run lengths, which none stands for
  avif_speed: { avif: 9 },
};

/** The same of options that do not depend on the format. */
const ANY_FORMAT = { metadata: "strip", frames: "first" };

const NULL = { type: "null" };

/** The output options; `document` is the OpenAPI document. */
export class Output {
  constructor(document, onchange) {
    this.schemas = {};
    for (const each of document.paths["/filter"].post.parameters) {
      this.schemas[each.name] = bounded(each.schema);
    }
    this.onchange = onchange;
    this.controls = {};
    this.format = byId("format");
    this.format.addEventListener("change", () => {
      this.#draw({});
      onchange(null);
    });
    this.#draw({});
  }

  /** Show options as an address has them: as texts. Options that the format lacks are left out. */
  restore({ format = "", ...texts }) {
    this.format.value = Object.hasOwn(OPTIONS, format) ? format : "";
    this.#draw(texts);
  }

  /** Return the options to send, by name; those that were not touched are left out. */
  get options() {
    const format = this.format.value;
    const options = format ? { format } : {};
    for (const [name, { get, usual }] of Object.entries(this.controls)) {
      const value = get();
      if (value !== null && value !== usual) options[name] = value;
    }
    return options;
  }

  #draw(texts) {
    const format = this.format.value;
    this.controls = {};
    for (const name of OPTIONS[format]) {
      const usual = USUAL[name] ? USUAL[name][format] : ANY_FORMAT[name];
      const schema = { ...this.schemas[name], default: usual };
      const shown = usual === null ? { ...schema, anyOf: [this.schemas[name], NULL] } : schema;
      const text = texts[name];
      const value = text === "true" || text === "false" ? text === "true" : (text ?? usual);
      const made = control(name, shown, value, () => this.onchange(`output.${name}`));
      this.controls[name] = { ...made, usual };
    }
    const { quality, ...more } = this.controls;
    byId("output-options").replaceChildren(...(quality ? [quality.node] : []));
    byId("output-more").replaceChildren(...Object.values(more).map((each) => each.node));
  }
}

/** Return a schema whose bounds have the names of JSON Schema. */
function bounded(schema) {
  const { ge, le, ...rest } = schema;
  return ge === undefined ? schema : { minimum: ge, maximum: le, ...rest };
}
