// Package agreement compares Gatehouse's engine with upstream's webhook plugins on random webhook configurations and
// requests. It has tests only.
//
// A seed generates a test environment, called a world: webhook configurations of v1 and v1beta1 with every field, the
// answer of each webhook, namespaces, and some requests. Both sides evaluate the same requests with the same
// configurations. Each side has its own webhook servers. The tests compare the verdict, the resulting object, the
// reviews that the webhooks received, the audit annotations and the warnings. If the rules of Gatehouse differ from
// upstream on purpose, the difference is an entry in a list, with the number of the rule: see translations and
// decided.
//
// A world is entirely in memory, connections included, and uses a fake clock (testing/synctest). A webhook that hangs
// for 30 s costs no time, and a slow machine does not change the outcome.
package agreement
