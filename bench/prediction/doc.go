// Prediction asks whether admission does what `gatehouse explain` said, on kube-apiserver
// and on gatehouse.
//
// Each case is a world of package test/prediction: webhook configurations, stored objects,
// answers of webhooks and requests, all made from a seed. Both servers get the same ones.
// Each request is explained in every way there is, then made, and the reviews that the
// webhooks received are compared with each explanation:
//
//   - kubeconfig: the command reads the cluster as the user of the request;
//   - files: the command reads the registrations from files;
//   - API: a Gatehouse server explains by itself.
//
// The program prints what it saw and each difference. With any, it exits with 1.
package main
