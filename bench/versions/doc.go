// Versions finds what emulated releases of Kubernetes differ in, and what emulation does not cover,
// by asking servers: Gatehouse as each release, and a real kube-apiserver of an older one.
package main
