// What judges requests: the plugins of both passes, and what is registered.
import { ask, draw, element, callout, why } from "./api.js";

const group = "/apis/admissionregistration.k8s.io/v1";
const old = "/apis/admissionregistration.k8s.io/v1alpha1";
export const kinds = [
  ["MutatingWebhookConfiguration", group + "/mutatingwebhookconfigurations"], ["ValidatingWebhookConfiguration", group + "/validatingwebhookconfigurations"],
  ["MutatingAdmissionPolicy", group + "/mutatingadmissionpolicies"], ["MutatingAdmissionPolicyBinding", group + "/mutatingadmissionpolicybindings"],
  ["ValidatingAdmissionPolicy", group + "/validatingadmissionpolicies"], ["ValidatingAdmissionPolicyBinding", group + "/validatingadmissionpolicybindings"],
  ["InitializerConfiguration", old + "/initializerconfigurations"], ["ExternalAdmissionHookConfiguration", old + "/externaladmissionhookconfigurations"],
];
const metrics = ["apiserver_admission_webhook_admission_duration_seconds", "gatehouse_admission_policy_evaluations_total", "apiserver_storage_size_bytes", "gatehouse_storage_free_bytes"];
const atOnce = 500, most = 300;
// The calls of a window are those between two readings of metrics, at most so long apart.
const every = 10e3, longest = 300e3;
const readings = [];

// readMetrics reads the metrics that the page shows, and those with which the window began.
async function readMetrics(signal) {
  const text = await ask("/metrics", { accept: "text/plain", signal, raw: true }).then((a) => a.text());
  const now = performance.now(), wanted = text.split("\n").filter((l) => metrics.some((m) => l.includes(m))).join("\n") + "\n";
  while (readings.length && now - readings[0].at > longest) readings.shift();
  const first = readings[0];
  readings.push({ at: now, text: wanted });
  return { metrics: wanted, before: first?.text || "", seconds: first ? (now - first.at) / 1000 : 0 };
}

// count keeps the numbers of calls on the page up to date.
async function count(drawn, signal) {
  while (!signal.aborted) {
    await new Promise((r) => setTimeout(r, every));
    if (signal.aborted || document.hidden) continue;
    try {
      const texts = await ask("/console/draw/calls", { method: "POST", body: await readMetrics(signal), signal });
      for (const e of drawn.querySelectorAll("[data-calls]")) if (texts[e.dataset.calls]) e.textContent = texts[e.dataset.calls];
    } catch { /* it is tried again */ }
  }
}

// gather reads all that the viewer may read. progress is called when more is there.
export async function gather(signal, progress) {
  const all = { objects: [], totals: {}, hidden: {}, states: null, metrics: "", notes: [] };
  const optional = (what, promise) => promise.catch((err) => {
    if (signal.aborted) throw err;
    if (err.code === 403) all.notes.push("Not allowed: " + what + ".");
    else if (err.code === 404) all.notes.push("This needs Gatehouse: " + what + ".");
    else all.notes.push(what + ": " + why(err));
    return null;
  });
  const side = Promise.all([
    optional("the states of registrations", ask("/apis/gatehouse.dev/v1alpha1/registrationstates", { signal })).then((l) => { all.states = l?.items || null; }),
    optional("the metrics of the server", readMetrics(signal)).then((read) => Object.assign(all, read)),
    optional("the labels of namespaces", ask("/api/v1/namespaces?limit=5000", { signal })).then((l) => {
      if (l) all.namespaces = Object.fromEntries(l.items.map((n) => [n.metadata.name, n.metadata.labels || {}]));
    }),
    optional("the plugins, by an explanation", ask("/apis/gatehouse.dev/v1alpha1/admissionexplanations", { method: "POST", signal, body: {
      apiVersion: "gatehouse.dev/v1alpha1", kind: "AdmissionExplanation", spec: { operation: "CREATE", resource: { group: "", version: "v1", resource: "pods" }, namespace: "default",
        object: { apiVersion: "v1", kind: "Pod", metadata: { name: "any" }, spec: { containers: [{ name: "any", image: "any" }] } } } } })).then((e) => { all.plan = e?.status.plan; }),
  ]);
  const listed = Promise.all(kinds.map(async ([kind, path]) => {
    let next = "";
    try {
      do {
        const l = await ask(path + "?limit=" + atOnce + (next ? "&continue=" + encodeURIComponent(next) : ""), { signal });
        const [version] = [l.apiVersion];
        for (const o of l.items) all.objects.push({ ...o, apiVersion: version, kind, metadata: { ...o.metadata, managedFields: undefined } });
        all.totals[kind] = (all.totals[kind] || 0) + l.items.length + 0;
        next = l.metadata.continue || "";
        if (next) progress?.(all, l.metadata.remainingItemCount || 0);
      } while (next);
    } catch (err) {
      if (signal.aborted) throw err;
      if (err.code !== 404) all.hidden[kind] = err.allowed ? why(err) : "not allowed";
    }
  }));
  await Promise.all([side, listed]);
  return all;
}

// some is what is sent to be drawn: what a filter leaves, and not more than a page holds.
export function some(all, wanted) {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  const counts = {}, totals = {};
  const objects = all.objects.filter((o) => {
    const text = (o.kind + " " + o.metadata.name + " " + (o.webhooks || []).map((w) => w.name).join(" ")).toLowerCase();
    if (!o.kind.endsWith("Binding") && !words.every((w) => text.includes(w))) return false;
    // What counts is what is drawn: each webhook of a configuration.
    const entries = o.kind.endsWith("Configuration") ? (o.webhooks || o.initializers || o.externalAdmissionHooks || []).length : 1, before = counts[o.kind] || 0;
    totals[o.kind] = (totals[o.kind] || 0) + entries;
    if (before > 0 && before + entries > most) return false;
    counts[o.kind] = before + entries;
    return true;
  });
  const names = new Set(objects.map((o) => o.metadata.name));
  return { ...all, objects, totals, states: all.states && all.states.filter((s) => names.has(s.registration.name)) };
}

export async function show(room, parts, query, signal) {
  document.title = "Chain - Gatehouse";
  const field = element("input", { type: "search", size: 32, value: parts[1] || query.get("q") || "", placeholder: "kind or name" });
  const drawn = element("div"), status = element("span", { class: "live", role: "status" }, "reading");
  room.append(element("h1", {}, "What judges requests"), element("form", { class: "filters", onsubmit: (e) => e.preventDefault() }, element("label", {}, "Filter", element("br"), field), status), drawn);
  let all = null, timer = 0;
  const paint = async () => {
    try {
      await draw("chain", some(all, field.value), drawn, signal);
    } catch (err) {
      // Another view is shown.
      if (signal.aborted) return;
      throw err;
    }
    if (!parts[1]) return;
    for (const e of drawn.querySelectorAll("details.entry")) if (e.dataset.entry === parts[0] + "/" + parts[1]) { e.open = true; e.classList.add("wanted"); }
    drawn.querySelector(".wanted")?.scrollIntoView({ block: "center" });
  };
  field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => all && paint(), 120); });
  let early = false;
  all = await gather(signal, (part, left) => {
    status.textContent = part.objects.length + " read, " + left + " to go";
    if (!early) { early = true; all = part; paint(); }
  });
  status.textContent = all.objects.length + " registrations";
  status.classList.add("on");
  await paint();
  if (all.metrics) count(drawn, signal);
  if (all.objects.length === 0 && Object.keys(all.hidden).length === 0) drawn.prepend(callout("Nothing is registered: the plugins that are compiled in judge alone.", ""));
}
