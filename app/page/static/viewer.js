/**
 * The chosen image: before and after with a divider, its labels, and what happens to it.
 *
 * The divider is a slider over the picture, so it works by pointer, by touch and by keyboard. If
 * the filters change the shape of the picture, both are shown side by side instead.
 */

import { byId } from "./dom.js";
import { labelList, warningOf } from "./labels.js";

const STAGES = ["fetch", "decode", "queue", "upload", "compute", "download", "encode"];

/** Show an image, or nothing for null; `message` is an error about its filters. */
export function show(picture) {
  byId("empty").hidden = picture !== null;
  byId("view-try").classList.toggle("started", picture !== null);
  for (const id of ["viewer", "about"]) byId(id).hidden = picture === null;
  if (!picture) return;
  byId("viewer-name").textContent = picture.name;
  showPictures(picture);
  showLabels(picture);
}

/** Show that the filters of the chosen image are being computed. */
export function showWorking(working) {
  byId("stage").setAttribute("aria-busy", String(working));
}

/** Show an error of the filters in the viewer; null removes it. */
export function showError(text) {
  byId("viewer-error").hidden = !text;
  byId("viewer-error").textContent = text ?? "";
}

/** Connect the divider with the pictures. */
export function installViewer() {
  const divider = byId("divider");
  const follow = () => {
    byId("stage").style.setProperty("--divided", `${divider.value}%`);
    divider.setAttribute("aria-valuetext", `${divider.value} % before`);
  };
  divider.addEventListener("input", follow);
  follow();
  for (const id of ["before", "after"]) byId(id).addEventListener("load", compareShapes);
}

function showPictures({ shown, result, name }) {
  const [before, after] = [byId("before"), byId("after")];
  setSource(before, shown ?? result?.address);
  setSource(after, result?.address);
  before.alt = `${name} before the filters`;
  after.alt = `${name} after the filters`;
  byId("stage").classList.toggle("compared", Boolean(shown && result));
  byId("divider").hidden = !(shown && result);
  byId("facts").textContent = result ? factsOf(result) : "";
  const download = byId("download");
  download.hidden = !result || result.preview === true;
  if (result) {
    download.href = result.address;
    download.download = result.name;
  }
}

function setSource(image, address) {
  image.hidden = !address;
  if (!address) image.removeAttribute("src");
  else if (image.src !== address) image.src = address;
}

function compareShapes() {
  const [before, after] = [byId("before"), byId("after")];
  if (!before.naturalWidth || !after.naturalWidth || after.hidden) return;
  const ratio = (image) => image.naturalWidth / image.naturalHeight;
  const apart = Math.abs(Math.log(ratio(before) / ratio(after))) > 0.01;
  byId("stage").classList.toggle("apart", apart);
  byId("divider").hidden = apart || after.hidden;
}

function factsOf({ blob, stages, milliseconds, preview }) {
  if (preview) return "A small copy; the picture itself follows.";
  const kind = blob.type.replace("image/", "").toUpperCase();
  const known = STAGES.filter((each) => stages[each] >= 0.05);
  const times = known.map((each) => `${each} ${stages[each].toFixed(1)} ms`);
  const size = `${kind}, ${Math.max(1, Math.round(blob.size / 1000))} kB`;
  return [size, `${Math.round(milliseconds)} ms in all`, ...times].join(" · ");
}

function showLabels(picture) {
  const place = byId("labels");
  place.setAttribute("aria-busy", String(picture.state === "working"));
  if (picture.predictions) place.replaceChildren(labelList(picture.predictions));
  else place.textContent = wordsFor(picture);
  const warning = warningOf(picture.model);
  byId("model-warning").hidden = !warning;
  byId("model-warning").textContent = warning ?? "";
}

function wordsFor({ state, note }) {
  const words = { waiting: "Waiting for its turn…", working: "Looking…", done: "" };
  return words[state] ?? note;
}
