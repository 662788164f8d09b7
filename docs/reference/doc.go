// Package reference keeps the pages of this folder true: each page has one source in the
// code, and its test fails when the page says something else. With -update the test writes
// the page anew. A page whose source is in a large package has its test there.
package reference
