// Package sides runs upstream's webhook plugins and Gatehouse's engine in this process, behind the same interface,
// with the same configurations and the same environment, so that they can be compared.
package sides
