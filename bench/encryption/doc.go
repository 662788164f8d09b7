// Package encryption tests that kube-apiserver and Gatehouse read what the other one encrypted, on
// one etcd with one EncryptionConfiguration.
package encryption
