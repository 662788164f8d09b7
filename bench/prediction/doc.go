// Prediction verifies the predictions of `gatehouse explain` on kube-apiserver and on gatehouse.
//
// Each case is a test environment of package test/prediction, generated from a seed: webhook configurations, stored
// objects, answers of webhooks and requests. Both servers get the same ones. The program explains each request in all
// possible ways and then sends it. It compares the reviews that the webhooks received with each explanation:
//
//   - kubeconfig: the command reads the cluster as the user of the request;
//   - files: the command reads the webhook configurations from files;
//   - API: a Gatehouse server explains the request itself.
//
// The program prints a summary and each difference. If there is any difference, it exits with 1.
package main
