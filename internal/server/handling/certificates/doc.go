// Package certificates has the certificates of files, and reads a file again when it changes.
// When a file is bad or cannot be read any more, the certificates that were read before stay in
// use.
package certificates
