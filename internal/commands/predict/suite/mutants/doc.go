// Package mutants makes mutants of a registration that its tests should kill, each with one changed decision: a clause
// of an expression, an operation of a rule, a requirement of a selector.
//
// Expressions are changed as syntax trees and formatted again, so that each changed text is an expression. A change is
// skipped if another change tests the same: && is not changed to ||, because removing each operand finds more, and a
// clause is not negated, because it is removed.
package mutants
