// What is dangerous, failing, slow or not in force.
import { ask, draw, element } from "./api.js";
import { gather } from "./chain.js";

export async function show(room, parts, query, signal) {
  document.title = "Health - Gatehouse";
  const drawn = element("div"), status = element("p", { class: "live", role: "status" }, "reading");
  room.append(element("h1", {}, "Health"), status, drawn);
  const all = await gather(signal, (part, left) => { status.textContent = part.objects.length + " read, " + left + " to go"; });
  const servers = [];
  const part = async (name, work) => {
    try {
      await work();
    } catch (err) {
      if (signal.aborted) throw err;
      all.notes.push((err.allowed === false ? "Not allowed: " : "") + name + (err.allowed === false ? "." : ": " + err.message));
    }
  };
  await part("whether the server is ready", async () => {
    const text = await ask("/readyz?verbose", { accept: "text/plain", signal, raw: true }).then((a) => a.text(), (err) => { if (err.code < 500) throw err; return err.message; });
    const bad = text.split("\n").filter((l) => l.startsWith("[-]"));
    servers.push("This server is " + (bad.length ? "not ready: " + bad.join(" ") : "ready."));
  });
  await part("who runs the controllers", async () => {
    const leases = await ask("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?limit=500", { signal });
    const leaders = leases.items.filter((l) => l.spec.holderIdentity && !l.metadata.labels?.["apiserver.kubernetes.io/identity"]);
    for (const l of leaders) servers.push(l.metadata.name + " runs on " + l.spec.holderIdentity + (l.spec.renewTime ? ", renewed at " + l.spec.renewTime : "") + ".");
    if (!leaders.length) servers.push("No Lease in kube-system names a leader of controllers. A server with an embedded etcd is alone and runs them itself.");
  });
  all.servers = servers;
  await draw("health", all, drawn, signal);
  status.remove();
}
