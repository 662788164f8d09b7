// What admission would do with a request, and what it would do if something else were registered.
import { picker } from "./picker.js";
import { view, draw, element, callout, why } from "./api.js";

const example = `apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: default
spec:
  containers:
  - name: web
    image: nginx
`;

export async function show(room, parts, query, signal) {
  document.title = "Explain - Gatehouse";
  const saved = JSON.parse(sessionStorage.getItem("gatehouse.explain") || "{}");
  const area = (id, text, value, placeholder) => [element("label", { for: id }, text), element("textarea", { id, spellcheck: "false", placeholder }, value)];
  const operation = element("select", { id: "operation" }, ...["CREATE", "UPDATE", "DELETE"].map((o) => element("option", { selected: o === saved.operation }, o)));
  const user = element("input", { id: "as", size: 18, value: saved.user || "", placeholder: "you", autocomplete: "off" });
  const groups = element("input", { id: "groups", size: 18, value: saved.groups || "", placeholder: "group, group", autocomplete: "off" });
  const all = element("input", { id: "all", type: "checkbox", checked: saved.all });
  const file = element("input", { id: "file", type: "file", accept: ".yaml,.yml,.json" });
  const manifest = area("manifest", "Manifest", saved.manifest ?? example), policy = area("policy", "What if this were registered, too: policies and bindings", saved.policy || "", "nothing");
  const answer = element("div", { "aria-live": "polite" });
  const pick = picker(() => null);
  const fetched = element("span", { class: "note", role: "status" });
  // An object that exists is explained as an update of it.
  const get = element("button", { type: "button", id: "get", onclick: async () => {
    fetched.textContent = "";
    try {
      manifest[1].value = (await view("manifest", pick.named(), signal)).text;
      operation.value = "UPDATE";
      fetched.textContent = "The manifest is the object as it is stored. Change it, and see what an update would go through.";
    } catch (err) {
      if (!signal.aborted) fetched.textContent = why(err);
    }
  } }, "Get");
  file.addEventListener("change", async () => { if (file.files[0]) manifest[1].value = await file.files[0].text(); });
  room.append(element("h1", {}, "Explain a request"), element("form", { onsubmit: (e) => { e.preventDefault(); run(); } },
    element("details", { class: "fold" }, element("summary", {}, "Explain an object that exists"), element("div", { class: "row" }, ...pick.elements, get), fetched),
    element("div", { class: "beside" }, element("div", {}, ...manifest), element("div", {}, ...policy)),
    element("div", { class: "row" },
      element("label", {}, "Operation", element("br"), operation), element("label", {}, "As user", element("br"), user), element("label", {}, "With groups", element("br"), groups),
      element("label", {}, "Upload", element("br"), file), element("label", { class: "tick" }, all, " also what does not apply"), element("button", { class: "primary", id: "run" }, "Explain"))), answer);

  async function run() {
    sessionStorage.setItem("gatehouse.explain", JSON.stringify({ manifest: manifest[1].value, policy: policy[1].value, operation: operation.value, user: user.value, groups: groups.value, all: all.checked }));
    const drawn = element("div");
    answer.replaceChildren(drawn);
    const who = user.value.trim() ? { user: user.value.trim(), groups: groups.value.split(",").map((g) => g.trim()).filter(Boolean) } : {};
    try {
      await draw("explain", { manifest: manifest[1].value, policy: policy[1].value, operation: operation.value, all: all.checked, ...who }, drawn, signal);
    } catch (err) {
      if (!signal.aborted) drawn.append(callout(why(err), "bad"));
    }
  }
  if (query.get("run")) run();
}
