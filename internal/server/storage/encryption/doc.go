// Package encryption keeps values in etcd encrypted, as an EncryptionConfiguration of upstream
// says, by upstream's transformers. Everything that reads or writes objects in etcd goes through
// Transformers: the stores of resources, and the readers that read etcd themselves.
package encryption
