// Package mutants makes the changes of a registration that its tests should notice, one decision at
// a time: a clause of an expression, an operation of a rule, a requirement of a selector.
//
// Expressions are changed as syntax trees and written anew, so that each changed text is an
// expression again. Changes are left out where another change finds the same gap: && becomes no ||,
// since taking out each operand finds more, and a clause is not negated, since it is taken out.
package mutants
