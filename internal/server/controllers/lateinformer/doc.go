// Package lateinformer makes informers safe for controllers that are made while the server
// ends. An informer that has ended takes no handler: it returns an error and no
// registration. Some of upstream's controllers leave the error out and use the
// registration, which is a panic. Here, they get one that never has synced.
package lateinformer
