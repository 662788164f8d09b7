package controllers

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
)

// row is a controller: a row of the table.
type row struct {
	// name is that of kube-controller-manager 1.37; aliases are older ones.
	name    string
	aliases []string
	// off controllers do not run by default.
	off bool
	// account is the ServiceAccount in kube-system as which the controller acts.
	account string
	// wakes are the resources of which one must have an object before the controller
	// starts; empty starts it with the server.
	wakes []schema.GroupResource
	// make makes the controller. It returns what runs it until its context ends, nil when
	// there is nothing to run.
	make func(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error)
}

var (
	policies     = schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}
	claims       = schema.GroupResource{Resource: "persistentvolumeclaims"}
	daemonSets   = schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	deployments  = schema.GroupResource{Group: "apps", Resource: "deployments"}
	jobs         = schema.GroupResource{Group: "batch", Resource: "jobs"}
	nodes        = schema.GroupResource{Resource: "nodes"}
	pods         = schema.GroupResource{Resource: "pods"}
	quotas       = schema.GroupResource{Resource: "resourcequotas"}
	secrets      = schema.GroupResource{Resource: "secrets"}
	statefulSets = schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	requests     = schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}
	volumes      = schema.GroupResource{Resource: "persistentvolumes"}
)

// table has every controller, those first that others rely on. docs/controllers.md says
// what each does.
var table = []row{
	{name: "serviceaccount-controller", aliases: []string{"serviceaccount"}, account: "service-account-controller", make: serviceAccounts},
	{name: "root-ca-certificate-publisher-controller", aliases: []string{"root-ca-cert-publisher"}, account: "root-ca-cert-publisher", make: rootCertificate},
	{name: "namespace-controller", aliases: []string{"namespace"}, account: "namespace-controller", make: emptyNamespaces},
	{name: "clusterrole-aggregation-controller", aliases: []string{"clusterrole-aggregation"}, account: "clusterrole-aggregation-controller", make: aggregateRoles},
	{name: "validatingadmissionpolicy-status-controller", account: "validatingadmissionpolicy-status-controller", wakes: []schema.GroupResource{policies}, make: checkTypes},
	{name: "garbage-collector-controller", aliases: []string{"garbagecollector"}, account: "generic-garbage-collector", make: collectGarbage},
}

// checkTypes checks the types of policies' expressions.
func checkTypes(_ context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	return func(ctx context.Context) {
		t.options.CheckTypes(ctx, client.AdmissionregistrationV1().ValidatingAdmissionPolicies())
	}, nil
}
