/** The types of results, by the names of the OpenAPI document. */

import type { components } from "./schema.js";

/** The result of one image: what was asked for, or its `error`. */
export type Record = components["schemas"]["Record"];

/** One class of one image. */
export type Prediction = components["schemas"]["Prediction"];

/** A filtered image; `data` is base64. */
export type FilteredImage = components["schemas"]["FilteredImage"];
