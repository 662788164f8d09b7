package suite

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// needed finds the files with objects that the policies of a file need.
type needed struct {
	set        *manifests.Set
	file, root string
	policies   []*manifests.Object
	files      map[string]bool
}

// find finds the policies, and the files with their bindings, params, namespaces, and the CRDs of their kinds.
func (n *needed) find() {
	n.files[n.file] = true
	for _, o := range n.set.Objects {
		if filepath.Clean(o.File) == n.file && isPolicy(at(o.Content, "kind")) {
			n.policies = append(n.policies, o)
		}
	}
	for _, p := range n.policies {
		spec, _ := p.Content["spec"].(map[string]any)
		param := at(spec, "paramKind", "kind")
		group, _, _ := strings.Cut(at(spec, "paramKind", "apiVersion"), "/")
		n.definition(group, func(o map[string]any) bool { return at(o, "spec", "names", "kind") == param })
		for _, rule := range mappings(walk(spec, "matchConstraints", "resourceRules")) {
			for _, group := range textsOf(walk(rule, "apiGroups")) {
				for _, resource := range textsOf(walk(rule, "resources")) {
					resource, _, _ = strings.Cut(resource, "/")
					n.definition(group, func(o map[string]any) bool { return resource == "*" || at(o, "spec", "names", "plural") == resource })
				}
			}
		}
		selects := walk(spec, "matchConstraints", "namespaceSelector") != nil
		for _, b := range n.nearest(func(o map[string]any) bool {
			return at(o, "kind") == at(p.Content, "kind")+bindingSuffix && at(o, "spec", "policyName") == at(p.Content, "metadata", "name")
		}) {
			selects = selects || walk(b.Content, "spec", "matchResources", "namespaceSelector") != nil
			name := at(b.Content, "spec", "paramRef", "name")
			if param != "" {
				n.nearest(func(o map[string]any) bool {
					return at(o, "kind") == param && (name == "" || at(o, "metadata", "name") == name)
				})
			}
		}
		if selects {
			n.nearest(func(o map[string]any) bool { return at(o, "kind") == "Namespace" && at(o, "apiVersion") == "v1" })
		}
	}
}

// namespaces adds the files with the namespaces of the needed objects, and returns the namespaces that no file has.
func (n *needed) namespaces() (missing []map[string]any) {
	known := slices.Clone(stage.Everywhere)
	for found := len(known); found > 0; {
		before := len(known)
		for _, o := range n.only().Objects {
			name := at(o.Content, "metadata", "namespace")
			if isPolicy(strings.TrimSuffix(at(o.Content, "kind"), bindingSuffix)) {
				name = at(o.Content, "spec", "paramRef", "namespace")
			}
			if name == "" || slices.Contains(known, name) {
				continue
			}
			known = append(known, name)
			if len(n.nearest(func(o map[string]any) bool {
				return at(o, "kind") == "Namespace" && at(o, "apiVersion") == "v1" && at(o, "metadata", "name") == name
			})) == 0 {
				missing = append(missing, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
			}
		}
		found = len(known) - before
	}
	return missing
}

// definition adds the file with a CRD.
func (n *needed) definition(group string, is func(map[string]any) bool) {
	if group == "" || group == "*" {
		return
	}
	n.nearest(func(o map[string]any) bool {
		return at(o, "kind") == "CustomResourceDefinition" && at(o, "spec", "group") == group && is(o)
	})
}

// nearest adds the files of the objects that match in the file, or else in the nearest folder around it that has some,
// and returns the objects.
func (n *needed) nearest(match func(map[string]any) bool) (found []*manifests.Object) {
	for within := n.file; ; within = filepath.Dir(within) {
		for _, o := range n.set.Objects {
			if name := filepath.Clean(o.File); (name == within || within == "." || strings.HasPrefix(name, within+string(filepath.Separator))) && match(o.Content) {
				found = append(found, o)
			}
		}
		if len(found) > 0 || within == n.root || within == "." || within == filepath.Dir(within) {
			break
		}
	}
	for _, o := range found {
		n.files[filepath.Clean(o.File)] = true
	}
	return found
}

// only returns the objects of the needed files.
func (n *needed) only() *manifests.Set {
	out := *n.set
	out.Objects = slices.DeleteFunc(slices.Clone(n.set.Objects), func(o *manifests.Object) bool { return !n.files[filepath.Clean(o.File)] })
	out.Problems = slices.DeleteFunc(slices.Clone(n.set.Problems), func(p manifests.Problem) bool { return !n.files[filepath.Clean(p.File)] })
	return &out
}
