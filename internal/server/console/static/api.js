// The ordinary API, with the credentials of whoever looks. They are kept for as long as the tab is open.
const key = "gatehouse.token";
export const token = { get: () => sessionStorage.getItem(key) || "", set: (t) => t ? sessionStorage.setItem(key, t) : sessionStorage.removeItem(key) };

// Refused is an answer that is not the wanted one.
export class Refused extends Error {
  constructor(code, message) { super(message); this.code = code; }
  get allowed() { return this.code !== 401 && this.code !== 403; }
}

// ask sends a request and returns the answer, which is read as JSON unless it is to be raw.
export async function ask(path, { method = "GET", body, accept = "application/json", signal, raw = false } = {}) {
  const headers = { Accept: accept };
  if (token.get()) headers.Authorization = "Bearer " + token.get();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal, credentials: "same-origin", cache: "no-store", redirect: "error" });
  } catch (err) {
    // A browser says no more than that it failed.
    throw signal?.aborted ? err : new Refused(0, "The server does not answer. The page continues when it does: open the view again.");
  }
  if (!answer.ok) {
    const text = await answer.text();
    let message = text.trim() || answer.statusText;
    try { message = JSON.parse(text).message || message; } catch { /* it is no Status */ }
    throw new Refused(answer.status, message);
  }
  return raw ? answer : answer.json();
}

// why says of an error what the viewer may do about it.
export function why(err) {
  if (err.code === 401) return "Not allowed: the token is not accepted.";
  if (err.code === 403) return "Not allowed: " + err.message;
  if (err.code === 404) return "Not there: " + err.message;
  return err.message;
}

// view asks the server for a view. It reads the API with the credentials of this request.
export const view = (name, wanted, signal) => ask("/console/view/" + name, { method: "POST", body: wanted, signal });

// draw puts a drawing into an element. This is the only place where HTML comes into the page: what
// package view made, which escapes what others wrote.
const trusted = globalThis.trustedTypes ? trustedTypes.createPolicy("gatehouse", { createHTML: (s) => s }) : { createHTML: (s) => s };
export async function draw(name, wanted, into, signal) {
  const made = await view(name, wanted, signal);
  into.innerHTML = trusted.createHTML(made.html);
  into.prepend(...(made.notes || []).map((note) => callout(note)));
  return made;
}

// element makes an element. What is not a node is text.
export function element(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) {
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (v === true) e.setAttribute(k, "");
    else if (v !== false && v !== undefined && v !== null) e.setAttribute(k, v);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}
export const callout = (text, level = "warn") => element("div", { class: "callout " + level, role: "status" }, text);

// lines calls a function with each line of a stream of JSON, until it ends.
export async function lines(answer, each) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) each(JSON.parse(part));
  }
}
