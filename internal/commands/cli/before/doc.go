// Package before has the commands that predict admission: explain, check, lint, test, dev and snapshot show the
// outcome of requests before anything is written.
package before
