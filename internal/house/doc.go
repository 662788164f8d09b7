// Package house has the rules of the tree, as tests: which package imports which, what documents contain, which
// wording is used, that rules have tests, and that public names are wanted. It has no code.
package house
