// Package deadline keeps a small part of each request's time for writing the answer.
package deadline
