// Package agreement compares Gatehouse's engine with upstream's webhook plugins on
// random registrations and requests. It has tests only.
//
// A seed makes a world: webhook configurations of v1 and v1beta1 with every field,
// what each webhook answers, namespaces, and some requests. Both sides judge the
// same requests by the same registrations, each with webhook servers of its own.
// Compared are the verdict, the object that comes out, the reviews that the
// webhooks received, the audit annotations and the warnings. Where the rules of
// Gatehouse differ from upstream on purpose, the difference is an entry in a list,
// with the number of the rule: see translations and decided.
//
// Everything of a world, connections included, is in memory and runs by a fake
// clock (testing/synctest). A webhook that hangs for 30 s costs no time, and a slow
// machine changes no outcome.
package agreement
