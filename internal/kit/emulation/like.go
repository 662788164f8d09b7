package emulation

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// Cluster has the known facts about the API server of a cluster.
type Cluster struct {
	// Version is the version at /version; empty for no cluster.
	Version string
	// Gates are its feature gates, as far as they can be seen.
	Gates map[string]bool
}

// Like returns the flags with which this process evaluates requests as a cluster does (S26.6, S26.10). wanted is a
// release that the user requested instead; empty for none. line warns that another release than the cluster's is
// emulated; empty for no warning. It is an error if the wanted release cannot be emulated.
func Like(c Cluster, wanted string) (f Flags, line string, err error) {
	if wanted != "" {
		release, exact, err := Nearest(wanted)
		if err != nil {
			return f, "", fmt.Errorf("%w; %s", err, possible())
		}
		if !exact {
			return f, "", fmt.Errorf("release %s of Kubernetes cannot be emulated; %s", strings.TrimPrefix(wanted, "v"), possible())
		}
		if of, same, err := Nearest(c.Version); err != nil || of != release || !same {
			f.EmulatedVersion = []string{release}
			if err == nil {
				line = fmt.Sprintf("the cluster runs Kubernetes %s; requests are decided as by %s, as requested", c.Version, release)
			}
			return f, line, nil
		}
		// That is the release of the cluster.
	}
	if c.Version == "" {
		return f, "", nil
	}
	release, exact, err := Nearest(c.Version)
	if err != nil {
		return f, fmt.Sprintf("the cluster says that its version is %q, which is not a version of Kubernetes; requests are decided as by %s", c.Version, Effective().EmulationVersion()), nil
	}
	f.EmulatedVersion = []string{release}
	if !exact {
		return f, fmt.Sprintf("the cluster runs Kubernetes %s; requests are decided as by %s, the nearest release that can be emulated", c.Version, release), nil
	}
	if f.FeatureGates, err = switched(release, c.Gates); err != nil {
		line = fmt.Sprintf("some feature gates of the cluster cannot be set here: %v; their defaults in Kubernetes %s are used", err, release)
	}
	return f, line, nil
}

// switched returns the entries of --feature-gates for the gates that differ from the defaults of a release, as far
// as they can be set. The error names a gate that cannot be set, for example because it needs a gate of a later
// release.
func switched(release string, gates map[string]bool) ([]string, error) {
	if len(gates) == 0 {
		return nil, nil
	}
	chosen, err := parse(Flags{EmulatedVersion: []string{release}})
	if err != nil {
		return nil, err
	}
	trial := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	if err := trial.SetEmulationVersionAndMinCompatibilityVersion(chosen.EmulationVersion(), chosen.MinCompatibilityVersion()); err != nil {
		return nil, err
	}
	known := trial.GetAll()
	var entries []string
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		spec, ok := known[featuregate.Feature(name)]
		if !ok || spec.LockToDefault || spec.Default == gates[name] || name == "AllAlpha" || name == "AllBeta" {
			continue
		}
		entries = append(entries, name+"="+strconv.FormatBool(gates[name]))
	}
	// k8s.io/component-base keeps a rejected gate.
	set := func(entries []string) error { return trial.DeepCopy().Set(strings.Join(entries, ",")) }
	if len(entries) == 0 {
		return nil, nil
	}
	err = set(entries)
	if err == nil {
		return entries, nil
	}
	var taken []string
	for before := -1; before < len(taken); {
		// A gate may depend on a later one in the list.
		before = len(taken)
		entries = slices.DeleteFunc(entries, func(entry string) bool {
			with := append(slices.Clip(taken), entry)
			if set(with) != nil {
				return false
			}
			taken = with
			return true
		})
	}
	return taken, err
}

// Behaves returns the release that this process emulates, for reports: own, the full version of the program, or
// the emulated release, such as v1.35.
func Behaves(own string) string {
	if !Emulates() {
		return own
	}
	return "v" + Effective().EmulationVersion().String()
}

// VersionOf returns the version of a cluster's API server: the emulated version, if it emulates one.
func VersionOf(info *apiversion.Info) string {
	if info.EmulationMajor == "" || info.EmulationMajor == info.Major && info.EmulationMinor == info.Minor {
		return info.GitVersion
	}
	return "v" + info.EmulationMajor + "." + info.EmulationMinor
}

// JudgesReviews reports whether webhooks are called for reviews in the release that this process emulates (S26.4).
func JudgesReviews() bool {
	return !utilfeature.DefaultFeatureGate.Enabled(features.ExcludeAdmissionWebhookVirtualResources)
}

// JudgesByMutatingPolicies reports whether MutatingAdmissionPolicies are enabled in the release that this process
// emulates (S26.5).
func JudgesByMutatingPolicies() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.MutatingAdmissionPolicy)
}

// odd matches the warning about an address in a nonstandard form, which is invalid since 1.36. Earlier servers warn that
// it will become invalid.
var odd = regexp.MustCompile(`^(.*: non-standard (?:IP address|CIDR value) ".*") is invalid: (use ".*")$`)

// later are parts of the warnings that are new in 1.36.
var later = []string{" are reserved for static manifest-based configurations ", "spec.externalIPs is deprecated "}

// Warning returns a warning in the words of the emulated release; empty if that release does not warn.
func Warning(text string) string { return warningOf(Effective().EmulationVersion().Minor(), text) }

func warningOf(minor uint, text string) string {
	if minor >= 36 {
		return text
	}
	if slices.ContainsFunc(later, func(part string) bool { return strings.Contains(text, part) }) {
		return ""
	}
	return odd.ReplaceAllString(text, "$1 will be considered invalid in a future Kubernetes release: $2")
}
