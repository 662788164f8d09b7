// Package aggregation tests the servers that a server reaches through services: aggregated API servers, the
// unmodified sample server of Kubernetes and servers that fail in many ways (S22), webhooks, conversion
// webhooks, and the proxies of pods and services. No program on this machine has the addresses of pods;
// servers that need them run in the test process with a custom network.
package aggregation
