package problems

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
)

// lintTime bounds how long the response to a write of a registration waits for warnings of lint.
const lintTime = time.Second

// dangers returns the problems by which a registration stops the cluster or never works. It uses
// the rules of gatehouse lint that need only data that this server has anyway. A write calls it
// once its registration is active, and no other request waits for it.
func (r *Reporter) dangers(ctx context.Context, kind, name string) []string {
	s := r.Current()
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lintTime)
	defer cancel()
	about := lint.Object{Kind: kind, Name: name}
	world := &lint.Input{Snapshot: s, Now: time.Now(), Partial: true, Namespaces: map[string]map[string]string{}}
	list, err := r.Namespaces.List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "Cannot list namespaces for the warnings about a registration")
	}
	for _, n := range list {
		world.Namespaces[n.Name] = maps.Clone(n.Labels)
		if world.Namespaces[n.Name] == nil {
			world.Namespaces[n.Name] = map[string]string{}
		}
		world.Namespaces[n.Name][corev1.LabelMetadataName] = n.Name
	}
	report := lint.Check(ctx, world, lint.Options{Rules: lint.RulesOnWrite(), About: func(o lint.Object) bool { return o == about }})
	var warnings []string
	for i := range report.Findings {
		if f := &report.Findings[i]; f.Level == lint.Error {
			warnings = append(warnings, fmt.Sprintf("%s: %s (%s, see gatehouse lint --explain %[3]s)", f.Field(), f.Message, f.Rule.ID))
		}
	}
	return warnings
}

// kindOf returns the kind of registrations of a resource.
func kindOf(resource string) string {
	for _, d := range registration.Sources() {
		if d.Resource == resource {
			return d.Kind
		}
	}
	return ""
}
