// Agent does what docs/agent.md says next to a kube-apiserver and a kube-controller-manager, from nothing to who changed a
// pod: by the commands there, with the program of Helm. The API server sends events to one of two agents, and
// asks the other one for traces: the administrator and a user with a role in one namespace read them by gatehouse trace,
// blame, console and kubectl, and at the agent's own address. The agents
// find a certificate that expires and objects that break a policy: reports, events and metrics show them. It deletes a namespace without agents, and kills them while requests are
// made, and counts those that fail. At last it sends an agent events at a rate, and measures its memory and its
// CPU, and the CPU of kube-apiserver for creates with agents and without. It exits with 1 if something is not so, or if
// a request failed.
package main
