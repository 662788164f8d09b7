package emulation

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/version"
	utilcompatibility "k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/compatibility"
)

// Release is the Kubernetes release whose kinds the server has.
const Release = "1.37.2"

// Flags are flags of kube-apiserver, in its form. The zero value changes nothing.
type Flags struct {
	// EmulatedVersion is the release to emulate, such as 1.35.
	EmulatedVersion []string
	// MinCompatibilityVersion is the oldest release that can read the same data, and whose CEL
	// libraries new expressions may use.
	MinCompatibilityVersion []string
	// FeatureGates are entries NAME=true or NAME=false.
	FeatureGates []string
}

const component = compatibility.DefaultKubeComponent

// Effective returns the version that this process emulates.
func Effective() compatibility.EffectiveVersion {
	return utilcompatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(component)
}

// Emulates reports whether the process emulates another release than its own.
func Emulates() bool {
	v := Effective()
	return !v.BinaryVersion().WithPatch(0).EqualTo(v.EmulationVersion())
}

// Releases lists the releases that the process can emulate, such as 1.35, the oldest first.
func Releases() []string {
	var releases []string
	// Upstream decides which releases can be emulated.
	for v := utilcompatibility.DefaultBuildEffectiveVersion(); ; {
		last := v.EmulationVersion()
		if len(v.Validate()) > 0 {
			slices.Reverse(releases)
			return releases
		}
		releases = append(releases, last.String())
		v.SetEmulationVersion(last.SubtractMinor(1))
	}
}

// Nearest returns the supported release that is nearest to a version such as v1.33.4-eks-1; exact
// reports whether it is that release itself. It is an error if the text is not a version.
func Nearest(text string) (release string, exact bool, err error) {
	v, err := version.ParseGeneric(text)
	if err != nil {
		return "", false, fmt.Errorf("%q is not a version of Kubernetes such as 1.35", text)
	}
	wanted, all := version.MajorMinor(v.Major(), v.Minor()), Releases()
	if v.Major() == 0 {
		// A program built without its version reports v0.0.0-master.
		return all[len(all)-1], false, nil
	}
	if oldest := all[0]; wanted.LessThan(version.MustParseGeneric(oldest)) {
		return oldest, false, nil
	}
	if newest := all[len(all)-1]; wanted.GreaterThan(version.MustParseGeneric(newest)) {
		return newest, false, nil
	}
	return wanted.String(), true, nil
}

// possible returns the end of an error message, with the supported releases.
func possible() string {
	all := Releases()
	last := len(all) - 1
	return fmt.Sprintf("possible are %s and %s", strings.Join(all[:last], ", "), all[last])
}

// applied guards the version that Apply chose for the process; empty for none.
var applied struct {
	sync.Mutex
	version, gates string
}

// Apply sets the emulated version and the feature gates of the process. The version can be chosen
// only once, because many objects depend on it. The error names the flag and the possible values.
func Apply(f Flags) error {
	chosen, err := parse(f)
	if err != nil {
		return err
	}
	applied.Lock()
	defer applied.Unlock()
	gates := utilfeature.DefaultMutableFeatureGate
	if text := chosen.String(); (len(f.EmulatedVersion) > 0 || len(f.MinCompatibilityVersion) > 0) && text != applied.version {
		own := Effective().(compatibility.MutableEffectiveVersion)
		if text != own.String() {
			if applied.version != "" {
				return fmt.Errorf("--emulated-version: this process behaves as Kubernetes %s already, and servers of one process share the version", own.EmulationVersion())
			}
			if err := gates.SetEmulationVersionAndMinCompatibilityVersion(chosen.EmulationVersion(), chosen.MinCompatibilityVersion()); err != nil {
				return fmt.Errorf("--emulated-version: %w", err)
			}
			own.SetEmulationVersion(chosen.EmulationVersion())
			own.SetMinCompatibilityVersion(chosen.MinCompatibilityVersion())
		}
		applied.version = text
	}
	if text := strings.Join(f.FeatureGates, ","); text != applied.gates {
		if err := setGates(f.FeatureGates); err != nil {
			return err
		}
		applied.gates = text
	}
	return nil
}

// parse returns the version that the flags select, with upstream's parser.
func parse(f Flags) (compatibility.EffectiveVersion, error) {
	// A temporary registry without gates: they would log every trial.
	registry := compatibility.NewComponentGlobalsRegistry()
	if err := registry.Register(component, utilcompatibility.DefaultBuildEffectiveVersion(), nil); err != nil {
		return nil, err
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	registry.AddFlags(flags)
	for _, given := range []struct {
		name   string
		values []string
	}{{"emulated-version", f.EmulatedVersion}, {"min-compatibility-version", f.MinCompatibilityVersion}} {
		values := slices.DeleteFunc(slices.Clone(given.values), func(v string) bool { return v == "" })
		if len(values) == 0 {
			continue
		}
		text := strings.Join(values, ",")
		err := cmp.Or(flags.Set(given.name, text), registry.Set())
		if err == nil {
			// Further errors follow from the first.
			err = errors.Join(first(registry.Validate())...)
		}
		if err != nil {
			return nil, fmt.Errorf("--%s %q: %w; %s", given.name, text, err, possible())
		}
	}
	chosen := registry.EffectiveVersionFor(component).(compatibility.MutableEffectiveVersion)
	// Upstream does not go below the oldest supported release. A server of that release itself
	// does, and rejects functions in new expressions that came with it.
	if before := chosen.EmulationVersion().SubtractMinor(1); len(f.MinCompatibilityVersion) == 0 && before.LessThan(chosen.MinCompatibilityVersion()) {
		chosen.SetMinCompatibilityVersion(before)
	}
	return chosen, nil
}

func first(errs []error) []error { return errs[:min(1, len(errs))] }

// setGates sets feature gates.
func setGates(entries []string) error {
	gates := make([]string, len(entries))
	for i, entry := range entries {
		// Gates of other components do not concern an API server.
		of, gate, ok := strings.Cut(entry, ":")
		if !ok {
			of, gate = component, entry
		}
		if of != component {
			return fmt.Errorf("--feature-gates %q: the only component is %s", entry, component)
		}
		gates[i] = gate
	}
	text := strings.Join(gates, ",")
	// k8s.io/component-base keeps a rejected gate, and reports it again at each later call.
	err := utilfeature.DefaultMutableFeatureGate.DeepCopy().Set(text)
	if err == nil {
		err = utilfeature.DefaultMutableFeatureGate.Set(text)
	}
	if err != nil {
		return fmt.Errorf("--feature-gates: %w", err)
	}
	return nil
}
