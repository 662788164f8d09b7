package emulation

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

func init() {
	gates := utilfeature.DefaultMutableFeatureGate
	runtime.Must(gates.AddVersioned(map[featuregate.Feature]featuregate.VersionedSpecs{
		"NeedsLater": {{Version: version.MustParse("1.34"), PreRelease: featuregate.Alpha}},
		"Later":      {{Version: version.MustParse("1.37"), PreRelease: featuregate.Alpha}},
	}))
	runtime.Must(gates.AddDependencies(map[featuregate.Feature][]featuregate.Feature{"NeedsLater": {"Later"}}))
}

// S26.1: --emulated-version accepts the same forms as kube-apiserver.
func TestVersionsAreReadAsUpstreamReadsThem(t *testing.T) {
	for _, tt := range []struct {
		name            string
		emulated, least []string
		want            string
		err             []string
	}{
		{name: "nothing", want: "{BinaryVersion: 1.37, EmulationVersion: 1.37, MinCompatibilityVersion: 1.36}"},
		{name: "empty", emulated: []string{""}, want: "{BinaryVersion: 1.37, EmulationVersion: 1.37, MinCompatibilityVersion: 1.36}"},
		{name: "a release", emulated: []string{"1.35"}, want: "{BinaryVersion: 1.37, EmulationVersion: 1.35, MinCompatibilityVersion: 1.34}"},
		{name: "the oldest release", emulated: []string{"1.34"}, want: "{BinaryVersion: 1.37, EmulationVersion: 1.34, MinCompatibilityVersion: 1.33}"},
		{name: "the oldest release with a minimum", emulated: []string{"1.34"}, least: []string{"1.34"}, want: "{BinaryVersion: 1.37, EmulationVersion: 1.34, MinCompatibilityVersion: 1.34}"},
		{name: "a release with a v", emulated: []string{"v1.35"}, want: "{BinaryVersion: 1.37, EmulationVersion: 1.35, MinCompatibilityVersion: 1.34}"},
		{name: "the component", emulated: []string{"kube=1.36"}, want: "{BinaryVersion: 1.37, EmulationVersion: 1.36, MinCompatibilityVersion: 1.35}"},
		{name: "with a minimum", emulated: []string{"1.36"}, least: []string{"1.36"}, want: "{BinaryVersion: 1.37, EmulationVersion: 1.36, MinCompatibilityVersion: 1.36}"},
		{name: "a patch release", emulated: []string{"1.35.4"}, err: []string{`--emulated-version "1.35.4": patch version not allowed`, "possible are 1.34, 1.35, 1.36 and 1.37"}},
		{name: "too old", emulated: []string{"1.30"}, err: []string{`--emulated-version "1.30": emulation version 1.30 is not between [1.34, 1.37.0]; possible are 1.34, 1.35, 1.36 and 1.37`, "possible are 1.34, 1.35, 1.36 and 1.37"}},
		{name: "too new", emulated: []string{"2.0"}, err: []string{`--emulated-version "2.0": emulation version 2.0 is not between [1.34, 1.37.0]; possible are 1.34, 1.35, 1.36 and 1.37`, "possible are"}},
		{name: "no version", emulated: []string{"new"}, err: []string{`--emulated-version "new": could not parse "new" as version; possible are`}},
		{name: "two versions", emulated: []string{"1.35", "1.34"}, err: []string{`--emulated-version "1.35,1.34": duplicate version flag`}},
		{name: "another component", emulated: []string{"wardle=1.2"}, err: []string{"component not registered: wardle"}},
		{name: "a minimum above the version", emulated: []string{"1.34"}, least: []string{"1.36"}, err: []string{`--min-compatibility-version "1.36": minCompatibilityVersion version 1.36 is not between [1.34, 1.34]`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parse(Flags{EmulatedVersion: tt.emulated, MinCompatibilityVersion: tt.least})
			if (err != nil) != (tt.err != nil) {
				t.Fatalf("got error %v, want %q", err, tt.err)
			}
			for _, part := range tt.err {
				if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
					t.Errorf("the error %q lacks %q", err, part)
				}
			}
			if err == nil && got.String() != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestReleasesAreUpstreams(t *testing.T) {
	if diff := cmp.Diff([]string{"1.34", "1.35", "1.36", "1.37"}, Releases()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// S26.6: for a cluster outside of the supported releases, the nearest release is emulated.
func TestNearestRelease(t *testing.T) {
	for _, tt := range []struct {
		text, want string
		exact, bad bool
	}{
		{text: "1.35", want: "1.35", exact: true},
		{text: "v1.36.2", want: "1.36", exact: true},
		{text: "v1.34.5-eks-3cfe0ce", want: "1.34", exact: true},
		{text: "v1.35.2+k3s1", want: "1.35", exact: true},
		{text: "v1.29.0", want: "1.34"},
		{text: "v1.41.0", want: "1.37"},
		{text: "v2.0.0", want: "1.37"},
		{text: "v0.0.0-master+$Format:%H$", want: "1.37"},
		{text: "latest", bad: true},
		{text: "", bad: true},
	} {
		got, exact, err := Nearest(tt.text)
		if got != tt.want || exact != tt.exact || (err != nil) != tt.bad {
			t.Errorf("%q: got %q, %t, %v", tt.text, got, exact, err)
		}
	}
}

// S26.6 and S26.10: a command emulates the release of the cluster, and reports if it cannot.
func TestJudgingLikeACluster(t *testing.T) {
	for _, tt := range []struct {
		name    string
		cluster Cluster
		wanted  string
		flags   Flags
		line    string
		err     string
	}{
		{name: "no cluster"},
		{name: "its release", cluster: Cluster{Version: "v1.35.4-eks-1"}, flags: Flags{EmulatedVersion: []string{"1.35"}}},
		{name: "an older one", cluster: Cluster{Version: "v1.29.3"}, flags: Flags{EmulatedVersion: []string{"1.34"}},
			line: "the cluster runs Kubernetes v1.29.3; requests are decided as by 1.34, the nearest release that can be emulated"},
		{name: "a newer one", cluster: Cluster{Version: "v1.40.0"}, flags: Flags{EmulatedVersion: []string{"1.37"}},
			line: "the cluster runs Kubernetes v1.40.0; requests are decided as by 1.37, the nearest release that can be emulated"},
		{name: "no version", cluster: Cluster{Version: "dev"},
			line: `the cluster says that its version is "dev", which is not a version of Kubernetes; requests are decided as by 1.37`},
		{name: "what was asked for", wanted: "v1.36.2", flags: Flags{EmulatedVersion: []string{"1.36"}}},
		{name: "what was asked for, of a cluster", cluster: Cluster{Version: "v1.35.4"}, wanted: "1.36", flags: Flags{EmulatedVersion: []string{"1.36"}},
			line: "the cluster runs Kubernetes v1.35.4; requests are decided as by 1.36, as requested"},
		{name: "the release of the cluster, with its gates", cluster: Cluster{Version: "v1.34.1", Gates: map[string]bool{"MutatingAdmissionPolicy": true}}, wanted: "1.34",
			flags: Flags{EmulatedVersion: []string{"1.34"}, FeatureGates: []string{"MutatingAdmissionPolicy=true"}}},
		{name: "the nearest release of a cluster that is older", cluster: Cluster{Version: "v1.29.3"}, wanted: "1.34", flags: Flags{EmulatedVersion: []string{"1.34"}},
			line: "the cluster runs Kubernetes v1.29.3; requests are decided as by 1.34, as requested"},
		{name: "what cannot be emulated", wanted: "1.30", err: "release 1.30 of Kubernetes cannot be emulated; possible are 1.34, 1.35, 1.36 and 1.37"},
		{name: "no release", wanted: "old", err: `"old" is not a version of Kubernetes such as 1.35; possible are 1.34, 1.35, 1.36 and 1.37`},
		{name: "gates that differ from the defaults", cluster: Cluster{Version: "v1.34.1", Gates: map[string]bool{
			"MutatingAdmissionPolicy": true, "WatchList": true, "NoSuchGate": true, "AllAlpha": true,
		}}, flags: Flags{EmulatedVersion: []string{"1.34"}, FeatureGates: []string{"MutatingAdmissionPolicy=true"}}},
		{name: "a gate that needs one of a later release, and others", cluster: Cluster{Version: "v1.34.1", Gates: map[string]bool{"NeedsLater": true, "MutatingAdmissionPolicy": true}},
			flags: Flags{EmulatedVersion: []string{"1.34"}, FeatureGates: []string{"MutatingAdmissionPolicy=true"}},
			line:  "some feature gates of the cluster cannot be set here: NeedsLater is enabled, but depends on features that are disabled: [Later]; their defaults in Kubernetes 1.34 are used"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, line, err := Like(tt.cluster, tt.wanted)
			if diff := cmp.Diff(tt.flags, f); diff != "" {
				t.Errorf("flags (-want +got):\n%s", diff)
			}
			if line != tt.line {
				t.Errorf("got %q, want %q", line, tt.line)
			}
			if (err != nil) != (tt.err != "") || err != nil && err.Error() != tt.err {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
		})
	}
}

// S26.5: a rejected gate has no effect on the next call.
func TestRefusedGatesAreForgotten(t *testing.T) {
	if err := Apply(Flags{FeatureGates: []string{"NoSuchGate=true"}}); err == nil || err.Error() != "--feature-gates: unrecognized feature gate: NoSuchGate" {
		t.Fatalf("got error %v", err)
	}
	if err := Apply(Flags{FeatureGates: []string{"ExcludeAdmissionWebhookVirtualResources=true"}}); err != nil {
		t.Error(err)
	}
}

// S26.15: kube-apiserver 1.36.3 has these warnings, 1.35.4 does not.
func TestWarningsOfReleases(t *testing.T) {
	const reserved = `metadata.name: names ending with ".static.k8s.io" are reserved for static manifest-based configurations and cannot be managed via the API`
	const external = "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
	const address = `spec.clusterIP: non-standard IP address "010.0.0.1"`
	for _, c := range []struct {
		minor      uint
		text, want string
	}{
		{35, reserved, ""},
		{36, reserved, reserved},
		{35, external, ""},
		{36, external, external},
		{35, address + ` is invalid: use "10.0.0.1"`, address + ` will be considered invalid in a future Kubernetes release: use "10.0.0.1"`},
		{36, address + ` is invalid: use "10.0.0.1"`, address + ` is invalid: use "10.0.0.1"`},
		{35, "another", "another"},
	} {
		if got := warningOf(c.minor, c.text); got != c.want {
			t.Errorf("1.%d, %q: got %q", c.minor, c.text, got)
		}
	}
}
