// Versions finds the differences between the emulated releases of Kubernetes, and the limits of emulation. It
// compares running servers: Gatehouse as each release, and a real kube-apiserver of an older release.
package main
