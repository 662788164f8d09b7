// Package house has the rules of the tree, as tests: which package imports which, what a document
// may say, which words are used, that rules are proven and public names are wanted. It has no code.
package house
