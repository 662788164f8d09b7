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
  const heading = element("h1", { class: "break" }, "Trace " + id), drawn = element("div");
  room.append(element("p", {}, element("a", { href: "#/traces" }, "All requests")), heading, drawn);
  const made = await draw("trace", { id, namespace: sessionStorage.getItem("gatehouse.namespace") || "" }, drawn, signal);
  heading.textContent = made.title;
}

// The rows of a list come while it is shown, as the API writes them: nothing but text is put into them.
const heads = ["Time (UTC)", "Outcome", "Request", "Namespace", "User", "Calls", "Took", "of the slowest"];
const responses = (r) => r.response >= "4" && classes[r.outcome] ? ", then " + r.response : "";
const classes = { Allowed: "ok", FailedOpen: "warn" };
const units = { h: 3600, m: 60, s: 1, ms: 1e-3, "µs": 1e-6, ns: 1e-9 };
const inSeconds = (text) => [...text.matchAll(/([\d.]+)(h|ms|m|s|µs|ns)/g)].reduce((sum, [, n, unit]) => sum + n * units[unit], 0);
const brief = (t) => t >= 1 ? Number(t.toPrecision(3)) + "s" : t >= 1e-3 ? Number((t * 1e3).toPrecision(3)) + "ms" : Math.round(t * 1e6) + "µs";
const shape = (name, attributes, ...children) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
};
const drawRow = (r, slowest) => element("tr", { "data-id": r.id },
  element("td", { class: "mono", title: r.at }, r.at.slice(11, 19)),
  element("td", {}, element("span", { class: "badge " + (!responses(r) && classes[r.outcome] || "bad") }, r.outcome + responses(r))),
  element("td", { class: "name" }, element("a", { href: "#/traces/" + encodeURIComponent(r.id) }, r.operation + " " + r.object)),
  element("td", { class: "break" }, r.namespace), element("td", { class: "break" }, r.user),
  element("td", { class: "right" }, String(r.calls), element("span", { class: "unit" }, " calls")), element("td", { class: "right" }, brief(r.took)),
  element("td", { class: "wide" }, shape("svg", { class: "bar", viewBox: "0 0 1000 10", preserveAspectRatio: "none", "aria-hidden": "true" }, shape("rect", { class: "accent", width: (1000 * r.took / slowest).toFixed(1), height: 10 }))));
const drawRows = (rows) => {
  if (!rows.length) return element("p", { class: "note" }, "No trace matches. A server keeps the traces of the latest writes that it handled.");
  const slowest = Math.max(1e-6, ...rows.map((r) => r.took));
  return element("div", { class: "scroll" }, element("table", { class: "stack" },
    element("thead", {}, element("tr", {}, ...heads.map((h) => element("th", { scope: "col", class: h === "Calls" || h === "Took" ? "right" : undefined }, h)))),
    element("tbody", {}, ...rows.map((r) => drawRow(r, slowest)))));
};

function fields(query) {
  return [["outcome", "outcome"], ["response", "response"], ["user", "user"], ["webhook", "webhook"], ["resource", "resource"], ["name", "name"]]
    .filter(([q]) => query.get(q)).map(([q, f]) => f + "=" + query.get(q).replace(/[\\,=]/g, "\\$&")).join(",");
}

async function list(room, query, signal) {
  document.title = "Requests - Gatehouse";
  const input = (name, text, size) => element("label", {}, text, element("br"), element("input", { name, value: query.get(name) || "", size, autocomplete: "off" }));
  const choice = element("select", { name: "outcome" }, ...outcomes.map((o) => element("option", { value: o, selected: o === (query.get("outcome") || "") }, o || "any")));
  const live = element("span", { class: "live", role: "status" }, "reading");
  const form = element("form", { class: "filters", onsubmit: (e) => { e.preventDefault(); apply(); } },
    element("label", {}, "Outcome", element("br"), choice), input("response", "Response", 8), input("namespace", "Namespace", 12), input("resource", "Resource", 12), input("user", "User", 14), input("webhook", "Webhook", 22),
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
  const own = (r) => /^(admissionexplanations\.gatehouse\.dev|selfsubjectreviews\.authentication\.k8s\.io|selfsubjectaccessreviews\.authorization\.k8s\.io)( |$)/.test(r.object) && !query.get("resource");
  let rows = [], shown = page, columns = null, due = 0;
  const row = (r) => {
    const cell = (name) => r.cells[columns.indexOf(name)];
    const meta = r.object?.metadata || {};
    return { id: cell("Name"), operation: cell("Operation"), object: cell("Object"), outcome: cell("Outcome"), response: cell("Response") || "", calls: cell("Calls"), took: inSeconds(cell("Total")), user: cell("User"), namespace: meta.namespace || "", at: meta.creationTimestamp || "" };
  };
  const learn = (t) => { if (t.columnDefinitions?.length) columns = t.columnDefinitions.map((c) => c.name); };
  function redraw() {
    due = 0;
    if (signal.aborted) return;
    // A server lists requests as they end.
    rows.sort((a, b) => a.at < b.at ? -1 : a.at > b.at ? 1 : 0);
    const id = document.activeElement?.closest("[data-id]")?.dataset.id;
    drawn.replaceChildren(drawRows(rows.slice(-shown).reverse()));
    // A row that has the focus keeps it.
    if (id) drawn.querySelector('[data-id="' + CSS.escape(id) + '"] a')?.focus({ preventScroll: true });
    more.hidden = rows.length <= shown;
    more.textContent = "Show more (" + shown + " of " + rows.length + ")";
  }
  more.addEventListener("click", () => { shown += 5 * page; redraw(); });

  const read = async () => {
    const t = await ask(path, { accept: table, signal });
    learn(t);
    rows = t.rows.map(row).filter((r) => !own(r));
    redraw();
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
          if (event.type === "ADDED") due ||= setTimeout(redraw, 50);
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
