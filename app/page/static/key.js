/**
 * The API key, for servers that need one. It is kept for this browser tab and sent to this server
 * only; the field appears when the server answers that a key is needed.
 */

import { byId } from "./dom.js";

const NAME = "darkroom.key";

/** Return the header with the key, or no header without one. */
export function authorization() {
  const key = sessionStorage.getItem(NAME);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** Return whether a key is kept. */
export function hasKey() {
  return sessionStorage.getItem(NAME) !== null;
}

/** Show the field for the key, and say why: there is none, or it is not known, or it is disabled. */
export function askForKey(status) {
  const wrong = status === 403 ? "The server has disabled this API key: enter another one."
    : "The server does not know this API key: check it and enter it again.";
  byId("key-words").textContent = hasKey() ? wrong : "This server needs an API key.";
  byId("key-form").classList.toggle("error", hasKey());
  byId("key-form").hidden = false;
}

/** Keep the key that a person enters, then call `onchange`. */
export function installKey(onchange) {
  const form = byId("key-form");
  form.hidden = !hasKey();
  if (hasKey()) byId("key-words").textContent = "This browser tab keeps an API key.";
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const key = byId("key").value.trim();
    if (key) sessionStorage.setItem(NAME, key);
    else sessionStorage.removeItem(NAME);
    byId("key").value = "";
    form.hidden = true;
    onchange();
  });
}
