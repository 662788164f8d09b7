// Package recipe reads the descriptions of policy engines: how an engine is started, which policies it has, how it
// reports that it applies a policy, and how its denials name policies. Two recipes are built in; a file can have another
// one.
package recipe
