/** What methods of the client take: images, archives, operations, and options of requests. */

import type { operations } from "./schema.js";

type Query<Name extends "classify" | "filter" | "process" | "info" | "match"> = NonNullable<
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
  | "max_bytes"
  | "min_quality"
  | "frames"
>;

export type ClassifyOptions = Query<"classify"> & RequestOptions;
export type FilterOptions = Encoding & Pick<Query<"filter">, "preset"> & RequestOptions;

/** Options of a form: `overlay` is the picture of the filter of this name. */
export type FormOptions = FilterOptions & { overlay?: Blob };
export type ProcessOptions = Omit<Query<"process">, "versions"> & RequestOptions;
export type InfoOptions = Query<"info"> & RequestOptions;
export type MatchOptions = Query<"match"> & RequestOptions;

/** A file, bytes, or a URL that the server fetches. */
export type Content = Blob | Uint8Array<ArrayBuffer> | ArrayBuffer | string | URL;

/** A ZIP or TAR (also with gzip, bzip2 or xz); its first bytes tell the server which. */
export type Archive = Blob | Uint8Array<ArrayBuffer> | ArrayBuffer;

/** One line of a job's manifest. */
export type JobItem = { id?: string; url: string } | { id?: string; data: string };

/** Options of a job: those of its operation, and `destination` and `webhook`. */
export type JobOptions = { [option: string]: unknown } & RequestOptions;

/** Where the results of a job begin, and whether those of a job that still runs are waited for. */
export interface ResultOptions extends RequestOptions {
  offset?: number;
  follow?: boolean;
}

/** An image, or an image with an id that its record repeats. */
export type ImageInput = Content | { id: string; image: Content };

/** Any number of images. */
export type Images = Iterable<ImageInput> | AsyncIterable<ImageInput>;


/** Return whether an image has an id. */
export function hasId(each: ImageInput): each is { id: string; image: Content } {
  return typeof each === "object" && "image" in each;
}

/** Return filters as the list that the server takes. */
export function chain(operations: Operation | Operation[]): { name: string }[] {
  const many = Array.isArray(operations) ? operations : [operations];
  return many.map((each) => (typeof each === "string" ? { name: each } : each));
}

/** Return the field of a chain, or none where a preset has the chain. */
export function opsField(operations: Operation | Operation[] | null): { [name: string]: string } {
  return operations === null ? {} : { ops: JSON.stringify(chain(operations)) };
}

/** Return an option as text: chains and versions as JSON. */
export function text(value: unknown): string {
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
