// Package console tests the page in the browser, in a real one.
package console
