package runtimeconfig

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/resourceconfig"
	serverstorage "k8s.io/apiserver/pkg/server/storage"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/registrations"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/stores"
)

// switchable are the versions of the registrations' group that --runtime-config accepts (S9.8).
var switchable = []string{"v1beta1", "v1alpha1"}

// legacySwitch is the entry of --runtime-config for clients of 2017: it enables all versions that
// upstream no longer serves, and OpenAPI v2 at the path where these clients read it (S9.8).
const legacySwitch = "api/legacy"

// stabilities are the entries of --runtime-config for all versions of a stability that are off by
// default, each with a part of the names of these versions.
var stabilities = []struct{ name, part string }{{"api/all", ""}, {"api/beta", "beta"}, {"api/alpha", "alpha"}}

func isStability(name string) bool {
	return slices.ContainsFunc(stabilities, func(s struct{ name, part string }) bool { return s.name == name })
}

// optional are the versions of built-in groups that upstream has and does not serve by default.
func optional() []schema.GroupVersion {
	var versions []schema.GroupVersion
	for gv, on := range stores.Default().GroupVersionConfigs {
		if !on && gv.Group != registrations.Group {
			versions = append(versions, gv)
		}
	}
	slices.SortFunc(versions, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	return versions
}

// switches lists the names that --runtime-config accepts.
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

// resourceOf returns the resource that an entry of --runtime-config names; ok is false unless
// upstream has its version.
func resourceOf(name string) (resource schema.GroupVersionResource, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 || parts[2] == "" {
		return resource, false
	}
	gv := schema.GroupVersion{Group: parts[0], Version: parts[1]}
	_, ok = stores.Default().GroupVersionConfigs[gv]
	return gv.WithResource(parts[2]), ok && (gv.Group != registrations.Group || !slices.Contains(switchable, gv.Version))
}

// onByDefault returns the version that an entry of --runtime-config names, if upstream serves it by
// default.
func onByDefault(name string) (gv schema.GroupVersion, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 2 {
		return gv, false
	}
	gv = schema.GroupVersion{Group: parts[0], Version: parts[1]}
	return gv, stores.Default().GroupVersionConfigs[gv] && gv.Group != registrations.Group
}

// valuesOf returns the values of the entries of --runtime-config, by entry.
func valuesOf(config []string) (map[string]bool, error) {
	known, values := switches(), map[string]bool{}
	for _, entry := range config {
		name, value, given := strings.Cut(entry, "=")
		_, seen := values[name]
		of, resource := resourceOf(name)
		_, always := onByDefault(name)
		switch {
		case (always || resource && !slices.Contains(optional(), of.GroupVersion())) && value == "false":
			return nil, fmt.Errorf("--runtime-config %q: it cannot be switched off", entry)
		case !slices.Contains(known, name) && !resource && !always:
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

// versionEnabled reports whether the entries enable a version: its own entry takes precedence over the
// entries for all versions of its stability.
func versionEnabled(values map[string]bool, gv schema.GroupVersion) bool {
	if on, given := values[gv.String()]; given {
		return on
	}
	for _, s := range stabilities {
		if values[s.name] && strings.Contains(gv.Version, s.part) {
			return true
		}
	}
	return false
}

// Versions are the versions that a server serves.
type Versions struct {
	// Off are the versions of the registrations' group that are not served.
	Off []string
	// Builtin selects the served versions of upstream's built-in groups.
	Builtin *serverstorage.ResourceConfig
	// Legacy are the versions that this server serves and upstream no longer serves. OldClients
	// reports whether the server also has OpenAPI v2 at the path where clients of 2017 read it.
	Legacy     []schema.GroupVersion
	OldClients bool
}

// Parse chooses the served versions by the entries of --runtime-config. With later, later versions
// of served resources are served, too, if an older release is emulated.
func Parse(config []string, later bool) (Versions, error) {
	v := Versions{}
	values, err := valuesOf(config)
	if err != nil {
		return v, err
	}
	for _, version := range switchable {
		if on, given := values[registrations.Group+"/"+version]; given && !on {
			v.Off = append(v.Off, version)
		}
	}
	v.OldClients = values[legacySwitch]
	for gv := range catalog.LegacyVersions() {
		// A version's own entry takes precedence.
		on, given := values[gv.String()]
		if on || (v.OldClients && !given) {
			v.Legacy = append(v.Legacy, gv)
		}
	}
	v.Builtin = stores.Default()
	for _, gv := range optional() {
		if versionEnabled(values, gv) {
			v.Builtin.EnableVersions(gv)
		}
	}
	enable(v.Builtin, values)
	if later {
		if v.Builtin, err = resourceconfig.EmulationForwardCompatibleResourceConfig(v.Builtin, nil, catalog.Scheme); err != nil {
			return v, err
		}
		// Entries take precedence.
		enable(v.Builtin, values)
	}
	return v, nil
}

// enable applies the entries that name versions and resources. It enables them explicitly, which
// matters when an older release is emulated (S26.3).
func enable(served *serverstorage.ResourceConfig, values map[string]bool) {
	for name, on := range values {
		gv, always := onByDefault(name)
		if !always {
			gv, _ = schema.ParseGroupVersion(name)
			always = slices.Contains(optional(), gv)
		}
		if always && on {
			served.ExplicitlyEnableVersions(gv)
		}
	}
	for name, on := range values {
		if resource, ok := resourceOf(name); ok && on {
			served.ExplicitlyEnableResources(resource)
		} else if ok {
			served.ExplicitlyDisableResources(resource)
		}
	}
	// The version is on without an entry, for webhooks (S13.3, D45).
	if versionEnabled(values, betaPolicies[0].GroupVersion()) {
		served.EnableResources(betaPolicies...)
	}
}

// Serves reports whether a kind of registrations has a served version.
func (v Versions) Serves(k registration.Descriptor) bool {
	return slices.ContainsFunc(k.Versions, func(version string) bool { return !slices.Contains(v.Off, version) })
}

// Hidden are the kinds of registrations without a served version.
func (v Versions) Hidden() []string {
	var kinds []string
	for _, k := range registration.Sources() {
		if !v.Serves(k) {
			kinds = append(kinds, k.Kind)
		}
	}
	return kinds
}

// CanSwitch reports whether --runtime-config may have an entry.
func CanSwitch(entry string) bool {
	name, value, _ := strings.Cut(entry, "=")
	if value == "false" && isStability(name) {
		return false
	}
	of, resource := resourceOf(name)
	if _, always := onByDefault(name); always || resource && !slices.Contains(optional(), of.GroupVersion()) {
		return value != "false"
	}
	return resource || slices.Contains(switches(), name)
}

// ServedByDefault reports whether the version, or the resource, that an entry of
// --runtime-config names is served without the entry.
func ServedByDefault(entry string) bool {
	name, _, _ := strings.Cut(entry, "=")
	parts := strings.Split(name, "/")
	if name == "v1" || name == "api/ga" {
		return true
	}
	return len(parts) > 1 && stores.Default().GroupVersionConfigs[schema.GroupVersion{Group: parts[0], Version: parts[1]}]
}

// betaPolicies are the kinds of MutatingAdmissionPolicy in v1beta1. They are served only
// because --runtime-config asks for them.
var betaPolicies = []schema.GroupVersionResource{
	{Group: registrations.Group, Version: "v1beta1", Resource: "mutatingadmissionpolicies"},
	{Group: registrations.Group, Version: "v1beta1", Resource: "mutatingadmissionpolicybindings"},
}
