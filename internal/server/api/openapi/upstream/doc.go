// Package upstream has the OpenAPI definitions that Kubernetes generates for its Go types, as data:
// upstream's generated functions, one for each type, would be 4 MB of the program.
//
// The data is definitions.bin. The test of this package compares it with the results of the
// generated functions, and writes it:
//
//	go test ./internal/server/api/openapi/upstream -update
//
// # Format
//
// A number is unsigned, in groups of seven bits, the lowest first; the highest bit of a byte says
// that another group follows. There are two tables of texts, names and descriptions; everywhere
// else a text is its number in one of them. The parts of the file:
//
//   - for each table, how many texts it has, and the length of each;
//   - the names;
//   - the descriptions, compressed by flate, after their length;
//   - the definitions, after their number: of each the name, the length of the rest, the
//     schema, and the names of the definitions that it refers to.
//
// A schema begins with a number whose bits mark the fields that follow, in the order of the
// constants of this package. A list or a map begins with its length.
//
// Decoded names are parts of the program's own text: a caller that keeps names keeps no
// descriptions in memory.
package upstream
