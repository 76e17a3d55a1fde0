/**
 * The three views of the page, chosen by the address: `#try`, `#filters`, `#live`.
 */

import { byId } from "./dom.js";

const VIEWS = ["try", "filters", "live"];

/** Show the view that the address names; `onshow(name)` is called for each view that is shown. */
export function installViews(onshow) {
  const follow = (focus) => {
    const asked = location.hash.slice(1);
    const chosen = VIEWS.includes(asked) ? asked : "try";
    for (const name of VIEWS) {
      byId(`view-${name}`).hidden = name !== chosen;
      byId(`to-${name}`).setAttribute("aria-current", name === chosen ? "page" : "false");
    }
    if (focus) byId(`view-${chosen}`).querySelector("h2").focus();
    onshow(chosen);
  };
  addEventListener("hashchange", () => {
    if (!location.hash || VIEWS.includes(location.hash.slice(1))) follow(true);
  });
  follow(false);
}
