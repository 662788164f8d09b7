// The latest requests, live, and one of them as a waterfall.
import { ask, draw, element, callout, why, lines, Refused } from "./api.js";

const base = "/apis/gatehouse.dev/v1alpha1";
const table = "application/json;as=Table;g=meta.k8s.io;v=v1";
const page = 100, kept = 20000;
const outcomes = ["", "Allowed", "FailedOpen", "Denied", "Failed"];

export async function show(room, parts, query, signal) {
  if (parts[0]) return one(room, parts[0], signal);
  return list(room, query, signal);
}

async function one(room, id, signal) {
  document.title = "Trace " + id + " - Gatehouse";
  const trace = await ask(base + "/admissiontraces/" + encodeURIComponent(id), { signal }).catch(async (err) => {
    const namespace = sessionStorage.getItem("gatehouse.namespace");
    if (err.code !== 403 || !namespace) throw err;
    return ask(base + "/namespaces/" + encodeURIComponent(namespace) + "/admissiontraces/" + encodeURIComponent(id), { signal });
  });
  const drawn = element("div");
  const made = await draw("trace", trace, drawn, signal);
  room.append(element("p", {}, element("a", { href: "#/traces" }, "All requests")), element("h1", { class: "break" }, made.title), drawn);
}

function fields(query) {
  return [["outcome", "outcome"], ["user", "user"], ["webhook", "webhook"], ["resource", "resource"], ["name", "name"]]
    .filter(([q]) => query.get(q)).map(([q, f]) => f + "=" + query.get(q).replace(/[\\,=]/g, "\\$&")).join(",");
}

async function list(room, query, signal) {
  document.title = "Requests - Gatehouse";
  const input = (name, text, size) => element("label", {}, text, element("br"), element("input", { name, value: query.get(name) || "", size, autocomplete: "off" }));
  const choice = element("select", { name: "outcome" }, ...outcomes.map((o) => element("option", { value: o, selected: o === (query.get("outcome") || "") }, o || "any")));
  const live = element("span", { class: "live", role: "status" }, "reading");
  const form = element("form", { class: "filters", onsubmit: (e) => { e.preventDefault(); apply(); } },
    element("label", {}, "Outcome", element("br"), choice), input("namespace", "Namespace", 12), input("resource", "Resource", 12), input("user", "User", 14), input("webhook", "Webhook", 22),
    element("button", { class: "primary" }, "Filter"), live);
  choice.addEventListener("change", apply);
  function apply() {
    const wanted = new URLSearchParams([...new FormData(form)].filter(([, v]) => v));
    location.hash = "#/traces" + (wanted.size ? "?" + wanted : "");
  }
  const drawn = element("div"), more = element("button", { type: "button", hidden: true }, "Show more");
  room.append(element("h1", {}, "Requests"), form, drawn, element("div", { class: "row" }, more));

  const namespace = query.get("namespace");
  if (namespace) sessionStorage.setItem("gatehouse.namespace", namespace);
  const path = base + (namespace ? "/namespaces/" + encodeURIComponent(namespace) : "") + "/admissiontraces?includeObject=Metadata&fieldSelector=" + encodeURIComponent(fields(query));
  // The questions that this page asks change nothing: they are left out unless somebody asks for them.
  const own = (r) => /^(admissionexplanations\.gatehouse\.dev|selfsubjectreviews\.authentication\.k8s\.io)( |$)/.test(r.Object) && !query.get("resource");
  let rows = [], shown = page, columns = null, waiting = false, drawing = false;
  const row = (r) => {
    const cell = (name) => r.cells[columns.indexOf(name)];
    const meta = r.object?.metadata || {};
    return { ID: cell("Name"), Operation: cell("Operation"), Object: cell("Object"), Outcome: cell("Outcome"), Calls: cell("Calls"), Total: cell("Total"), Own: cell("Own"), User: cell("User"), Namespace: meta.namespace || "", At: meta.creationTimestamp };
  };
  const learn = (t) => { if (t.columnDefinitions?.length) columns = t.columnDefinitions.map((c) => c.name); };
  async function redraw() {
    if (drawing) { waiting = true; return; }
    drawing = true;
    try {
      do {
        waiting = false;
        await draw("traces", rows.slice(-shown).reverse(), drawn, signal);
        more.hidden = rows.length <= shown;
        more.textContent = "Show more (" + shown + " of " + rows.length + ")";
      } while (waiting && !signal.aborted);
    } catch (err) {
      // Another view is shown.
      if (!signal.aborted) throw err;
    } finally { drawing = false; }
  }
  more.addEventListener("click", () => { shown += 5 * page; redraw(); });

  const read = async () => {
    const t = await ask(path, { accept: table, signal });
    learn(t);
    rows = t.rows.map(row).filter((r) => !own(r));
    await redraw();
    return t.metadata.resourceVersion;
  };
  let version;
  try {
    version = await read();
  } catch (err) {
    if (signal.aborted) return;
    live.remove();
    room.append(callout(err instanceof Refused && err.code === 404 ? "This needs Gatehouse: the server keeps no traces." : why(err) + (err.code === 403 && !namespace ? " Name a namespace if you may read its traces." : "")));
    return;
  }
  follow();
  async function follow() {
    while (!signal.aborted) {
      try {
        const answer = await ask(path + "&watch=1&resourceVersion=" + encodeURIComponent(version), { accept: table, signal, raw: true });
        live.textContent = "live";
        live.classList.add("on");
        await lines(answer, (event) => {
          if (event.type === "ERROR") throw new Refused(event.object.code, event.object.message);
          learn(event.object);
          for (const r of event.object.rows || []) {
            version = r.object?.metadata?.resourceVersion || version;
            if (event.type === "ADDED" && !own(row(r))) rows.push(row(r));
          }
          if (rows.length > kept) rows.splice(0, rows.length - kept);
          if (event.type === "ADDED") redraw();
        });
      } catch (err) {
        if (signal.aborted) return;
        live.textContent = "waiting for the server";
        live.classList.remove("on");
        await new Promise((r) => setTimeout(r, 1000));
        try { version = await read(); } catch { /* it is tried again */ }
      }
    }
  }
}
