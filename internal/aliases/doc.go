// Package aliases bounds what the aliases of a text in YAML stand for.
//
// An alias of two bytes stands for a value of any size, and the usual library writes each one out when it makes
// JSON of YAML: 25 KB of aliases of one long text take 400 MiB, and 3 MB more than any machine has.
package aliases
