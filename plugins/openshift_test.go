package plugins

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The example has a replacement for each of the names.
func TestOpenShiftsPluginsAreThoseOfTheExample(t *testing.T) {
	page, err := os.ReadFile("../examples/openshift/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `[a-z-]+\\.yaml` \\| ([A-Za-z, ]+) \\|").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, strings.Split(row[1], ", ")...)
	}
	slices.Sort(listed)
	if diff := cmp.Diff(listed, slices.Sorted(maps.Keys(openShift))); diff != "" {
		t.Errorf("names (-example +known):\n%s", diff)
	}
	for name, want := range map[string]bool{
		"BuildDefaults": true, "OriginNamespaceLifecycle": true, "security.openshift.io/SCCExecRestrictions": true, "openshift.io/JenkinsBootstrapper": true, "network.openshift.io/ExternalIPRanger": true,
		"route.openshift.io/Another": true, "NamespaceLifecycle": false, "PodNodeSelector": false, "example.com/X": false,
	} {
		if OfOpenShift(name) != want {
			t.Errorf("S9.6 %s: %v", name, !want)
		}
	}
}
