// Package admission judges the writes of a Kubernetes-style API by webhooks, policies and
// initializers that users register while the server runs.
//
// It is the front door of the engine. A server that is built on k8s.io/apiserver makes an
// Engine, joins its plugins to a chain, and gives the chain to its request handlers:
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
// A write goes through the chain twice: the mutating pass, which may change the
// object, and, when the server has checked the result, the validating pass. In a
// pass, each webhook plugin does the same three things:
//
//	registrations --compile--> Snapshot --plan--> Steps --run--> Trace
//
// It takes the snapshot of registrations that is in force (package snapshot), plans which
// entries have a rule for the request (package plan), and runs the plan (package dispatch).
// Package dispatch calls webhooks by package call, in the formats of package review. The
// request's Trace (package trace) records what happened; metrics, audit annotations, warnings
// and the log are read from the Trace. A request that no rule matches ends with the plan and
// costs no allocation.
//
// Engine.Plan predicts what a chain would do with a request. Traced follows requests through
// both passes, so that each has one Trace.
//
// # The plugins
//
//   - NamespaceLifecycle refuses to create objects in namespaces that do not exist.
//   - Initializers gives new objects the initializers of InitializerConfigurations, and
//     decides who may change them. An object of a typed kind carries the list in an
//     annotation (package initializers).
//   - MutatingAdmissionWebhook runs the hooks of MutatingWebhookConfigurations.
//   - GenericAdmissionWebhook runs those of ExternalAdmissionHookConfigurations
//     (v1alpha1), in the validating pass.
//   - ValidatingAdmissionWebhook runs those of ValidatingWebhookConfigurations.
//   - MutatingAdmissionPolicy and ValidatingAdmissionPolicy evaluate the policies of
//     these kinds (Engine.MutatingPolicies, Engine.ValidatingPolicies).
//
// A Selection reads the flags that say which plugins run, and in which order. The server
// that builds the chain may put other plugins between them. A Configuration reads the file
// of --admission-control-config-file, which has the credentials for webhooks.
//
// # Concurrency and errors
//
// Everything is safe for concurrent use unless its comment says otherwise. The
// errors of plugins are API statuses (apierrors.APIStatus), ready to be sent to
// the client, and name the webhook.
package admission
