/**
 * Where images come from: files that are chosen, dropped or pasted, and URLs that are typed,
 * dropped or pasted. Nothing is sent here.
 */

import { announce, byId } from "./dom.js";
import { filesOf } from "./folders.js";

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

function submitUrls(onurls) {
  const field = byId("urls");
  const lines = field.value.split(/\s+/).filter(Boolean);
  const wrong = lines.find((line) => !URL_LINE.test(line));
  const message = byId("urls-error");
  message.hidden = !wrong;
  field.setAttribute("aria-invalid", String(Boolean(wrong)));
  if (wrong) {
    const start = wrong.slice(0, 60);
    message.textContent = `“${start}” is not an address: it must begin with https://`;
    field.focus();
    return;
  }
  if (lines.length) onurls(lines);
  field.value = "";
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
