package controllers

import (
	"slices"
	"strings"
	"testing"
)

func TestSelections(t *testing.T) {
	rows := []row{
		{name: "garbage-collector-controller", aliases: []string{"garbagecollector"}},
		{name: "resourcequota-controller", aliases: []string{"resourcequota"}},
		{name: "deployment-controller", aliases: []string{"deployment"}, off: true},
	}
	for _, tc := range []struct {
		selection string
		want      string
		err       string
	}{
		{"*", "garbage-collector-controller resourcequota-controller", ""},
		{"-*", "", ""},
		{"*,-garbagecollector", "resourcequota-controller", ""},
		{"-garbage-collector-controller", "resourcequota-controller", ""},
		{"+deployment", "garbage-collector-controller resourcequota-controller deployment-controller", ""},
		{"+deployment,-resourcequota", "garbage-collector-controller deployment-controller", ""},
		{"*,deployment-controller", "garbage-collector-controller resourcequota-controller deployment-controller", ""},
		{"garbage-collector", "garbage-collector-controller", ""},
		{"deployment,garbagecollector", "garbage-collector-controller deployment-controller", ""},
		{"-resourcequota,resourcequota", "", ""},
		{"+deployments", "", `there is no controller "deployments" (did you mean deployment?)`},
		{"quota", "", `there is no controller "quota"`},
		{"attachdetach", "", `"attachdetach" is a controller of kube-controller-manager that this server does not have: run a kube-controller-manager for it`},
		{"*,-node-lifecycle-controller", "garbage-collector-controller resourcequota-controller", ""},
		{"-*,garbagecollector", "", `"-*" switches all controllers off, and goes with no other entry`},
		{"--deployment", "", `"--deployment" is not the name of a controller, nor +name, -name, * or -*`},
		{"+", "", `"+" is not the name of a controller, nor +name, -name, * or -*`},
		{"+*", "", `there is no controller "*"`},
	} {
		t.Run(tc.selection, func(t *testing.T) {
			list, err := choose(strings.Split(tc.selection, ","), rows)
			if (err == nil && tc.err != "") || (err != nil && err.Error() != tc.err) {
				t.Fatalf("got error %v, want %q", err, tc.err)
			}
			var got []string
			for _, r := range list {
				got = append(got, r.name)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Every name belongs to one controller, and controllers that are not in the table are known to run
// elsewhere.
func TestTheTableIsUnambiguous(t *testing.T) {
	seen := map[string]string{}
	for _, r := range table {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(r.names()))) {
			if other, ok := seen[name]; ok && other != r.name {
				t.Errorf("%q is %s and %s", name, other, r.name)
			}
			seen[name] = r.name
			if slices.Contains(elsewhere, name) {
				t.Errorf("%q is here and elsewhere", name)
			}
		}
		if r.account == "" || r.make == nil {
			t.Errorf("%s is not complete", r.name)
		}
	}
}

// The workload controllers extend the default selection; they remove no controller from it.
func TestWorkloadsAreAddedToTheDefault(t *testing.T) {
	with, err := choose(append(Default(), Workloads()...), table)
	if err != nil {
		t.Fatal(err)
	}
	runs := func(rows []row, name string) bool {
		return slices.ContainsFunc(rows, func(r row) bool { return slices.Contains(r.names(), name) })
	}
	without, err := choose(Default(), table)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range without {
		if !runs(with, r.name) {
			t.Errorf("%s is missing", r.name)
		}
	}
	for _, name := range []string{"deployment", "replicaset", "statefulset", "daemonset", "job", "cronjob", "replicationcontroller"} {
		if !runs(with, name) {
			t.Errorf("%s is missing", name)
		}
	}
}
