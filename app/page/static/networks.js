/**
 * The choice of a network, where the server has several; without a choice its default answers.
 * What the networks cannot do is said before a picture is sent.
 */

import { getJson } from "./api.js";
import { byId, el } from "./dom.js";

/** Offer the networks of the server; `onchange()` is called when a person chooses another. */
export async function installNetworks(onchange) {
  const { models, problem } = await getJson("models").catch(() => ({ models: [] }));
  const few = models.find((each) => each.label_set === "imagenette10");
  if (few) {
    warn(`This server labels with the bundled network, which knows only ${few.n_classes} things: `
      + `${few.classes.map(({ label }) => label).join(", ")}. Every picture is called one of these. `
      + "The weights of ImageNet, with 1000 names, are a setting of the server (--weights).");
  } else if (problem) warn(`Labels are not available now: ${problem}.`);
  const select = byId("network");
  select.append(...models.map(({ network, name }, n) =>
    el("option", { value: n === 0 ? "" : network }, `${network} (${name})`)));
  select.hidden = models.length < 2;
  select.addEventListener("change", onchange);
}

function warn(text) {
  byId("networks-warning").hidden = false;
  byId("networks-warning").textContent = text;
}

/** Return the option to send with requests for labels: none for the default network. */
export function networkOption() {
  const chosen = byId("network").value;
  return chosen ? { model: chosen } : {};
}
