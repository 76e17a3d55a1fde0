/** The client: typed access to all endpoints, and methods for any number of images. */

import createClient, { type Client } from "openapi-fetch";
import { DarkroomError, made } from "./errors.js";
import { jsonLines } from "./lines.js";
import type { Record } from "./results.js";
import { DEFAULT_RETRIES, type Retries, retrying } from "./retries.js";
import type { components, operations, paths } from "./schema.js";

type Query<Name extends "classify" | "filter" | "process" | "info"> = NonNullable<
  operations[Name]["parameters"]["query"]
>;

/** One filter: its name, or its name with its parameters. */
export type Operation = string | { name: string; [parameter: string]: unknown };

/** One version of `process`: `ops`, or `name` with parameters, an `id`, and encoding options. */
export type Version = { id?: string; ops?: Operation[]; name?: string; [option: string]: unknown };

/** Options of every request: `deadlineMs` is sent to the server, `signal` gives the request up. */
export interface RequestOptions {
  deadlineMs?: number;
  signal?: AbortSignal;
}

type Encoding = Pick<
  Query<"process">,
  | "format"
  | "quality"
  | "progressive"
  | "chroma"
  | "lossless"
  | "png_level"
  | "avif_speed"
  | "metadata"
  | "encoder"
>;

export type ClassifyOptions = Query<"classify"> & RequestOptions;
export type FilterOptions = Encoding & RequestOptions;
export type ProcessOptions = Omit<Query<"process">, "versions"> & RequestOptions;
export type InfoOptions = Query<"info"> & RequestOptions;

/** A file, bytes, or a URL that the server fetches. */
export type Content = Blob | Uint8Array<ArrayBuffer> | ArrayBuffer | string | URL;

/** An image, or an image with an id that its record repeats. */
export type ImageInput = Content | { id: string; image: Content };

type Images = Iterable<ImageInput> | AsyncIterable<ImageInput>;

export interface Settings {
  baseUrl: string;
  apiKey?: string;
  /** Images in one request; a server takes 64 by default. */
  imagesPerRequest?: number;
  retries?: Partial<Retries>;
  /** What sends requests in place of the global `fetch`. */
  fetch?: typeof fetch;
}

/** Ask a Darkroom server. One bad image is a record with an `error`; refused requests reject. */
export class Darkroom {
  /** Typed access to every endpoint of the server. */
  readonly api: Client<paths>;
  readonly #fetch: typeof fetch;
  readonly #baseUrl: string;
  readonly #headers: { [name: string]: string };
  readonly #imagesPerRequest: number;

  constructor(settings: Settings) {
    const inner = settings.fetch ?? ((input, init) => fetch(input, init));
    this.#fetch = retrying(inner, { ...DEFAULT_RETRIES, ...settings.retries });
    this.#baseUrl = settings.baseUrl.replace(/\/+$/, "");
    this.#headers = settings.apiKey ? { Authorization: `Bearer ${settings.apiKey}` } : {};
    this.#imagesPerRequest = Math.max(1, settings.imagesPerRequest ?? 16);
    const shared = { baseUrl: this.#baseUrl, headers: this.#headers };
    this.api = createClient<paths>({ ...shared, fetch: (request: Request) => this.#fetch(request) });
  }

  /** Yield labels, logits or embeddings of images as they finish. */
  classify(images: Images, options: ClassifyOptions = {}): AsyncGenerator<Record> {
    return this.#results("/classify", images, options, {});
  }

  /** Yield images after one filter or a chain; `imageBlob` makes a `Blob` of a record's image. */
  filter(
    images: Images,
    operations: Operation | Operation[],
    options: FilterOptions = {},
  ): AsyncGenerator<Record> {
    return this.#results("/filter", images, options, { ops: JSON.stringify(chain(operations)) });
  }

  /** Yield labels and filtered versions of images, each of which is decoded once. */
  process(
    images: Images,
    versions: Version[],
    options: ProcessOptions = {},
  ): AsyncGenerator<Record> {
    const named = versions.map((each) => (each.ops ? { ...each, ops: chain(each.ops) } : each));
    return this.#results("/process", images, options, { versions: JSON.stringify(named) });
  }

  /** Yield what files contain: format, size, orientation, EXIF and dominant colour. */
  info(images: Images, options: InfoOptions = {}): AsyncGenerator<Record> {
    return this.#results("/info", images, options, {});
  }

  /** Return all filters with the JSON Schemas of their parameters. */
  async filters(): Promise<components["schemas"]["FilterRecord"][]> {
    const { data, error, response } = await this.api.GET("/filters");
    if (data === undefined) throw DarkroomError.from(response, error);
    return data.filters;
  }

  /** Return the networks with their weights and classes, the default one first. */
  async models(): Promise<components["schemas"]["ServedModel"][]> {
    const { data, error, response } = await this.api.GET("/models");
    if (data === undefined) throw DarkroomError.from(response, error);
    return data.models;
  }

  /** Yield the records of images in groups, one request after the other. */
  async *#results(
    path: string,
    images: Images,
    options: RequestOptions,
    fields: { [name: string]: string },
  ): AsyncGenerator<Record> {
    const { deadlineMs, signal, ...named } = options;
    const headers: { [name: string]: string } = { ...this.#headers, Accept: "application/x-ndjson" };
    if (deadlineMs !== undefined) headers["X-Deadline-Ms"] = String(deadlineMs);
    let before = 0;
    for await (const group of groups(images, this.#imagesPerRequest)) {
      const form = filled({ ...named, ...fields }, group);
      const init: RequestInit = { method: "POST", body: form, headers };
      const answer = await this.#fetch(this.#baseUrl + path, signal ? { ...init, signal } : init);
      if (!answer.ok || answer.body === null) throw await DarkroomError.of(answer);
      let count = 0;
      for await (const record of jsonLines<Record>(answer.body)) {
        const given = group[record.index];
        const id = given !== undefined && hasId(given) ? { id: given.id } : {};
        count += 1;
        yield { ...record, ...id, index: before + record.index };
      }
      if (count < group.length) throw incomplete(count, group.length, answer);
      before += group.length;
    }
  }
}

/** Return a form with options and images; its order is that of the group. */
function filled(fields: { [name: string]: unknown }, group: ImageInput[]): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined && value !== null) form.append(name, String(value));
  }
  for (const [place, each] of group.entries()) {
    const content = hasId(each) ? each.image : each;
    // A name such as `a.zip` would make the server take the file apart.
    if (typeof content === "string" || content instanceof URL) form.append("urls", String(content));
    else form.append("files", new Blob([content]), `image-${place}`);
  }
  return form;
}

async function* groups(images: Images, most: number): AsyncGenerator<ImageInput[]> {
  let group: ImageInput[] = [];
  for await (const each of images) {
    group.push(each);
    if (group.length >= most) {
      yield group;
      group = [];
    }
  }
  if (group.length > 0) yield group;
}

function hasId(each: ImageInput): each is { id: string; image: Content } {
  return typeof each === "object" && "image" in each;
}

function chain(operations: Operation | Operation[]): { name: string }[] {
  const many = Array.isArray(operations) ? operations : [operations];
  return many.map((each) => (typeof each === "string" ? { name: each } : each));
}

function incomplete(count: number, sent: number, answer: Response): DarkroomError {
  const detail = `the answer ended after ${count} of ${sent} images`;
  return new DarkroomError(
    made("incomplete_answer", "Incomplete answer", answer.status, detail),
    answer.headers.get("X-Request-ID"),
  );
}
