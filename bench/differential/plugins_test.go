package main

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/kubeapiserver/options"
)

// Every plugin of kube-apiserver has cases, and every case has requests.
func TestEveryPluginHasCases(t *testing.T) {
	// The cases of these plugins are in cases/policies.
	elsewhere := []string{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"}
	values, err := newValues()
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, p := range profiles {
		cases, err := loadPlugins(p.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			plugin, _, _ := strings.Cut(strings.TrimPrefix(c.Name, "plugins/"+p.name+"/"), ":")
			if !p.fair {
				count[plugin]++
			}
			filled, err := c.with("ns", values)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			if len(filled.Requests) == 0 {
				t.Errorf("%s has no requests", c.Name)
			}
			for _, req := range filled.Requests {
				if _, path, err := splitDo(req.Do); err != nil || strings.Contains(path, "{") {
					t.Errorf("%s: %s: %v", c.Name, req.Do, err)
				}
			}
			if p.name != "configured" && !p.fair && slices.Contains(p.enabled, plugin) != options.DefaultOffAdmissionPlugins().Has(plugin) {
				t.Errorf("%s: the plugin does not run", c.Name)
			}
		}
	}
	for _, plugin := range options.AllOrderedPlugins {
		if count[plugin] < 5 && !slices.Contains(elsewhere, plugin) {
			t.Errorf("%s has %d cases", plugin, count[plugin])
		}
		delete(count, plugin)
	}
	for plugin := range count {
		t.Errorf("there are cases of %s, and there is no such plugin", plugin)
	}
}
