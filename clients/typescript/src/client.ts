/** The client: typed access to all endpoints, and methods for any number of images. */

import createClient, { type Client } from "openapi-fetch";
import { DarkroomError, made } from "./errors.js";
import { jsonLines } from "./lines.js";
import {
  type Archive,
  type ClassifyOptions,
  chain,
  type FilterOptions,
  type FormOptions,
  hasId,
  type ImageInput,
  type Images,
  type InfoOptions,
  type MatchOptions,
  type JobItem,
  type JobOptions,
  type Operation,
  opsField,
  type ProcessOptions,
  type RequestOptions,
  type ResultOptions,
  text,
  type Version,
} from "./options.js";
import type { Record } from "./results.js";
import { DEFAULT_RETRIES, type Retries, retrying } from "./retries.js";
import type { components, paths } from "./schema.js";

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

  /**
   * Yield images after one filter or a chain, or, for null, after the chain of `options.preset`;
   * `imageBlob` makes a `Blob` of a record's image.
   */
  filter(
    images: Images,
    operations: Operation | Operation[] | null,
    options: FormOptions = {},
  ): AsyncGenerator<Record> {
    return this.#results("/filter", images, options, opsField(operations));
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

  /** Yield the best places of a small picture in images. */
  match(images: Images, template: Blob, options: MatchOptions = {}): AsyncGenerator<Record> {
    return this.#results("/match", images, options, { template });
  }

  /** Yield labels of the images in an archive, which is one request; `source` is a name in it. */
  classifyArchive(archive: Archive, options: ClassifyOptions = {}): AsyncGenerator<Record> {
    return this.#ofArchive("/classify", archive, options, {});
  }

  /** Yield the images of an archive after one filter or a chain. */
  filterArchive(
    archive: Archive,
    operations: Operation | Operation[] | null,
    options: FilterOptions = {},
  ): AsyncGenerator<Record> {
    return this.#ofArchive("/filter", archive, options, opsField(operations));
  }

  /** Return a ZIP of the filtered images of an archive, with their records in `results.jsonl`. */
  async filterToZip(
    archive: Archive,
    operations: Operation | Operation[] | null,
    options: FilterOptions = {},
  ): Promise<Blob> {
    const fields = { ...options, ...opsField(operations) };
    const headers = { Accept: "application/zip", "Content-Type": "application/zip" };
    return (await this.#sent("POST", "/filter", fields, headers, new Blob([archive]))).blob();
  }

  /** Make a job of images, or of an archive; tries have the same key, so they make one job. */
  async createJob(
    images: Iterable<JobItem> | Archive,
    operation: "classify" | "filter" | "process",
    options: JobOptions = {},
  ): Promise<components["schemas"]["JobRecord"]> {
    const listed = Symbol.iterator in images && !(images instanceof Uint8Array);
    const lines = listed ? [...images].map((each) => `${JSON.stringify(each)}\n`) : [images];
    const kind = listed ? "application/x-ndjson" : "application/zip";
    const headers = { "Content-Type": kind, "Idempotency-Key": crypto.randomUUID() };
    const fields = { ...options, operation };
    return (await this.#sent("POST", "/jobs", fields, headers, new Blob(lines))).json();
  }

  /**
   * Yield the records of a job as they are finished; goes on after a broken connection, and where a
   * server that stops has ended its answer before the job.
   */
  async *jobResults(id: string, options: ResultOptions = {}): AsyncGenerator<Record> {
    const { offset = 0, follow = true, ...others } = options;
    const path = `/jobs/${encodeURIComponent(id)}/results`;
    for (let next = offset, tries = 0; ; tries++) {
      const asked = { ...others, offset: next, follow };
      const answer = await this.#sent("GET", path, asked, {});
      try {
        for await (const record of jsonLines<Record>(answer.body as ReadableStream<Uint8Array>)) {
          next += 1;
          tries = 0;
          yield record;
        }
        const state = answer.headers.get("X-Job-State");
        if (!follow || (state !== "queued" && state !== "running" && state !== "cancelling")) return;
        await new Promise((resolve) => setTimeout(resolve, 500));
      } catch (error) {
        if (!(error instanceof TypeError) || options.signal?.aborted || tries >= 5) throw error;
      }
    }
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

  /** Send a request whose options are in the query; rejects unless it succeeds. */
  async #sent(
    method: string,
    path: string,
    options: object & RequestOptions,
    headers: { [name: string]: string },
    body: Blob | null = null,
  ): Promise<Response> {
    const { deadlineMs, signal, ...named } = options;
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(named)) {
      if (value !== undefined && value !== null) query.set(name, text(value));
    }
    const deadline = deadlineMs === undefined ? {} : { "X-Deadline-Ms": String(deadlineMs) };
    const init: RequestInit = { method, body, headers: { ...this.#headers, ...headers, ...deadline } };
    const url = `${this.#baseUrl}${path}?${query}`;
    const answer = await this.#fetch(url, signal ? { ...init, signal } : init);
    if (!answer.ok || answer.body === null) throw await DarkroomError.of(answer);
    return answer;
  }

  async *#ofArchive(
    path: string,
    archive: Archive,
    options: object & RequestOptions,
    fields: { [name: string]: string },
  ): AsyncGenerator<Record> {
    const headers = { Accept: "application/x-ndjson", "Content-Type": "application/zip" };
    const asked = { ...options, ...fields };
    const answer = await this.#sent("POST", path, asked, headers, new Blob([archive]));
    yield* jsonLines<Record>(answer.body as ReadableStream<Uint8Array>);
  }

  /** Yield the records of images in groups, one request after the other. */
  async *#results(
    path: string,
    images: Images,
    options: RequestOptions,
    fields: { [name: string]: string | Blob },
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
    if (value !== undefined && value !== null) form.append(name, value instanceof Blob ? value : String(value));
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

function incomplete(count: number, sent: number, answer: Response): DarkroomError {
  const detail = `the answer ended after ${count} of ${sent} images`;
  return new DarkroomError(
    made("incomplete_answer", "Incomplete answer", answer.status, detail),
    answer.headers.get("X-Request-ID"),
  );
}
