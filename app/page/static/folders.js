/**
 * Find the images in dropped folders, which the browser hands over as one unreadable file each.
 */

const IMAGE = /\.(jpe?g|png|webp|gif|bmp|tiff?|avif)$/i;

/** Return the files of a drop; of folders, the images at any depth. */
export async function filesOf(data) {
  const files = [...data.files];
  const entries = [...(data.items ?? [])].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.some((entry) => entry.isDirectory)) return files;
  return (await Promise.all(entries.map((entry) => imagesIn(entry, true)))).flat();
}

/** Return the images of an entry; a file that was dropped itself is taken whatever its name is. */
async function imagesIn(entry, dropped) {
  if (entry.isDirectory) {
    const entries = await entriesOf(entry.createReader());
    return (await Promise.all(entries.map((each) => imagesIn(each, false)))).flat();
  }
  if (!dropped && !IMAGE.test(entry.name)) return [];
  return [await new Promise((resolve, reject) => entry.file(resolve, reject))];
}

/** Return all entries of a folder, which are read a hundred at a time until none is left. */
async function entriesOf(reader) {
  const found = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return found;
    found.push(...some);
  }
}
