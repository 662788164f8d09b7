// Package certificates has the certificates of files, and reads a file again when it changes. A
// file that is bad, or has become something that cannot be read, changes nothing: the
// certificates that were read before stay in use.
package certificates
