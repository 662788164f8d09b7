// Podpolicy is an example of admission webhooks on controller-runtime, in its usual
// style. One process has two webhooks for pods:
//
//   - inject.podpolicy.gatehouse.dev, mutating, adds a label and a sidecar
//     container to new pods, unless the pod has the annotation
//     podpolicy.gatehouse.dev/inject: "false";
//   - images.podpolicy.gatehouse.dev, validating, rejects pods with an image
//     from outside the allowed registry.
//
// The program generates a certificate authority and a serving certificate, serves,
// and writes its webhook configurations to the API server of the kubeconfig. The
// README in this folder has the commands.
package main
