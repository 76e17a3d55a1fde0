// The client against a real server at DARKROOM_URL, with photos in the folder DARKROOM_PHOTOS.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { Darkroom, imageBlob } from "../dist/index.js";

const url = process.env.DARKROOM_URL;
const skip = url === undefined && "DARKROOM_URL is not set: no server to ask";
const client = new Darkroom({ baseUrl: url ?? "http://localhost:8000" });
const photo = (name) => readFile(`${process.env.DARKROOM_PHOTOS}/${name}.jpg`);

async function all(records) {
  const found = [];
  for await (const each of records) found.push(each);
  return found.sort((one, other) => one.index - other.index);
}

test("photos have labels, and a damaged one an error of its own", { skip }, async () => {
  const damaged = { id: "bad", image: "no URL" };
  const images = [await photo("golf_ball"), damaged, await photo("church")];
  const [ball, bad, church] = await all(client.classify(images, { top_k: 1 }));
  assert.equal(ball.predictions[0].label, "golf ball");
  assert.equal(church.predictions[0].label, "church");
  assert.equal(bad.id, "bad");
  assert.ok(bad.error.code);
});

test("filtered images are files", { skip }, async () => {
  const [found] = await all(client.filter([await photo("church")], "sepia", { format: "png" }));
  const blob = imageBlob(found.image);
  assert.equal(blob.type, "image/png");
  assert.equal(Buffer.from(await blob.arrayBuffer()).subarray(1, 4).toString(), "PNG");
});

test("an overlay is a file of the form", { skip }, async () => {
  const options = { overlay: new Blob([await photo("church")]), format: "png" };
  const [found] = await all(client.filter([await photo("golf_ball")], "overlay", options));
  assert.equal(found.status, "ok");
});

test("labels and versions come together", { skip }, async () => {
  const versions = [{ id: "grey", ops: ["grayscale"] }];
  const [found] = await all(client.process([await photo("church")], versions, { top_k: 2 }));
  assert.equal(found.predictions.length, 2);
  assert.equal(found.versions[0].id, "grey");
});

test("an archive is labelled, and filtered into another", { skip }, async () => {
  const archive = await readFile(`${process.env.DARKROOM_PHOTOS}/two.zip`);
  const found = await all(client.classifyArchive(archive, { top_k: 1 }));
  const labels = found.map((each) => [each.source, each.predictions[0].label]);
  assert.deepEqual(labels, [["church.jpg", "church"], ["golf_ball.jpg", "golf ball"]]);
  const zip = await client.filterToZip(archive, "sepia", { format: "webp" });
  assert.equal(zip.type, "application/zip");
  const again = await all(client.filterArchive(zip, "grayscale"));
  assert.equal(again.filter((each) => each.status === "ok").length, 2);
});

test("a job gives its records, of an archive too", { skip }, async () => {
  const data = `data:image/jpeg;base64,${(await photo("church")).toString("base64")}`;
  const job = await client.createJob([{ id: "mine", data }], "classify", { top_k: 1 });
  const [found] = await all(client.jobResults(job.id));
  assert.equal(found.id, "mine");
  assert.equal(found.predictions[0].label, "church");
  const archive = await readFile(`${process.env.DARKROOM_PHOTOS}/two.zip`);
  const other = await client.createJob(archive, "classify", { top_k: 1 });
  assert.equal((await all(client.jobResults(other.id))).length, 2);
});

test("files are described", { skip }, async () => {
  const [found] = await all(client.info([await photo("church")], { colour: false }));
  assert.equal(found.info.format, "jpeg");
});

test("a template is found", { skip }, async () => {
  const file = await photo("church");
  const [found] = await all(client.match([file], new Blob([file]), { k: 2 }));
  assert.deepEqual([found.matches.length, found.matches[0].x, found.matches[0].score], [1, 0, 1]);
});

test("the catalogue has types", { skip }, async () => {
  const names = (await client.filters()).map((each) => each.name);
  assert.ok(names.includes("gaussian_blur"));
  assert.equal((await client.models())[0].classes.length, 10);
  const { response } = await client.api.GET("/livez", { parseAs: "text" });
  assert.equal(response.status, 200);
});

test("a wrong option rejects with its path", { skip }, async () => {
  await assert.rejects(all(client.classify([await photo("church")], { top_k: 5000 })), (error) => {
    assert.equal(error.problem.errors[0].path, "top_k");
    return true;
  });
});
