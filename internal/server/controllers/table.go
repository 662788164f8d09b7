package controllers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/job"
)

// row is a controller: a row of the table.
type row struct {
	// name is the name in kube-controller-manager 1.37; aliases are names in older releases.
	name    string
	aliases []string
	// off is set for controllers that do not run by default.
	off bool
	// account is the ServiceAccount in kube-system as which the controller acts.
	account string
	// wakes are resources. The controller starts when one of them has an object; with none, it
	// starts with the server.
	wakes []schema.GroupResource
	// counts is set for a controller that counts objects and makes missing ones. It sees objects
	// that are not initialized, and its creates do not wait for initializers. After a create that
	// timed out, its object exists, and the controller would otherwise make it once more (S11.62).
	counts bool
	// again is how long a controller that counts waits after a failed create; the zero value means
	// usual.
	again pace
	// make makes the controller. It returns a function that runs the controller until its context
	// ends, or nil when there is nothing to run.
	make func(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error)
}

// core has the resources of the core group.
func core(names ...string) []schema.GroupResource { return in("", names...) }

func in(group string, names ...string) []schema.GroupResource {
	var list []schema.GroupResource
	for _, name := range names {
		list = append(list, schema.GroupResource{Group: group, Resource: name})
	}
	return list
}

// accountsController is the controller that makes the ServiceAccount default of namespaces.
const accountsController = "serviceaccount-controller"

// table has every controller. A controller comes after the controllers that it needs.
// docs/controllers.md describes each.
var table = []row{
	{name: accountsController, aliases: []string{"serviceaccount"}, account: "service-account-controller", make: serviceAccounts},
	{name: "root-ca-certificate-publisher-controller", aliases: []string{"root-ca-cert-publisher"}, account: "root-ca-cert-publisher", make: rootCertificate},
	{name: "namespace-controller", aliases: []string{"namespace"}, account: "namespace-controller", make: emptyNamespaces},
	{name: "clusterrole-aggregation-controller", aliases: []string{"clusterrole-aggregation"}, account: "clusterrole-aggregation-controller", make: aggregateRoles},
	{name: "validatingadmissionpolicy-status-controller", account: "validatingadmissionpolicy-status-controller", wakes: in("admissionregistration.k8s.io", "validatingadmissionpolicies"), make: checkTypes},
	{name: "garbage-collector-controller", aliases: []string{"garbagecollector"}, account: "generic-garbage-collector", make: collectGarbage},
	{name: "resourcequota-controller", aliases: []string{"resourcequota"}, account: "resourcequota-controller", wakes: core("resourcequotas"), make: countQuotas},
	{name: "serviceaccount-token-controller", aliases: []string{"serviceaccount-token"}, account: "tokens-controller", wakes: core("secrets"), make: serviceAccountTokens},

	{name: "endpoints-controller", aliases: []string{"endpoint"}, account: "endpoint-controller", counts: true, make: endpoints},
	{name: "endpointslice-controller", aliases: []string{"endpointslice"}, account: "endpointslice-controller", counts: true, again: pace{time.Second, 1000 * time.Second}, make: endpointSlices},
	{name: "endpointslice-mirroring-controller", aliases: []string{"endpointslicemirroring"}, account: "endpointslicemirroring-controller", counts: true, again: pace{time.Second, 100 * time.Second}, make: mirrorEndpoints},
	{name: "service-cidr-controller", account: "service-cidrs-controller", make: serviceRanges},
	{name: "disruption-controller", aliases: []string{"disruption"}, account: "disruption-controller", wakes: in("policy", "poddisruptionbudgets"), make: disruptionBudgets},

	{name: "persistentvolume-binder-controller", aliases: []string{"persistentvolume-binder"}, account: "persistent-volume-binder", wakes: core("persistentvolumes", "persistentvolumeclaims"), make: bindVolumes},
	{name: "persistentvolumeclaim-protection-controller", aliases: []string{"pvc-protection"}, account: "pvc-protection-controller", wakes: core("persistentvolumeclaims"), make: protectClaims},
	{name: "persistentvolume-protection-controller", aliases: []string{"pv-protection"}, account: "pv-protection-controller", wakes: core("persistentvolumes"), make: protectVolumes},
	{name: "volumeattributesclass-protection-controller", account: "volumeattributesclass-protection-controller", wakes: in("storage.k8s.io", "volumeattributesclasses"), make: protectAttributes},
	{name: "ephemeral-volume-controller", aliases: []string{"ephemeral-volume"}, account: "ephemeral-volume-controller", counts: true, wakes: core("pods"), make: ephemeralVolumes},

	{name: "certificatesigningrequest-approving-controller", aliases: []string{"csrapproving"}, account: "certificate-controller", wakes: in("certificates.k8s.io", "certificatesigningrequests"), make: approveRequests},
	{name: "certificatesigningrequest-signing-controller", aliases: []string{"csrsigning"}, account: "certificate-controller", wakes: in("certificates.k8s.io", "certificatesigningrequests"), make: signRequests},
	{name: "certificatesigningrequest-cleaner-controller", aliases: []string{"csrcleaner"}, account: "certificate-controller", wakes: in("certificates.k8s.io", "certificatesigningrequests"), make: cleanRequests},
	{name: "ttl-after-finished-controller", aliases: []string{"ttl-after-finished"}, account: "ttl-after-finished-controller", wakes: in("batch", "jobs"), make: deleteFinishedJobs},

	{name: "deployment-controller", aliases: []string{"deployment"}, off: true, account: "deployment-controller", counts: true, wakes: in("apps", "deployments"), make: runDeployments},
	{name: "replicaset-controller", aliases: []string{"replicaset"}, off: true, account: "replicaset-controller", counts: true, wakes: in("apps", "replicasets"), make: runReplicaSets},
	{name: "replicationcontroller-controller", aliases: []string{"replicationcontroller"}, off: true, account: "replication-controller", counts: true, wakes: core("replicationcontrollers"), make: runReplicationControllers},
	{name: "statefulset-controller", aliases: []string{"statefulset"}, off: true, account: "statefulset-controller", counts: true, wakes: in("apps", "statefulsets"), make: runStatefulSets},
	{name: "daemonset-controller", aliases: []string{"daemonset"}, off: true, account: "daemon-set-controller", counts: true, wakes: in("apps", "daemonsets"), make: runDaemonSets},
	{name: "job-controller", aliases: []string{"job"}, off: true, account: "job-controller", counts: true, again: pace{job.DefaultJobApiBackOff, job.MaxJobApiBackOff}, wakes: in("batch", "jobs"), make: runJobs},
	{name: "cronjob-controller", aliases: []string{"cronjob"}, off: true, account: "cronjob-controller", counts: true, wakes: in("batch", "cronjobs"), make: runCronJobs},
	{name: "ttl-controller", aliases: []string{"ttl"}, off: true, account: "ttl-controller", wakes: core("nodes"), make: annotateNodes},
	{name: "bootstrap-signer-controller", aliases: []string{"bootstrapsigner"}, off: true, account: "bootstrap-signer", wakes: core("secrets"), make: signBootstrap},
	{name: "token-cleaner-controller", aliases: []string{"tokencleaner"}, off: true, account: "token-cleaner", wakes: core("secrets"), make: cleanTokens},
}

// checkTypes checks the types of policies' expressions.
func checkTypes(_ context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	return func(ctx context.Context) {
		t.options.CheckTypes(ctx, client.AdmissionregistrationV1().ValidatingAdmissionPolicies())
	}, nil
}
