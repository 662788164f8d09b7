// Differential sends the same requests to kube-apiserver and to gatehouse and prints the differences between the
// answers: HTTP codes, warnings, bodies.
//
// The requests have four sources. cases/kinds contains an object of every built-in kind, with changes that make it
// invalid and with updates; steps.go turns each into some fifty requests: create, read, list, update, the four
// patches, status, dry run, field validation, finalizers, deletion. cases/scripts.yaml contains requests that do not
// fit this pattern. cases/policies contains admission policies and requests that are evaluated against them.
// cases/plugins contains requests for each built-in admission plugin. A folder of cases/plugins is a profile with its
// own server configuration; plugins.go lists the profiles.
//
// With --webhooks, both servers are kube-apiservers: the first runs its built-in admission plugins, the second calls
// the same plugins as webhooks of gatehouse webhook. webhooks.yaml lists the known differences.
//
// With --releases, it compares real kube-apiservers of successive releases with each other, and Gatehouse as these
// releases with each other; releases.go groups the differences. A further source of requests are the fields of all kinds
// and the CEL functions.
//
// known.yaml lists the known differences and their reasons; bench/results/compatibility.md is generated from it. If
// there is any other difference, the program exits with code 1.
package main
