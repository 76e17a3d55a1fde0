/**
 * Connect the parts of the page. Start reading here.
 *
 * `workbench.js` manages the images, `chain.js` and `output.js` what is done with them,
 * `controls.js` makes controls from JSON Schemas, `api.js` talks to the server, `address.js` keeps
 * the view and the work in the address.
 */

import { followAddress, readAddress, writeAddress } from "./address.js";
import { getJson } from "./api.js";
import { Chain } from "./chain.js";
import { installCode } from "./code.js";
import { byId } from "./dom.js";
import { Gallery } from "./gallery.js";
import { installKey } from "./key.js";
import { Live } from "./live.js";
import { installNetworks, networkOption } from "./networks.js";
import { Output } from "./output.js";
import { showReference } from "./reference.js";
import { installSources } from "./sources.js";
import { installViewer } from "./viewer.js";
import { Workbench } from "./workbench.js";

const PAUSE = 300; // milliseconds after which a changed value stands in the address

let writeCode = () => {};
let last = null; // the parameter that changed last; its changes are one step of the back button
let timer = null;
let unwritten = null; // writes what changed into the address, after the pause or before a click
const workbench = new Workbench(() => writeCode());

function changed() {
  writeCode();
  workbench.refresh();
  workbench.filterSoon();
}

/** Follow a change by a person: of the parameter `what`, or of the steps for null. */
function worked(what) {
  changed();
  unwritten = () => {
    const work = { ops: workbench.chain.saved, options: workbench.output.options };
    writeAddress(work, what === null || what !== last);
    last = what;
  };
  clearTimeout(timer);
  if (what === null) write();
  else timer = setTimeout(write, PAUSE);
}

function write() {
  clearTimeout(timer);
  unwritten?.();
  unwritten = null;
}

/** Show the work of the address, unless it is shown already. */
function restore({ ops, options }) {
  const [chain, output] = [workbench.chain, workbench.output];
  if (JSON.stringify([ops, options]) !== JSON.stringify([chain.saved, texts(output.options)])) {
    unwritten = null;
    const unknown = chain.restore(ops);
    output.restore(options);
    if (unknown.length) {
      fail(`The address names filters that this server does not have: ${unknown.join(", ")}.`);
    }
    changed();
  }
  writeAddress({ ops: chain.saved, options: output.options }, false);
}

function texts(options) {
  return Object.fromEntries(Object.entries(options).map(([name, each]) => [name, String(each)]));
}

function fail(text) {
  byId("failure").hidden = false;
  byId("failure").textContent = text;
}

async function sample() {
  const reply = await fetch("page/sample.jpg");
  const blob = await reply.blob();
  workbench.addFiles([new File([blob], "golf_ball.jpg", { type: blob.type })]);
}

async function start() {
  installSources((files) => workbench.addFiles(files), (urls) => workbench.addUrls(urls));
  installViewer();
  installKey(() => {
    writeCode();
    workbench.retry();
    workbench.filterSoon(0);
  });
  addEventListener("click", write, true); // links keep the newest values
  byId("sample").addEventListener("click", sample);
  installNetworks(() => {
    writeCode();
    workbench.relabel();
  });
  const live = new Live();
  let gallery = null;
  let reference = null;
  const loaded = Promise.all([getJson("filters"), getJson("openapi.json")]);
  const showView = followAddress(({ view, work }) => {
    if (view === "live") live.start();
    else live.stop();
    if (view === "filters") gallery?.show(workbench.chosen);
    if (view === "docs") reference ??= loaded.then(([, found]) => showReference(found), () => {});
    if (workbench.chain) restore(work);
  });
  try {
    const [{ filters }, document_] = await loaded;
    workbench.chain = new Chain(new Map(filters.map((each) => [each.name, each])), worked);
    workbench.output = new Output(document_, worked);
    writeCode = installCode(() => ({ ops: workbench.chain.ops, options: workbench.output.options,
      network: networkOption(), picture: workbench.chosen }));
    byId("clear-chain").addEventListener("click", () => {
      workbench.chain.clear();
      byId("add-filter").focus();
    });
    byId("add-filter").addEventListener("click", () => {
      location.href = byId("to-filters").href;
    });
    gallery = new Gallery(filters, (op) => {
      const step = workbench.chain.add(op);
      history.replaceState(null, "", byId("to-try").href);
      showView();
      step.focus();
    });
    const { view, work } = readAddress();
    restore(work);
    if (view === "filters") gallery.show(workbench.chosen);
    changed();
  } catch (error) {
    fail(`The filters could not be loaded. ${error.message}`);
  }
  document.documentElement.dataset.ready = "true"; // tests wait for it
}

start();
