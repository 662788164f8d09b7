// One object: the requests about it, what it waits for, and its fields.
import { draw, element } from "./api.js";
import { picker } from "./picker.js";

export async function show(room, parts, query, signal) {
  document.title = "Object - Gatehouse";
  const pick = picker((name) => query.get(name));
  const form = element("form", { class: "filters", onsubmit: (e) => { e.preventDefault(); location.hash = "#/object?" + new URLSearchParams([...new FormData(form)]); } }, ...pick.elements, element("button", { class: "primary" }, "Show"));
  const drawn = element("div");
  room.append(element("h1", {}, "Who set which field"), form, drawn);
  if (query.get("name")) await draw("object", pick.named(), drawn, signal);
}
