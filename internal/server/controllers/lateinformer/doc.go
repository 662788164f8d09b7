// Package lateinformer makes informers safe for controllers that are made while the server ends. An
// informer that has ended accepts no handler: it returns an error and no registration. Some of
// upstream's controllers ignore the error and use the registration, which panics. From the
// informers of this package they get a registration that never syncs.
package lateinformer
