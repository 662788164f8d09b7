// Package engine reads what servers say in the types of the engine: records of traces and plans. A test program that
// imports it links the engine with CEL, a third more than package harness.
package engine
