// Package engine contains the benchmarks of admission: upstream's webhook plugins and Gatehouse's engine, each in
// this process behind the same interface, with the same webhook configurations and the same objects, calling the same
// webhook process. The clock measures the caller.
//
// The names of the benchmarks contain the varied parameters; compare side=upstream with side=gatehouse. In addition
// to time and allocations, the benchmarks report the CPU time of this process.
package engine
