// One object: the requests about it, what it waits for, and its fields.
import { ask, draw, resourceOf, element, callout, why } from "./api.js";

export async function show(room, parts, query, signal) {
  document.title = "Object - Gatehouse";
  const input = (name, text, value, size) => element("label", {}, text, element("br"), element("input", { name, value: query.get(name) ?? value, size, required: name !== "namespace", autocomplete: "off" }));
  const form = element("form", { class: "filters", onsubmit: (e) => { e.preventDefault(); location.hash = "#/object?" + new URLSearchParams([...new FormData(form)]); } },
    input("version", "API version", "v1", 10), input("kind", "Kind", "Pod", 14), input("namespace", "Namespace", "default", 14), input("name", "Name", "", 20), element("button", { class: "primary" }, "Show"));
  const drawn = element("div");
  room.append(element("h1", {}, "Who set which field"), form, drawn);
  if (!query.get("name")) return;
  const r = await resourceOf(query.get("version"), query.get("kind"));
  const inside = r.namespaced ? "/namespaces/" + encodeURIComponent(query.get("namespace") || "default") : "";
  const object = await ask(r.base + inside + "/" + r.resource + "/" + encodeURIComponent(query.get("name")) + "?includeUninitialized=true", { signal });
  let traces = [], note = "";
  try {
    traces = (await ask("/apis/gatehouse.dev/v1alpha1" + inside + "/admissiontraces?fieldSelector=" + encodeURIComponent("resource=" + r.resource + ",name=" + query.get("name")), { signal })).items;
  } catch (err) {
    if (signal.aborted) throw err;
    note = err.code === 404 ? "This needs Gatehouse: the server keeps no traces." : why(err);
  }
  await draw("object", { object, traces }, drawn, signal);
  if (note) drawn.prepend(callout(note));
}
