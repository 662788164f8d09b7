// Differential sends the same requests to kube-apiserver and to gatehouse and
// prints where the answers differ: HTTP codes, warnings, bodies.
//
// Its requests come from four places. cases/kinds has an object of every
// built-in kind, with changes that make it invalid and updates to it; steps.go
// turns each into some fifty requests: create, read, list, update, the four
// patches, status, dry run, field validation, finalizers, deletion.
// cases/scripts.yaml has requests that fit no such pattern. cases/policies has admission
// policies with the requests that they judge. And cases/plugins has requests for each
// compiled-in admission plugin; a folder of it is a profile, which says how both servers
// run: plugins.go lists the profiles.
//
// With --webhooks, both servers are kube-apiservers: one has plugins compiled in, and the
// other one has them as webhooks of gatehouse webhook. webhooks.yaml lists what differs.
//
// Differences with a reason are listed in known.yaml, which bench/results/compatibility.md
// is written from; with any other the program exits with 1.
package main
