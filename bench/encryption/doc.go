// Package encryption tests that kube-apiserver and Gatehouse can read each other's encrypted data, on one etcd with
// one EncryptionConfiguration.
package encryption
