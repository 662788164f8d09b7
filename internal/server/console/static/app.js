// The console: which view is shown, and who looks.
import { ask, token, why, element, callout } from "./api.js";
import * as traces from "./traces.js";
import * as chain from "./chain.js";
import * as explain from "./explain.js";
import * as object from "./object.js";
import * as health from "./health.js";

const views = { traces, chain, explain, object, health };
const main = document.getElementById("main"), nav = document.getElementById("nav"), who = document.getElementById("who");
let ending = null;

// show shows the view that the address names: #/VIEW/PART/PART?FILTER=VALUE.
async function show() {
  if (!location.hash.startsWith("#/") && location.hash !== "") return;
  const [path, query] = location.hash.slice(2).split("?");
  const parts = path.split("/").map(decodeURIComponent);
  const view = views[parts[0]] || traces;
  ending?.abort();
  ending = new AbortController();
  const signal = ending.signal;
  for (const a of nav.children) {
    if (a.getAttribute("href") === "#/" + (views[parts[0]] ? parts[0] : "traces")) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  scrollTo(0, 0);
  const room = element("div");
  main.replaceChildren(room);
  try {
    await view.show(room, parts.slice(1).filter(Boolean), new URLSearchParams(query || ""), signal);
  } catch (err) {
    if (!signal.aborted) room.append(callout(why(err), "bad"));
  }
  // What had the focus is gone: it goes to the heading of what is shown now.
  const heading = room.querySelector("h1");
  if (!signal.aborted && heading && document.activeElement === document.body) {
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
}

// login asks who the viewer is. Without a token that is who has a client certificate, or whose
// kubeconfig the proxy has.
async function login() {
  try {
    const review = await ask("/apis/authentication.k8s.io/v1/selfsubjectreviews", { method: "POST", body: { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" } });
    const name = review.status.userInfo.username;
    if (name === "system:anonymous") return form("");
    nav.hidden = false;
    // A link of gatehouse console works once: nobody could log in again.
    who.replaceChildren(name, token.get() && !await behindCommand() ? element("button", { class: "quiet", type: "button", onclick: () => { token.set(""); location.reload(); } }, "log out") : "");
    addEventListener("hashchange", show);
    // A browser keeps a page that was left, and holds up the next one for 5 seconds while a request of
    // the page that was left is open.
    addEventListener("pagehide", () => ending?.abort());
    addEventListener("pageshow", (e) => { if (e.persisted) show(); });
    return show();
  } catch (err) {
    form(token.get() || err.allowed ? why(err) : "");
  }
}

// behindCommand reports whether gatehouse console serves the page, and not a server.
let command = null;
const behindCommand = () => command ??= fetch("/console/session", { method: "HEAD" }).then((a) => a.ok, () => false);

async function form(problem) {
  token.set("");
  nav.hidden = true;
  if (await behindCommand()) {
    main.replaceChildren(element("h1", {}, "This link was used"), problem ? callout(problem, "bad") : null, element("p", {}, "A link of gatehouse console works once, in one tab. End the command and start gatehouse console again: it prints another link."));
    return;
  }
  const field = element("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  main.replaceChildren(element("form", { class: "login", onsubmit: (e) => { e.preventDefault(); token.set(field.value.trim()); login(); } },
    element("h1", {}, "Who are you?"),
    problem ? callout(problem, "bad") : null,
    element("p", {}, "The console shows what you may read by the API, and nothing else. It keeps your token until the tab is closed."),
    element("label", { for: "token" }, "Bearer token"), field,
    element("div", { class: "row" }, element("button", { class: "primary" }, "Log in")),
    element("p", { class: "note" }, "gatehouse kubectl create token NAME makes one for a service account. gatehouse console opens this page with your kubeconfig, without a token.")));
  field.focus();
}

// A one-time link has a token, which is exchanged and does not stay in the address.
const given = /^#token=([^&]+)/.exec(location.hash);
if (given) {
  history.replaceState(null, "", location.pathname + "#/traces");
  try {
    token.set((await ask("/console/session", { method: "POST", body: { token: decodeURIComponent(given[1]) } })).session);
  } catch (err) {
    token.set(err.code === 404 ? decodeURIComponent(given[1]) : "");
  }
}
login();
