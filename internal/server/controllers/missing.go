package controllers

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// needed are the controllers that make the pods of a workload resource.
var needed = map[schema.GroupResource][]string{
	{Group: "apps", Resource: "deployments"}:  {"deployment", "replicaset"},
	{Group: "apps", Resource: "replicasets"}:  {"replicaset"},
	{Group: "apps", Resource: "statefulsets"}: {"statefulset"},
	{Group: "apps", Resource: "daemonsets"}:   {"daemonset"},
	{Group: "batch", Resource: "jobs"}:        {"job"},
	{Group: "batch", Resource: "cronjobs"}:    {"cronjob", "job"},
	{Resource: "replicationcontrollers"}:      {"replicationcontroller"},
}

// Workloads returns the entries of a selection that add the workload controllers.
func Workloads() []string {
	var entries []string
	for _, names := range needed {
		for _, name := range names {
			entries = append(entries, "+"+name)
		}
	}
	slices.Sort(entries)
	return slices.Compact(entries)
}

// Missing returns, for the resources of workloads and for pods, a text that names the missing
// controllers or nodes. It returns nil when the selection names each controller, because the other
// controllers then run elsewhere.
func Missing(selection []string, fakeNodes int) map[schema.GroupResource]string {
	named := func(entry string) bool { return entry == None || entry != all && !strings.ContainsAny(entry[:1], "+-") }
	if slices.ContainsFunc(selection, named) && !slices.Contains(selection, all) {
		return nil
	}
	rows, err := choose(selection, table)
	if err != nil {
		return nil
	}
	missing := map[schema.GroupResource]string{}
	for resource, names := range needed {
		var flags []string
		for _, name := range names {
			if !slices.ContainsFunc(rows, func(r row) bool { return slices.Contains(r.names(), name) }) {
				flags = append(flags, "+"+name)
			}
		}
		if len(flags) > 0 {
			missing[resource] = fmt.Sprintf("No controller of %s runs in this server: start it with --controllers=%s, and with --fake-nodes=1 for pods that become ready, or run a kube-controller-manager",
				resource.Resource, strings.Join(flags, ","))
		}
	}
	if fakeNodes == 0 {
		missing[schema.GroupResource{Resource: "pods"}] = "There is no node that could run the pod: start the server with --fake-nodes=1, which plays a node on which pods become ready"
	}
	return missing
}
