package dev

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// manifestWatcher reports changes of the manifests. A nil manifestWatcher reports none.
type manifestWatcher struct {
	*watcher
	// sources are the absolute paths of the manifests, as keys.
	sources sync.Map
}

// watchManifests makes a watcher that watches until ctx ends.
func watchManifests(ctx context.Context) (m *manifestWatcher, err error) {
	m = &manifestWatcher{}
	m.watcher, err = newWatcher(ctx, func(path string) bool {
		absolute, _ := filepath.Abs(path)
		_, read := m.sources.Load(absolute)
		return read || manifests.IsManifest(path)
	})
	return m, err
}

// reading watches a file or a directory that is about to be read.
func (m *manifestWatcher) reading(path string) {
	if m == nil {
		return
	}
	if absolute, err := filepath.Abs(path); err == nil {
		m.sources.Store(absolute, nil)
	}
	m.around(path)
}

// changed returns the channel of changed files.
func (m *manifestWatcher) changed() <-chan string {
	if m == nil {
		return nil
	}
	return m.changes
}

// reapply applies the changes of the manifests to the server, and deletes applied objects that are no longer in them. If
// the manifests cannot be read, it changes nothing. restart reports whether a program has other arguments, environment or
// files now, which it reads at its start.
func (s *session) reapply(ctx context.Context, authority []byte) (restart bool, err error) {
	p, err := s.read(ctx)
	if err != nil {
		if text := err.Error(); text != s.broken {
			s.broken = text
			s.Say("The manifests changed and cannot be read; the applied objects stay: %s", text)
		}
		return false, nil
	}
	if len(p.services()) == 0 {
		// The new manifests name no other program.
		p.targets = s.project.targets
	}
	if !slices.EqualFunc(p.targets, s.project.targets, func(a, b *target) bool { return a.port == b.port && slices.Equal(a.services, b.services) }) {
		s.sayOnce("The manifests changed: the program has another service or port now; the applied objects stay. Start 'gatehouse dev' again for it.")
		return false, nil
	}
	if err := p.prepare(authority, certificateIn(s.programs[0].files)); err != nil {
		return false, err
	}
	s.project, s.made, s.broken = p, nil, ""
	s.sayRemarks()
	gone, err := s.prune(ctx)
	if err != nil {
		return false, err
	}
	if err := s.load(ctx); err != nil {
		return false, err
	}
	if err := s.apply(ctx, s.later); err != nil {
		return false, err
	}
	if restart, err = s.redescribe(ctx); err != nil {
		return false, err
	}
	var did []string
	if len(s.made) > 0 {
		did = append(did, "applied "+report.Some(s.made, 3))
	}
	if len(gone) > 0 {
		did = append(did, "deleted "+report.Some(gone, 3))
	}
	if restart {
		did = append(did, "the program starts again with other arguments or another environment")
	}
	if did == nil {
		return false, nil
	}
	s.Say("The manifests changed: %s.", strings.Join(did, "; "))
	if !restart {
		s.sayMistakes(ctx)
	}
	return restart, nil
}

// prune deletes applied objects that are no longer in the manifests. Namespaces and CRDs stay, since they may have
// objects of other owners.
func (s *session) prune(ctx context.Context) (gone []string, err error) {
	now := map[string]bool{}
	for _, u := range append(slices.Clone(s.project.objects), s.project.others...) {
		now[keyOf(u)] = true
	}
	// Registrations are deleted first, so that they do not affect the other deletions.
	keys := slices.SortedFunc(maps.Keys(s.applied), func(a, b string) int {
		return cmp.Or(cmp.Compare(deletionOrder(s.applied[a]), deletionOrder(s.applied[b])), strings.Compare(a, b))
	})
	for _, key := range keys {
		u := s.applied[key]
		if now[key] {
			continue
		}
		if u.GetKind() == "Namespace" || u.GetKind() == "CustomResourceDefinition" {
			s.sayOnce("%s is no longer in the manifests. It stays, since others may have objects in it.", titleOf(u))
			continue
		}
		kind := s.stage.Kinds().Of(u.GroupVersionKind())
		path := stage.Path(kind, nameOf(u).Namespace, u.GetName())
		a, err := s.stage.Admin().Do(ctx, stage.HTTPRequest{Method: http.MethodDelete, Path: path})
		if err != nil {
			return nil, err
		}
		if !a.OK() && a.Code != http.StatusNotFound {
			s.Say("%s was not deleted: %s", titleOf(u), a.Status.Message)
			continue
		}
		delete(s.applied, key)
		gone = append(gone, titleOf(u))
	}
	return gone, nil
}

// deletionOrder returns the position of an object in the deletion order.
func deletionOrder(u *unstructured.Unstructured) int {
	if u.GroupVersionKind().Group == registration.GroupName {
		return 0
	}
	return 1
}

// keyOf returns a key of an object that is the same in all versions.
func keyOf(u *unstructured.Unstructured) string {
	return u.GroupVersionKind().GroupKind().String() + " " + nameOf(u).String()
}

func titleOf(u *unstructured.Unstructured) string {
	return report.Title(u.GetKind(), u.GetNamespace(), u.GetName())
}
