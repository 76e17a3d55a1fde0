/**
 * Connect the parts of the page. Start reading here.
 *
 * `workbench.js` manages the images, `chain.js` and `output.js` what is done with them,
 * `controls.js` makes controls from JSON Schemas, `api.js` talks to the server.
 */

import { getJson } from "./api.js";
import { Chain } from "./chain.js";
import { installCode } from "./code.js";
import { titleOf } from "./controls.js";
import { byId, el } from "./dom.js";
import { installGallery } from "./gallery.js";
import { installKey } from "./key.js";
import { Live } from "./live.js";
import { installNetworks, networkOption } from "./networks.js";
import { Output } from "./output.js";
import { Previews } from "./previews.js";
import { installSources } from "./sources.js";
import { installViewer } from "./viewer.js";
import { installViews } from "./views.js";
import { Workbench } from "./workbench.js";

let writeCode = () => {};
let previews = null;
const workbench = new Workbench(() => writeCode());

function changed() {
  writeCode();
  workbench.refresh();
  workbench.filterSoon();
}

async function sample() {
  const reply = await fetch("page/sample.jpg");
  const blob = await reply.blob();
  workbench.addFiles([new File([blob], "golf_ball.jpg", { type: blob.type })]);
}

function installAdding(filters, chain) {
  const select = byId("add-filter");
  const names = filters.map(({ name }) => name).sort();
  select.append(...names.map((name) => el("option", { value: name }, titleOf(name))));
  select.addEventListener("change", () => {
    const { example } = filters.find(({ name }) => name === select.value);
    select.value = "";
    chain.add(example).focus();
  });
  byId("clear-chain").addEventListener("click", () => {
    chain.clear();
    select.focus();
  });
}

async function start() {
  installSources((files) => workbench.addFiles(files), (urls) => workbench.addUrls(urls));
  installViewer();
  installKey(() => {
    writeCode();
    workbench.retry();
    workbench.filterSoon(0);
  });
  byId("sample").addEventListener("click", sample);
  installNetworks(() => {
    writeCode();
    workbench.relabel();
  });
  const live = new Live();
  installViews((name) => {
    previews?.offer(workbench.chosen);
    if (name === "live") live.start();
    else live.stop();
  });
  try {
    const [{ filters }, document_] = await Promise.all([
      getJson("filters"), getJson("openapi.json"),
    ]);
    const chain = new Chain(new Map(filters.map((each) => [each.name, each])), changed);
    workbench.chain = chain;
    workbench.output = new Output(document_, changed);
    writeCode = installCode(() => ({ ops: chain.ops, options: workbench.output.options,
      network: networkOption(), picture: workbench.chosen }));
    installAdding(filters, chain);
    const images = installGallery(filters, (op) => {
      location.hash = "#try";
      chain.add(op).focus();
    });
    previews = new Previews(filters, images);
    changed();
  } catch (error) {
    byId("failure").hidden = false;
    byId("failure").textContent = `The filters could not be loaded. ${error.message}`;
  }
  document.documentElement.dataset.ready = "true"; // tests wait for it
}

start();
