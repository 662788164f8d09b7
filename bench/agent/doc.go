// Agent follows docs/agent.md next to a kube-apiserver and a kube-controller-manager, from an empty cluster to the
// author of a change of a pod. It runs the commands of the page, with the Helm program. The API server sends events
// to one of two agents, and requests traces from the other one. The administrator and a user with a role in one
// namespace read the traces with gatehouse trace, blame, console and kubectl, and at the agents' own addresses. The
// agents find an expiring certificate and objects that violate a policy, and show them in reports, events and
// metrics. The program deletes a namespace while no agents run, and kills the agents during requests and counts the
// failed requests. Finally it sends events to an agent at a fixed rate, and measures the memory and CPU of the agent,
// and the CPU of kube-apiserver for creates with and without agents. It exits with 1 if anything differs from the
// expectation, or if a request failed.
package main
