/**
 * The choice of a network, where the server has several; without a choice its default answers.
 */

import { getJson } from "./api.js";
import { byId, el } from "./dom.js";

/** Offer the networks of the server; `onchange()` is called when a person chooses another. */
export async function installNetworks(onchange) {
  const { models } = await getJson("models").catch(() => ({ models: [] }));
  const select = byId("network");
  select.append(...models.map(({ network, name }, n) =>
    el("option", { value: n === 0 ? "" : network }, `${network} (${name})`)));
  select.hidden = models.length < 2;
  select.addEventListener("change", onchange);
}

/** Return the option to send with requests for labels: none for the default network. */
export function networkOption() {
  const chosen = byId("network").value;
  return chosen ? { model: chosen } : {};
}
