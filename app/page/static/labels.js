/**
 * Labels of one image as bars, best first, and the warnings of the network that gave them.
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
  if (model.random) return "The network has random weights: these labels mean nothing.";
  if (model.warning) return `${model.warning.charAt(0).toUpperCase()}${model.warning.slice(1)}.`;
  return null;
}

/** Return a score from 0 to 1 as a percentage. */
export function percent(score) {
  return `${(score * 100).toFixed(score < 0.0995 ? 1 : 0)} %`;
}
