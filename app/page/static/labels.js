/**
 * Labels of one image as bars, best first; the warnings of the network that gave them; and the
 * labels of all images as CSV (RFC 4180) and JSON.
 */

import { el } from "./dom.js";

/** Return a list with a bar for each prediction. */
export function labelList(predictions) {
  return el("ol", { class: "labels" }, predictions.map(({ label, score }) => {
    const bar = el("span", { class: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--share", `${score * 100}%`);
    return el("li", {}, el("span", { class: "label" }, label),
      el("span", { class: "score" }, percent(score)), bar);
  }));
}

/** Return what a person must know of a model's labels, or null. */
export function warningOf(model) {
  if (!model) return null;
  if (model.label_set === "imagenette10") {
    return `This server knows only ${model.n_classes} things, and calls every picture one of them.`;
  }
  if (model.random) return "The network has random weights: these labels mean nothing.";
  if (model.warning) return `${model.warning.charAt(0).toUpperCase()}${model.warning.slice(1)}.`;
  return null;
}

/** Return a score from 0 to 1 as a percentage. */
export function percent(score) {
  return `${(score * 100).toFixed(score < 0.0995 ? 1 : 0)} %`;
}

/** Return a CSV of all images: a row for each label, or a row with the error. */
export function labelsCsv(pictures) {
  const rows = pictures.flatMap(({ name, url, note, predictions }) => (predictions
    ? predictions.map(({ label, wnid, class_id: id, score }, n) =>
      [url ?? name, n + 1, label, wnid ?? "", id, score, ""])
    : [[url ?? name, "", "", "", "", "", note || "not labelled yet"]]));
  const head = ["image", "rank", "label", "wnid", "class_id", "score", "error"];
  return [head, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

/** Return a JSON list of all images with their labels or errors. */
export function labelsJson(pictures) {
  return JSON.stringify(pictures.map(({ name, url, note, model, predictions }) => (predictions
    ? { image: url ?? name, model: model?.name, predictions }
    : { image: url ?? name, error: note || "not labelled yet" })), null, 2);
}

/** Quote a cell; a text that a spreadsheet would compute as a formula gets an apostrophe in front. */
function cell(value) {
  const formula = typeof value === "string" && /^\s*[=+\-@\t\r]/.test(value);
  const text = formula ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
