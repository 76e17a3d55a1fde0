/**
 * The panel with the program that does the same: its languages, and a button to copy it.
 */

import { announce, byId } from "./dom.js";
import { hasKey } from "./key.js";
import { requestOf, snippet } from "./snippets.js";

/** Connect the panel; return a function that writes the program again. */
export function installCode(state) {
  let touched = false;
  const kind = byId("code-kind");
  const write = () => {
    const { ops, options, network, picture } = state();
    if (!touched) kind.value = ops.length ? "filter" : "classify";
    const language = document.querySelector("input[name=language]:checked").value;
    const image = picture ?? { name: "photo.jpg", url: null };
    const asked = kind.value === "filter" && !ops.length ? [{ name: "grayscale" }] : ops;
    const base = new URL("./", location.href).href;
    const keyed = hasKey();
    const request = requestOf(kind.value, { ops: asked, options, network, image, keyed });
    byId("code").textContent = snippet(language, base, request);
  };
  kind.addEventListener("change", () => {
    touched = true;
    write();
  });
  for (const input of document.querySelectorAll("input[name=language]")) {
    input.addEventListener("change", write);
  }
  byId("copy").addEventListener("click", copy);
  return write;
}

async function copy() {
  const button = byId("copy");
  try {
    await navigator.clipboard.writeText(byId("code").textContent);
    button.textContent = "Copied";
    announce("The code was copied.");
  } catch {
    getSelection().selectAllChildren(byId("code")); // without HTTPS there is no clipboard
    button.textContent = "Press Ctrl+C";
  }
  setTimeout(() => {
    button.textContent = "Copy";
  }, 2500);
}
