/**
 * The list of all images: one card each, with its thumbnail, its best label and its state.
 *
 * A card is drawn again only when its own image changes, so a hundred images stay quick.
 */

import { byId, el } from "./dom.js";
import { percent } from "./labels.js";

/** The cards; `onchoose(picture)` is called for the one that a person chooses. */
export class Strip {
  constructor(onchoose, onretry) {
    this.onchoose = onchoose;
    this.onretry = onretry;
    this.cards = new Map();
    this.list = byId("strip");
  }

  /** Add the card of an image. */
  add(picture) {
    const choose = el("button", { type: "button", class: "card", onclick: () =>
      this.onchoose(picture) });
    const retry = el("button", { type: "button", class: "small retry", hidden: true,
      "aria-label": `Try ${picture.name} again`, onclick: () => this.onretry(picture) },
    "Try again");
    const item = el("li", {}, choose, retry);
    this.cards.set(picture, { choose, retry, item });
    this.list.append(item);
    this.update(picture);
  }

  /** Draw the card of an image again. */
  update(picture) {
    const card = this.cards.get(picture);
    if (!card) return;
    card.item.className = picture.state;
    card.retry.hidden = !picture.unfinished;
    const face = el("span", { class: "face", "aria-hidden": "true" });
    if (picture.thumbnail) face.append(picture.thumbnail);
    else face.textContent = extensionOf(picture.name);
    const note = el("span", { class: "note" }, ...noteOf(picture));
    const name = el("span", { class: "name" }, picture.name);
    card.choose.replaceChildren(face, name, note);
  }

  /** Mark the chosen image. */
  choose(picture) {
    for (const [each, { choose }] of this.cards) {
      choose.setAttribute("aria-pressed", String(each === picture));
    }
  }

  /** Remove all cards. */
  clear() {
    this.cards.clear();
    this.list.replaceChildren();
  }
}

function noteOf({ state, note, predictions }) {
  if (!predictions) return [{ waiting: "Waiting", working: "Working…" }[state] ?? note];
  const [{ label, score }] = predictions;
  return [el("span", { class: "best" }, label), " ", el("span", {}, percent(score))];
}

function extensionOf(name) {
  return (name.match(/\.(\w{1,5})$/)?.[1] ?? "image").toUpperCase();
}
