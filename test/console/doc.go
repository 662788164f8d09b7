// Package console tests the web console in a real browser.
package console
