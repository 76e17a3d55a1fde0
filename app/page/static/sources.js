/**
 * Where images come from: files that are chosen, dropped or pasted, the images in dropped folders,
 * and URLs that are typed, dropped or pasted. Nothing is sent here.
 */

import { announce, byId } from "./dom.js";

const IMAGE = /\.(jpe?g|png|webp|gif|bmp|tiff?|avif|hei[cf]|hif)$/i;
const URL_LINE = /^https?:\/\/\S+$/i;

/** Call `onfiles(files)` and `onurls(urls)` for what a person gives. */
export function installSources(onfiles, onurls) {
  const input = byId("files");
  input.addEventListener("change", () => {
    if (input.files.length) onfiles([...input.files]);
    input.value = "";
  });
  byId("url-form").addEventListener("submit", (event) => {
    event.preventDefault();
    submitUrls(onurls);
  });
  installDrop(onfiles, onurls);
  document.addEventListener("paste", (event) => {
    if (event.target.closest("input, textarea, select")) return;
    if (take(event.clipboardData, onfiles, onurls)) event.preventDefault();
  });
}

/** Take the addresses; what is no address stays in the field and is named, and the others go on. */
function submitUrls(onurls) {
  const field = byId("urls");
  const entries = field.value.split(/\s+/).filter(Boolean);
  const good = entries.filter((entry) => URL_LINE.test(entry));
  const wrong = entries.filter((entry) => !URL_LINE.test(entry));
  field.value = wrong.join(" ");
  field.setAttribute("aria-invalid", String(wrong.length > 0));
  byId("urls-error").hidden = wrong.length === 0;
  byId("urls-error").textContent = wrong.map((entry) => `“${entry.slice(0, 60)}”`).join(", ")
    + (wrong.length === 1 ? " is not an address: it" : " are not addresses: each")
    + " must begin with https:// or http://";
  if (wrong.length) field.focus();
  if (good.length) onurls(good);
}

function installDrop(onfiles, onurls) {
  let depth = 0; // a drag enters and leaves each element on its way
  const shown = (change) => {
    depth = Math.max(0, depth + change);
    document.body.classList.toggle("dropping", depth > 0);
  };
  addEventListener("dragenter", (event) => {
    event.preventDefault();
    shown(1);
  });
  addEventListener("dragleave", () => shown(-1));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    shown(-depth);
    take(event.dataTransfer, onfiles, onurls);
  });
}

/** Take files, else URLs, out of what was dropped or pasted; return whether there were any. */
function take(data, onfiles, onurls) {
  if (data.files.length) {
    filesOf(data).then((files) => {
      if (files.length) onfiles(files);
      else announce("There are no images in the folder.");
    }, (error) => announce(`The folder cannot be read: ${error.message}`));
    return true;
  }
  const text = data.getData("text/uri-list") || data.getData("text/plain");
  const urls = text.split(/\s+/).filter((line) => URL_LINE.test(line));
  if (urls.length) onurls(urls);
  return urls.length > 0;
}

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
