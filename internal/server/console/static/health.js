// What is dangerous, failing, slow or not in force.
import { draw, element } from "./api.js";
import { since, keep } from "./chain.js";

export async function show(room, parts, query, signal) {
  document.title = "Health - Gatehouse";
  const drawn = element("div"), status = element("p", { class: "live", role: "status" }, "reading");
  room.append(element("h1", {}, "Health"), status, drawn);
  try {
    keep(await draw("health", since(), drawn, signal));
  } finally { status.remove(); }
}
