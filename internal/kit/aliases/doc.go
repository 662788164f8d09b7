// Package aliases bounds the size of YAML texts after their aliases are expanded.
//
// An alias of two bytes can represent a value of any size, and sigs.k8s.io/yaml writes each one out when it
// converts YAML to JSON: 25 KB of aliases of one long text take 400 MiB, and 3 MB take more than any machine
// has.
package aliases
