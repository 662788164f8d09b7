// Package series drops the series of metrics whose labels name what is gone.
//
// The libraries that the server is built on keep a series for each kind, webhook and policy that there
// ever was, until the process ends. Their metrics cannot be named from outside, but the registry says
// which there are, and hands out a metric to who registers another one that is the same.
package series
