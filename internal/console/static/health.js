// What is dangerous, failing, slow or not in force.
import { ask, draw, element } from "./api.js";
import { gather } from "./chain.js";

export async function show(room, parts, query, signal) {
  document.title = "Health - Gatehouse";
  const drawn = element("div"), status = element("p", { class: "live", role: "status" }, "reading");
  room.append(element("h1", {}, "Health"), status, drawn);
  const all = await gather(signal, (part, left) => { status.textContent = part.objects.length + " read, " + left + " to go"; });
  const servers = [];
  for (const [name, path] of [["This server is ready", "/readyz?verbose"], ["The controllers are run by", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?limit=50"]]) {
    try {
      const answer = await ask(path, { accept: path.startsWith("/apis") ? "application/json" : "text/plain", signal, raw: true });
      if (path.startsWith("/apis")) for (const l of (await answer.json()).items) servers.push(l.metadata.name + ": " + (l.spec.holderIdentity || "nobody"));
      else servers.push(name + ": " + (await answer.text()).trim().split("\n").pop());
    } catch (err) {
      if (signal.aborted) throw err;
      all.notes.push(name + ": " + (err.allowed ? err.message : "not allowed"));
    }
  }
  all.servers = servers;
  await draw("health", all, drawn, signal);
  status.remove();
}
