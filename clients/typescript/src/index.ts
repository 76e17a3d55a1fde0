/** Client of Darkroom for Node and browsers. Start reading at `client.ts`. */

export { Darkroom } from "./client.js";
export type {
  Archive,
  ClassifyOptions,
  Content,
  FilterOptions,
  ImageInput,
  InfoOptions,
  JobItem,
  JobOptions,
  Operation,
  ProcessOptions,
  RequestOptions,
  ResultOptions,
  Version,
} from "./options.js";
export type { Settings } from "./client.js";
export { imageBlob } from "./blobs.js";
export { DarkroomError } from "./errors.js";
export type { Problem } from "./errors.js";
export { DEFAULT_RETRIES } from "./retries.js";
export type { Retries } from "./retries.js";
export type { FilteredImage, Prediction, Record } from "./results.js";
