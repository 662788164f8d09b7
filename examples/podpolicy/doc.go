// Podpolicy is an example of admission webhooks, written with controller-runtime
// as its users write them. One process holds two webhooks for pods:
//
//   - inject.podpolicy.gatehouse.dev, mutating, adds a label and a sidecar
//     container to new pods, unless the pod has the annotation
//     podpolicy.gatehouse.dev/inject: "false";
//   - images.podpolicy.gatehouse.dev, validating, rejects pods with an image
//     from outside the allowed registry.
//
// The program makes a certificate authority and a serving certificate, serves,
// and registers itself at the API server that the kubeconfig names. The README
// in this folder says what to type.
package main
