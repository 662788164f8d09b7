// Package metric declares the metrics of Gatehouse, with the prefix gatehouse_ and the stability ALPHA.
package metric
