/**
 * The address of the page: the view that is shown, and the work, so that reloading, sharing and
 * going back keep both. An address looks like `#try?ops=[…]&format=webp`.
 *
 * Everything stands behind "#", so no server and no log receives the work.
 */

import { byId } from "./dom.js";

const VIEWS = ["try", "filters", "live", "docs"];

/** Return the view and the work that the address names: `ops` are steps, `options` are texts. */
export function readAddress() {
  const query = location.hash.split("?")[1] ?? "";
  const view = viewOf(location);
  const { ops, ...options } = Object.fromEntries(new URLSearchParams(query));
  return { view, work: { ops: stepsOf(ops), options } };
}

/** Write the work into the address; `fresh` makes an entry to which the back button returns. */
export function writeAddress({ ops, options }, fresh) {
  const fields = new URLSearchParams(options);
  if (ops.length) fields.set("ops", JSON.stringify(ops));
  const query = fields.size ? `?${fields}` : "";
  for (const view of VIEWS) byId(`to-${view}`).href = `./#${view}${query}`;
  byId("home").href = `./#try${query}`;
  if ((location.hash.split("?")[1] ?? "") === query.slice(1)) return;
  history[fresh ? "pushState" : "replaceState"](null, "", `#${viewOf(location)}${query}`);
}

/**
 * Show the view of the address, now and after each change; `onshow` gets what the address names.
 * Return the function that shows the view again after a script has changed the address.
 */
export function followAddress(onshow) {
  const follow = (event) => {
    const found = readAddress();
    for (const name of VIEWS) {
      byId(`view-${name}`).hidden = name !== found.view;
      byId(`to-${name}`).setAttribute("aria-current", name === found.view ? "page" : "false");
    }
    if (event && viewOf(new URL(event.oldURL)) !== found.view) {
      byId(`view-${found.view}`).querySelector("h2").focus();
      scrollTo(0, 0);
    }
    onshow(found);
  };
  addEventListener("hashchange", follow);
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address keeps the work
    byId("main").focus();
  });
  follow();
  return follow;
}

function viewOf({ hash, pathname }) {
  const name = hash.slice(1).split("?")[0];
  return VIEWS.includes(name) ? name : pathname.endsWith("/docs") ? "docs" : "try";
}

/** Return the steps of a text that a person may have changed: what is no step is left out. */
function stepsOf(text) {
  try {
    const found = JSON.parse(text ?? "[]");
    return (Array.isArray(found) ? found : []).filter((each) => typeof each?.name === "string");
  } catch {
    return [];
  }
}
