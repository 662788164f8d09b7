// Package encryption encrypts values in etcd as configured by an EncryptionConfiguration of
// upstream, with upstream's transformers. All code that reads or writes objects in etcd uses
// Transformers: the stores of resources, and the readers that read etcd themselves.
package encryption
