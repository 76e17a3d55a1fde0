/** Filtered images of records as files. */

import type { FilteredImage } from "./results.js";

/** Return a filtered image as a `Blob` of its media type. */
export function imageBlob(image: FilteredImage): Blob {
  const text = atob(image.data ?? "");
  const bytes = Uint8Array.from(text, (char) => char.charCodeAt(0));
  return new Blob([bytes], { type: image.media_type });
}
