// Agent runs gatehouse agent behind a kube-apiserver, whose audit webhook sends it events, and which passes on
// requests for traces: the administrator and a user with a role in one namespace read them by gatehouse trace,
// gatehouse blame and kubectl. Then it kills the agent while requests are made, and counts those that fail. At
// last it sends the agent events at a rate, and measures its memory and its CPU. It exits with 1 if something is
// not so, or if a request failed.
package main
