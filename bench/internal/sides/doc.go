// Package sides puts upstream's webhook plugins and Gatehouse's engine behind the
// same interface, in this process, with the same registrations and the same
// surroundings, so that they can be compared.
package sides
