package controllers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/kit/nearest"
)

const (
	// all means every controller that runs by default.
	all = "*"
	// None, as an entry of a selection, means no controller at all.
	None = "-*"
)

// Default is the selection of every controller that runs by default.
func Default() []string { return []string{all} }

// choose returns the rows that a selection names, in the order of the table. An entry is the name
// of a controller, "*" for all that run by default, "-name" for a controller that must not run,
// "+name" for a controller to run in addition to the default ones, or "-*". The first entry for a
// name counts, as in a kube-controller-manager. If all entries begin with + or -, the selection
// changes the default.
func choose(selection []string, table []row) ([]row, error) {
	byName := map[string]string{}
	for _, r := range table {
		for _, name := range r.names() {
			byName[name] = r.name
		}
	}
	changes := true
	wanted := map[string]bool{}
	for _, entry := range selection {
		switch entry {
		case None:
			if len(selection) > 1 {
				return nil, fmt.Errorf("%q switches all controllers off, and goes with no other entry", None)
			}
			return nil, nil
		case all:
			continue
		}
		name := strings.TrimLeft(entry, "+-")
		canonical, known := byName[name]
		switch {
		case len(entry)-len(name) > 1 || name == "":
			return nil, fmt.Errorf("%q is not the name of a controller, nor +name, -name, * or -*", entry)
		case !known && slices.Contains(elsewhere, name):
			if entry[0] == '-' {
				continue
			}
			return nil, fmt.Errorf("%q is a controller of kube-controller-manager that this server does not have: run a kube-controller-manager for it", name)
		case !known:
			return nil, fmt.Errorf("there is no controller %q%s", name, nearest.Suggestion("", name, knownNames(table)))
		}
		if entry == name {
			changes = false
		}
		if _, decided := wanted[canonical]; !decided {
			wanted[canonical] = entry[0] != '-'
		}
	}
	byDefault := changes || slices.Contains(selection, all)
	var list []row
	for _, r := range table {
		run, decided := wanted[r.name]
		if !decided {
			run = byDefault && !r.off
		}
		if run {
			list = append(list, r)
		}
	}
	return list, nil
}

// names returns the names of a row: its name, its name without "-controller", and the names of
// older releases.
func (r row) names() []string {
	return append([]string{r.name, strings.TrimSuffix(r.name, "-controller")}, r.aliases...)
}

func knownNames(table []row) []string {
	var list []string
	for _, r := range table {
		list = append(list, r.names()...)
	}
	return list
}

// Check returns an error if a selection is invalid. The error is one sentence without the flag.
func Check(selection []string) error {
	_, err := choose(selection, table)
	return err
}

// elsewhere are the controllers of a kube-controller-manager that are not in the table, with the
// names of older releases. They manage nodes, clouds, metrics, or storage that is attached to
// nodes.
var elsewhere = []string{
	"device-taint-eviction-controller",
	"horizontal-pod-autoscaler-controller", "horizontalpodautoscaling",
	"kube-apiserver-serving-clustertrustbundle-publisher-controller",
	"legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner",
	"node-ipam-controller", "nodeipam",
	"node-lifecycle-controller", "nodelifecycle",
	"persistentvolume-attach-detach-controller", "attachdetach",
	"persistentvolume-expander-controller", "persistentvolume-expander",
	"podcertificaterequest-cleaner-controller",
	"pod-garbage-collector-controller", "podgc",
	"podgroup-protection-controller",
	"resourceclaim-controller", "resource-claim-controller", "resourcepoolstatusrequest-controller",
	"selinux-warning-controller",
	"storage-version-migrator-controller", "svm",
	"storageversion-garbage-collector-controller", "storage-version-gc",
	"taint-eviction-controller",
}
