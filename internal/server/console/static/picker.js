// Fields that name an object: kinds and names are offered as far as the viewer may list them.
import { ask, element } from "./api.js";

const most = 200;
let kinds = null;

// allKinds are the kinds that the server has, as [kind, version of the API].
async function allKinds() {
  const list = [];
  for (const [path, name] of [["/api", ""], ["/apis", ""]]) {
    const groups = await ask(path, { accept: "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json" });
    for (const group of groups.items || []) {
      const version = group.versions?.[0];
      for (const r of version?.resources || []) list.push([r.responseKind.kind, [group.metadata.name || name, version.version].filter(Boolean).join("/")]);
    }
  }
  return list;
}

// picker makes the fields. named names the object.
export function picker(value) {
  const id = (name) => "pick-" + name;
  const field = (name, text, first, size) => element("input", { id: id(name), name, value: value(name) ?? first, size, autocomplete: "off", spellcheck: "false", list: id(name + "s") });
  const inputs = { kind: field("kind", "Kind", "Pod", 18), version: field("version", "API version", "v1", 12), namespace: field("namespace", "Namespace", "default", 14), name: field("name", "Name", "", 22) };
  const texts = { kind: "Kind", version: "API version", namespace: "Namespace", name: "Name" };
  const lists = Object.fromEntries(Object.keys(inputs).map((name) => [name, element("datalist", { id: id(name + "s") })]));
  const options = (name, values) => lists[name].replaceChildren(...values.map(([v, label]) => element("option", { value: v, label: label || v })));
  // What cannot be listed is typed.
  const offer = (name, work) => inputs[name].addEventListener("focus", async () => { try { options(name, await work()); } catch { options(name, []); } });
  const names = async (path) => (await ask(path + "?limit=" + most, { accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1" })).items.map((o) => [o.metadata.name]);
  offer("kind", async () => kinds ??= await allKinds());
  offer("version", async () => (kinds ??= await allKinds()).filter(([kind]) => kind === inputs.kind.value).map(([, version]) => [version]));
  offer("namespace", () => names("/api/v1/namespaces"));
  offer("name", async () => {
    const version = inputs.version.value, base = (version.includes("/") ? "/apis/" : "/api/") + version.split("/").map(encodeURIComponent).join("/");
    const r = (await ask(base)).resources.find((r) => (r.kind === inputs.kind.value || r.name === inputs.kind.value) && !r.name.includes("/"));
    return names(base + (r.namespaced ? "/namespaces/" + encodeURIComponent(inputs.namespace.value || "default") : "") + "/" + r.name);
  });
  // A kind that one group has says which version is meant.
  inputs.kind.addEventListener("change", () => {
    const of = (kinds || []).filter(([kind]) => kind === inputs.kind.value);
    if (of.length && !of.some(([, version]) => version === inputs.version.value)) inputs.version.value = of[0][1];
  });
  return {
    elements: Object.entries(inputs).map(([name, e]) => element("label", {}, texts[name], element("br"), e, lists[name])),
    named: () => Object.fromEntries(Object.entries(inputs).map(([name, e]) => [name, e.value])),
  };
}
