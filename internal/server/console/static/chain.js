// What judges requests: the plugins of both passes, and what is registered.
import { view, draw, element, callout, why } from "./api.js";

// The calls of a window are those between two readings of the metrics, at most so long apart.
const every = 10e3, longest = 300e3;
const readings = [];

// since is the earlier reading with which the window begins.
export function since() {
  const now = performance.now();
  while (readings.length && now - readings[0].at > longest) readings.shift();
  return readings.length ? { before: readings[0].counts, seconds: (now - readings[0].at) / 1000 } : {};
}
// keep keeps a reading of the metrics, if the viewer may read them.
export function keep(made) { if (made.counts) readings.push({ at: performance.now(), counts: made.counts }); }

// count keeps the numbers of calls on the page up to date.
async function count(drawn, signal) {
  while (!signal.aborted) {
    await new Promise((r) => setTimeout(r, every));
    if (signal.aborted || document.hidden) continue;
    try {
      const made = await view("calls", since(), signal);
      keep(made);
      for (const e of drawn.querySelectorAll("[data-calls]")) if (made.texts[e.dataset.calls]) e.textContent = made.texts[e.dataset.calls];
    } catch { /* it is tried again */ }
  }
}

export async function show(room, parts, query, signal) {
  document.title = "Chain - Gatehouse";
  const field = element("input", { type: "search", size: 32, value: parts[1] || query.get("q") || "", placeholder: "kind or name" });
  const drawn = element("div"), status = element("span", { class: "live", role: "status" }, "reading");
  room.append(element("h1", {}, "Admission chain"), element("form", { class: "filters", onsubmit: (e) => e.preventDefault() }, element("label", {}, "Filter", element("br"), field), status), drawn);
  let timer = 0, painting = null;
  const paint = async () => {
    painting?.abort();
    painting = new AbortController();
    const filter = field.value, made = await draw("chain", { filter, ...since() }, drawn, AbortSignal.any([signal, painting.signal]));
    keep(made);
    status.textContent = made.status;
    status.classList.toggle("on", made.whole);
    if (made.whole && !filter && !drawn.querySelector("details.entry")) drawn.prepend(callout("Nothing is registered: the built-in plugins decide alone.", ""));
    if (!parts[1]) return made;
    for (const e of drawn.querySelectorAll("details.entry")) if (e.dataset.entry === parts[0] + "/" + parts[1]) { e.open = true; e.classList.add("wanted"); }
    drawn.querySelector(".wanted")?.scrollIntoView({ block: "center" });
    return made;
  };
  const failed = (err) => {
    // Another view is shown, or the filter is another one.
    if (signal.aborted || err.name === "AbortError") return;
    status.textContent = "not known";
    status.classList.remove("on");
    drawn.replaceChildren(callout(why(err), "bad"));
  };
  field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => paint().catch(failed), 200); });
  try {
    if ((await paint()).counts) count(drawn, signal);
  } catch (err) { failed(err); }
}
