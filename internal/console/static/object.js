// One object: the requests about it, what it waits for, and its fields.
import { ask, draw, element, callout, why } from "./api.js";
import { picker } from "./picker.js";

export async function show(room, parts, query, signal) {
  document.title = "Object - Gatehouse";
  const pick = picker((name) => query.get(name));
  const form = element("form", { class: "filters", onsubmit: (e) => { e.preventDefault(); location.hash = "#/object?" + new URLSearchParams([...new FormData(form)]); } }, ...pick.elements, element("button", { class: "primary" }, "Show"));
  const drawn = element("div");
  room.append(element("h1", {}, "Who set which field"), form, drawn);
  if (!query.get("name")) return;
  const r = await pick.find();
  const object = await ask(r.path + "?includeUninitialized=true", { signal });
  const inside = r.namespace ? "/namespaces/" + encodeURIComponent(r.namespace) : "";
  let traces = null, note = "";
  try {
    traces = (await ask("/apis/gatehouse.dev/v1alpha1" + inside + "/admissiontraces?fieldSelector=" + encodeURIComponent("resource=" + r.resource + ",name=" + r.name), { signal })).items;
  } catch (err) {
    if (signal.aborted) throw err;
    note = err.code === 404 ? "Traces need Gatehouse. Without them, managedFields say which client set a field, and not what admission changed in its request." : "Traces: " + why(err);
  }
  await draw("object", { object, traces }, drawn, signal);
  if (note) drawn.prepend(callout(note));
}
