package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/registrations"
)

// switchable are the versions of the registrations' group that --runtime-config
// knows (S9.8).
var switchable = []string{"v1beta1", "v1alpha1"}

// legacySwitch is the entry of --runtime-config for what clients of 2017 need: all versions that
// upstream no longer serves, and OpenAPI v2 where these clients read it (S9.8).
const legacySwitch = "api/legacy"

// stabilities are the entries of --runtime-config for all versions of a stability that are off
// by default, with what is in their names.
var stabilities = []struct{ name, part string }{{"api/all", ""}, {"api/beta", "beta"}, {"api/alpha", "alpha"}}

func isStability(name string) bool {
	return slices.ContainsFunc(stabilities, func(s struct{ name, part string }) bool { return s.name == name })
}

// optional are the versions of built-in groups that upstream has and does not serve by default.
func optional() []schema.GroupVersion {
	var versions []schema.GroupVersion
	for gv, on := range catalog.Default().GroupVersionConfigs {
		if !on && gv.Group != registrations.Group {
			versions = append(versions, gv)
		}
	}
	slices.SortFunc(versions, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	return versions
}

// switches lists what --runtime-config can switch on and off.
func switches() []string {
	var names []string
	for _, version := range switchable {
		names = append(names, registrations.Group+"/"+version)
	}
	var legacy []string
	for gv := range catalog.LegacyVersions() {
		legacy = append(legacy, gv.String())
	}
	slices.Sort(legacy)
	names = append(names, legacy...)
	for _, gv := range optional() {
		names = append(names, gv.String())
	}
	for _, s := range stabilities {
		names = append(names, s.name)
	}
	return append(names, legacySwitch)
}

// resourceOf returns the resource that an entry of --runtime-config names; ok is false unless it
// is one of an optional version.
func resourceOf(name string) (resource schema.GroupVersionResource, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 || parts[2] == "" {
		return resource, false
	}
	gv := schema.GroupVersion{Group: parts[0], Version: parts[1]}
	return gv.WithResource(parts[2]), slices.Contains(optional(), gv)
}

// parseRuntimeConfig returns what the entries of --runtime-config say, by what they switch.
func parseRuntimeConfig(config []string) (map[string]bool, error) {
	known, values := switches(), map[string]bool{}
	for _, entry := range config {
		name, value, given := strings.Cut(entry, "=")
		_, seen := values[name]
		_, resource := resourceOf(name)
		switch {
		case !slices.Contains(known, name) && !resource:
			last := len(known) - 1
			return nil, fmt.Errorf("--runtime-config %q: only %s and %s can be switched on or off", entry, strings.Join(known[:last], ", "), known[last])
		case seen:
			return nil, fmt.Errorf("--runtime-config %q is given twice", name)
		case given && value != "true" && value != "false":
			return nil, fmt.Errorf("--runtime-config %q: the value must be true or false", entry)
		case value == "false" && isStability(name):
			return nil, fmt.Errorf("--runtime-config %q: it can only be true; name the versions that are to be off", entry)
		}
		values[name] = value != "false"
	}
	return values, nil
}

// asked returns what the entries say of a version: its own entry is stronger than those for all
// versions of its stability.
func asked(values map[string]bool, gv schema.GroupVersion) (on, given bool) {
	if on, given = values[gv.String()]; given {
		return on, true
	}
	for _, s := range stabilities {
		if values[s.name] && strings.Contains(gv.Version, s.part) {
			return true, true
		}
	}
	return false, false
}

// parseVersions chooses the versions that are served.
func (s *settings) parseVersions() error {
	values, err := parseRuntimeConfig(s.RuntimeConfig)
	if err != nil {
		return err
	}
	for _, version := range switchable {
		if on, given := values[registrations.Group+"/"+version]; given && !on {
			s.versionsOff = append(s.versionsOff, version)
		}
	}
	s.legacy = values[legacySwitch]
	for gv := range catalog.LegacyVersions() {
		// A version's own entry is stronger.
		on, given := values[gv.String()]
		if on || (s.legacy && !given) {
			s.legacyVersions = append(s.legacyVersions, gv)
		}
	}
	s.builtin = catalog.Default()
	for _, gv := range optional() {
		if on, _ := asked(values, gv); on {
			s.builtin.EnableVersions(gv)
		}
	}
	for name, on := range values {
		if resource, ok := resourceOf(name); ok && on {
			s.builtin.EnableResources(resource)
		} else if ok {
			s.builtin.DisableResources(resource)
		}
	}
	// The version is on without an entry, for webhooks (S13.3, D45).
	if on, _ := asked(values, betaPolicies[0].GroupVersion()); on {
		s.builtin.EnableResources(betaPolicies...)
	}
	return nil
}

// betaPolicies are the kinds of MutatingAdmissionPolicy in v1beta1. They are served only
// because --runtime-config asks for them.
var betaPolicies = []schema.GroupVersionResource{
	{Group: registrations.Group, Version: "v1beta1", Resource: "mutatingadmissionpolicies"},
	{Group: registrations.Group, Version: "v1beta1", Resource: "mutatingadmissionpolicybindings"},
}

// onlyServed leaves out of what a Reader finds the kinds that only have versions that
// are switched off: they count as empty and give no error (S11.12). Registrations
// stay stored.
func onlyServed(reader snapshot.Reader, off []string) snapshot.Reader {
	var hidden []string
	for _, k := range registration.Sources() {
		if !served(k, off) {
			hidden = append(hidden, k.Kind)
		}
	}
	if hidden == nil {
		return reader
	}
	return &filtered{Reader: reader, hidden: hidden}
}

// served reports whether a kind has a version that is not switched off.
func served(k registration.Descriptor, off []string) bool {
	return slices.ContainsFunc(k.Versions, func(v string) bool { return !slices.Contains(off, v) })
}

// filtered is a Reader without some kinds.
type filtered struct {
	snapshot.Reader
	hidden []string
}

// Read implements snapshot.Reader.
func (f *filtered) Read(ctx context.Context, since snapshot.Version) (snapshot.Registrations, error) {
	found, err := f.Reader.Read(ctx, since)
	if err != nil {
		return found, err
	}
	found.Disabled = slices.Concat(found.Disabled, f.hidden)
	found.Changes = slices.DeleteFunc(slices.Clone(found.Changes), func(c snapshot.Change) bool {
		return slices.Contains(f.hidden, c.Source.Descriptor().Kind)
	})
	if found.Kept != nil {
		found.Kept = slices.DeleteFunc(found.Kept, func(k snapshot.Kept) bool {
			return slices.Contains(f.hidden, k.Source.Descriptor().Kind)
		})
	}
	served := func(objects []runtime.Object) []runtime.Object {
		return slices.DeleteFunc(slices.Clone(objects), func(obj runtime.Object) bool {
			source, ok := registration.SourceOf(obj)
			return ok && slices.Contains(f.hidden, source.Descriptor().Kind)
		})
	}
	found.Objects = served(found.Objects)
	if rest := found.Rest; rest != nil {
		found.Rest = func(ctx context.Context, take func([]runtime.Object)) error {
			return rest(ctx, func(objects []runtime.Object) { take(served(objects)) })
		}
	}
	return found, nil
}
