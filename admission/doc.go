// Package admission runs admission control for a Kubernetes-style API: webhooks, policies and
// initializers that users register while the server runs evaluate and change its writes.
//
// It is the entry point of the engine. A server that is built on k8s.io/apiserver makes an Engine,
// joins its plugins to a chain, and gives the chain to its request handlers:
//
//	engine, err := admission.New(admission.Options{Snapshots: refresher, Namespaces: namespaces})
//	...
//	names, err := admission.Selection{}.Names(admission.Recommended())
//	...
//	plugins, err := engine.Plugins(names, nil)
//	...
//	config.AdmissionControl = admission.Chain(plugins...)
//
// # One request
//
// A write goes through the chain twice: the mutating pass, which may change the object, and, after
// the server has validated the result, the validating pass. In a pass, each webhook plugin does the
// same three things:
//
//	registrations --compile--> Snapshot --plan--> Steps --run--> Trace
//
// It takes the current snapshot of registrations (package snapshot), plans which entries have a
// rule for the request (package plan), and runs the plan (package dispatch). Package dispatch calls
// webhooks through package call, in the formats of package review. The request's Trace (package
// trace) records the result; metrics, audit annotations, warnings and the log are derived from the
// Trace. A request without a matching rule ends with the plan and costs no allocation.
//
// Engine.Plan predicts the steps and the verdict of a chain for a request. Traced follows requests
// through both passes, so that each has one Trace.
//
// # The plugins
//
//   - NamespaceLifecycle refuses to create objects in namespaces that do not exist.
//   - Initializers gives new objects the initializers of InitializerConfigurations, and
//     controls later changes of the list. An object of a typed kind carries the list in an
//     annotation (package initializers).
//   - MutatingAdmissionWebhook runs the webhooks of MutatingWebhookConfigurations.
//   - GenericAdmissionWebhook runs the webhooks of ExternalAdmissionHookConfigurations
//     (v1alpha1), in the validating pass.
//   - ValidatingAdmissionWebhook runs the webhooks of ValidatingWebhookConfigurations.
//   - MutatingAdmissionPolicy and ValidatingAdmissionPolicy evaluate the policies of
//     these kinds (Engine.MutatingPolicies, Engine.ValidatingPolicies).
//
// A Selection represents the flags that select the plugins and their order. The server that builds
// the chain may add other plugins between them. A Configuration represents the file of
// --admission-control-config-file, which has the credentials for webhooks.
//
// # Concurrency and errors
//
// Everything is safe for concurrent use unless its comment says otherwise. The errors of plugins
// are API statuses (apierrors.APIStatus), ready to be sent to the client, and name the webhook.
package admission
