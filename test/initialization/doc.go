// Package initialization tests initializers from end to end: a server as a
// process of its own, real clients, initializers in this process and in others,
// and crashes. Case names give the rule (docs/dev/rules) that they prove.
package initialization
