// Package certificates loads certificates from files, and reads a file again when it changes. When
// a file is bad or cannot be read any more, the previous certificates stay in use.
package certificates
