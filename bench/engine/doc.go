// Package engine has the benchmarks of admission itself: upstream's webhook
// plugins and Gatehouse's engine, each in this process behind the same interface,
// with the same registrations and the same objects, calling the same webhook
// process. The clock measures the caller.
//
// The benchmarks are named by what varies; side=upstream and side=gatehouse are
// to be compared. Besides time and allocations they report the CPU time of this
// process.
package engine
