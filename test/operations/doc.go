// Package operations tests the operations pages of docs: the tests bring a server into the situation of a
// section, run the commands of that section unchanged, and check the result.
package operations
