// Package params reads the params of admission policies from the resources that the server serves
// itself.
//
// A read is consistent: it shows every write that any server acknowledged before the read began.
// All concurrent requests for the same object share one read. In bounded mode a read serves
// requests for half a second; in strict mode a read serves requests that came before the read began
// (S20.8). A request waits for a read at most until its own time is over.
package params
