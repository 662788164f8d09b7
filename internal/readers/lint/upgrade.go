package lint

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Upgrade is a release of Kubernetes with which the registrations must work.
type Upgrade struct {
	// From is the present release; nil if unknown. To is the target.
	From, To *version.Version
	// Known is the release of the built-in data: APIs that later releases introduce are unknown.
	Known *version.Version
	// Lives are the built-in kinds of all releases.
	Lives []Life
	// Flags and Plugins of the kube-apiserver of release Known. Dropped has the replacements of
	// plugins that it no longer has.
	Flags, Plugins map[string]bool
	Dropped        map[string]string
	// Gates are feature gates that components of the target refuse.
	Gates map[string]Gate
	// Servers are command lines and plugin lists of kube-apiserver, and feature gates of other components, found in files.
	Servers []ServerOption
	// Versions are the API versions of the objects in files.
	Versions map[Object]string
}

// Life has the releases of Kubernetes that serve a version of a kind.
type Life struct {
	schema.GroupVersionResource
	Kind string
	// Introduced is nil if unknown, Deprecated and Removed if not planned.
	Introduced, Deprecated, Removed *version.Version
	// Replacement is the kind to use instead, empty if there is none.
	Replacement schema.GroupVersionKind
}

// served reports whether a release serves the version.
func (l *Life) served(release *version.Version) bool {
	return (l.Introduced == nil || release.AtLeast(l.Introduced)) && (l.Removed == nil || release.LessThan(l.Removed))
}

// stable reports whether the version is served by default.
func (l *Life) stable() bool {
	return !strings.Contains(l.Version, "alpha") && !strings.Contains(l.Version, "beta")
}

// ServerOption is a flag of a kube-apiserver, or a plugin of an AdmissionConfiguration.
type ServerOption struct {
	Object
	Path []any
	// Flag is the name of the flag without dashes, and Value its value. A Plugin has no flag.
	Flag, Value, Plugin string
}

// life returns the first Life that satisfies a test; nil if there is none.
func (u *Upgrade) life(test func(*Life) bool) *Life {
	for i := range u.Lives {
		if test(&u.Lives[i]) {
			return &u.Lives[i]
		}
	}
	return nil
}

// emptied reports whether a version of a group of Kubernetes has no kind at the target.
func (u *Upgrade) emptied(group, v string) bool {
	in := func(l *Life) bool { return l.Group == group && l.Version == v }
	return u.life(in) != nil && u.life(func(l *Life) bool { return in(l) && l.served(u.To) }) == nil
}

// instead returns a text with the replacement of a version that the target does not serve.
func (u *Upgrade) instead(l *Life) string {
	if r := l.Replacement; !r.Empty() {
		if next := u.life(func(o *Life) bool { return o.Group == r.Group && o.Version == r.Version && o.Kind == r.Kind }); next == nil || next.served(u.To) {
			return "; write " + r.GroupVersion().String() + " " + r.Kind
		}
	}
	var best *Life
	for i := range u.Lives {
		o := &u.Lives[i]
		if o.Group == l.Group && o.Kind == l.Kind && o.served(u.To) && (best == nil || o.stable() && !best.stable()) {
			best = o
		}
	}
	if best == nil {
		return "; nothing replaces it"
	}
	return "; write " + best.GroupVersion().String() + " " + best.Kind
}

// absence returns the reason why the target does not serve a version.
func (u *Upgrade) absence(l *Life) string {
	if l.Introduced != nil && u.To.LessThan(l.Introduced) {
		return "comes with " + minor(l.Introduced)
	}
	return "was removed in " + minor(l.Removed)
}

// minor formats a release as MAJOR.MINOR.
func minor(v *version.Version) string { return fmt.Sprintf("%d.%d", v.Major(), v.Minor()) }

var upgradeRuleRemoved = &Rule{
	ID: "upgrade-rule-removed", Level: Error, Upgrade: true,
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		u := p.Upgrade
		for i := range e.Rules {
			p.removed(u, e, i)
		}
		if e.Policy == nil || e.Entry.Policy.ParamKind == nil {
			return
		}
		kind := *e.Entry.Policy.ParamKind
		l := u.life(func(l *Life) bool { return l.GroupVersion().WithKind(l.Kind) == kind })
		if l != nil && !l.served(u.To) {
			p.finds(at(e.Entry, "paramKind"), "the params of %s are of %s %s, which %s%s", e, kind.GroupVersion(), kind.Kind, u.absence(l), u.instead(l))
		}
	}),
}

// removed checks one rule of an entry.
func (p *pass) removed(u *Upgrade, e *snapshot.Entry, i int) {
	r := &e.Rules[i]
	var gone []string
	instead, left := "", false
	for _, group := range r.APIGroups {
		for _, v := range r.APIVersions {
			for _, resource := range r.Resources {
				resource, _, _ = strings.Cut(resource, "/")
				var known, served *Life
				for k := range u.Lives {
					l := &u.Lives[k]
					if l.Group != group && group != "*" || l.Version != v && v != "*" || l.Resource != resource && resource != "*" {
						continue
					}
					known = l
					if l.served(u.To) {
						served = l
					}
				}
				if known == nil && u.emptied(group, v) {
					// Kubernetes once had such a kind in the version, and the current tables do
					// not.
					continue
				}
				if known == nil || served != nil {
					// A group that Kubernetes does not have belongs to custom resources.
					left = true
					continue
				}
				text := fmt.Sprintf("%s of %s %s", known.Resource, known.GroupVersion(), u.absence(known))
				if !slices.Contains(gone, text) {
					gone = append(gone, text)
				}
				instead = u.instead(known)
			}
		}
	}
	if len(gone) == 0 {
		return
	}
	where := at(e.Entry, append(rulesPath(e.Entry, i), "apiVersions")...)
	if left {
		p.findsAs(Note, where, "rule %d of %s names more than Kubernetes %s serves: %s%s", i+1, e, minor(u.To), few(gone), instead)
		return
	}
	p.finds(where, "rule %d of %s matches nothing on Kubernetes %s: %s%s", i+1, e, minor(u.To), few(gone), instead)
}

var upgradeRuleMisses = &Rule{
	ID: "upgrade-rule-misses-version", Level: Warning, Upgrade: true, Advice: "match-all-versions",
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		u := p.Upgrade
		if e.Equivalent || e.Source == registration.Initializing {
			return
		}
		for i := range u.Lives {
			l := &u.Lives[i]
			if !l.stable() || l.Introduced == nil || !l.served(u.To) || u.From != nil && u.From.AtLeast(l.Introduced) || matchesAny(e.Rules, probeOf(l)) {
				continue
			}
			named := u.life(func(o *Life) bool {
				return o.Group == l.Group && o.Resource == l.Resource && o.Version != l.Version && o.served(u.To) && matchesAny(e.Rules, probeOf(o))
			})
			if named != nil {
				p.finds(at(e.Entry), "the rules of %s name %s of %s and not %s, which Kubernetes serves since %s: matchPolicy is Exact",
					e, l.Resource, named.GroupVersion(), l.GroupVersion(), minor(l.Introduced))
			}
		}
	}),
}

// probeOf returns a request that creates an object of a kind.
func probeOf(l *Life) *plan.Request {
	return &plan.Request{Operation: admission.Create, Resource: l.GroupVersionResource, Kind: l.GroupVersion().WithKind(l.Kind), Namespace: "default"}
}

var upgradeAPIVersion = &Rule{
	ID: "upgrade-registration", Level: Error, Upgrade: true,
	check: func(p *pass) {
		u := p.Upgrade
		for _, o := range slices.SortedFunc(maps.Keys(p.Written), func(a, b Object) int { return strings.Compare(a.String(), b.String()) }) {
			gv, err := schema.ParseGroupVersion(p.Written[o].APIVersion)
			if err != nil || gv.Group != registration.GroupName {
				continue
			}
			l := u.life(func(l *Life) bool { return l.GroupVersion() == gv && l.Kind == o.Kind })
			switch {
			case l == nil:
				p.finds(place{o, []any{"apiVersion"}}, "Kubernetes %s serves no %s of %s; use webhooks or policies", minor(u.To), o.Kind, gv)
			case !l.served(u.To):
				p.finds(place{o, []any{"apiVersion"}}, "%s of %s %s%s", o.Kind, gv, u.absence(l), u.instead(l))
			}
		}
	},
}

var upgradeKind = &Rule{
	ID: "upgrade-kind", Level: Error, Upgrade: true,
	check: func(p *pass) {
		u := p.Upgrade
		for _, o := range slices.SortedFunc(maps.Keys(u.Versions), compareObjects) {
			gv, err := schema.ParseGroupVersion(u.Versions[o])
			if err != nil || gv.Group == registration.GroupName {
				continue
			}
			l := u.life(func(l *Life) bool { return l.GroupVersion() == gv && l.Kind == o.Kind })
			if l != nil && !l.served(u.To) {
				p.finds(place{o, []any{"apiVersion"}}, "%s of %s %s%s", o.Kind, gv, u.absence(l), u.instead(l))
			}
		}
	},
}

var upgradeReview = &Rule{
	ID: "upgrade-review-version", Level: Warning, Upgrade: true,
	check: eachWebhook(func(p *pass, e *snapshot.Entry) {
		if e.Source != registration.External && !slices.Contains(e.ReviewVersions, "v1") {
			p.finds(at(e.Entry, "admissionReviewVersions"), "the webhook %s takes reviews of version %s only", e.Name, and(e.ReviewVersions))
		}
	}),
}

var upgradeExpression = &Rule{
	ID: "upgrade-expression", Level: Error, Upgrade: true,
	check: eachFact(func(p *pass, f *fact) {
		u := p.Upgrade
		if !u.To.LessThan(u.Known) {
			return
		}
		if names := f.analysis.MissingIn(u.To); len(names) > 0 {
			since := ""
			for next := u.To; next.LessThan(u.Known) && since == ""; {
				if next = next.AddMinor(1); len(f.analysis.MissingIn(next)) == 0 {
					since = "; Kubernetes " + minor(next) + " does"
				}
			}
			p.finds(f.at(), "Kubernetes %s does not have %s%s", minor(u.To), and(names), since)
		}
	}),
}

var upgradeServer = &Rule{
	ID: "upgrade-server-options", Level: Error, Upgrade: true,
	check: func(p *pass) {
		u := p.Upgrade
		if len(u.Servers) > 0 && u.To.LessThan(u.Known) {
			p.misses("which flags and plugins kube-apiserver %s has: %s", minor(u.To), p.rule.ID)
			return
		}
		for i := range u.Servers {
			o := &u.Servers[i]
			where := place{o.Object, o.Path}
			var plugins []string
			switch {
			case o.Plugin != "":
				plugins = []string{o.Plugin}
			case len(u.Flags) > 0 && !u.Flags[o.Flag]:
				p.finds(where, "kube-apiserver %s has no flag --%s", minor(u.Known), o.Flag)
			case o.Flag == "feature-gates":
				p.gates(u, where, o.Value)
			case o.Flag == "runtime-config":
				p.runtimeConfig(u, where, o.Value)
			case slices.Contains([]string{"admission-control", "enable-admission-plugins", "disable-admission-plugins"}, o.Flag):
				plugins = strings.Split(o.Value, ",")
			}
			for _, name := range plugins {
				if name = strings.TrimSpace(name); name == "" || len(u.Plugins) == 0 || u.Plugins[name] {
					continue
				}
				instead := ""
				if by := u.Dropped[name]; by != "" {
					instead = ": " + by
				}
				p.finds(where, "kube-apiserver %s has no admission plugin %s%s", minor(u.Known), name, instead)
			}
		}
	},
}

// settings calls do for each NAME=true and NAME=false of a list.
func settings(list string, do func(name string, on bool)) {
	for setting := range strings.SplitSeq(list, ",") {
		name, value, given := strings.Cut(strings.TrimSpace(setting), "=")
		if on, err := strconv.ParseBool(value); err == nil || !given {
			do(name, on || !given)
		}
	}
}

// gates checks the value of --feature-gates.
func (p *pass) gates(u *Upgrade, where place, value string) {
	settings(value, func(name string, on bool) {
		// A gate of one component is COMPONENT:GATE.
		name = name[strings.Index(name, ":")+1:]
		gate, refused := u.Gates[name]
		switch {
		case refused && gate.Locked == "":
			p.finds(where, "Kubernetes %s has no feature gate %s: a component that sets it does not start (%s)", minor(u.Known), name, gate.Source)
		case refused && gate.Locked != strconv.FormatBool(on):
			p.finds(where, "Kubernetes %s locks the feature gate %s to %s: a component that sets it to %t does not start (%s)", minor(u.Known), name, gate.Locked, on, gate.Source)
		}
	})
}

// runtimeConfig checks the value of --runtime-config.
func (p *pass) runtimeConfig(u *Upgrade, where place, value string) {
	settings(value, func(name string, on bool) {
		words := strings.Split(name, "/")
		if on && len(words) > 1 && u.emptied(words[0], words[1]) {
			p.findsAs(Warning, where, "--runtime-config enables %s/%s, which Kubernetes %s does not serve", words[0], words[1], minor(u.To))
		}
	})
}
