package command

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// watched is a resource with the given watches, in order; a nil watch is expired.
type watched struct {
	dynamic.ResourceInterface
	watches []func(*watch.FakeWatcher)
	since   []string
}

func (w *watched) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion("listed")
	return list, nil
}

func (w *watched) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w.since = append(w.since, o.ResourceVersion)
	send := w.watches[0]
	if w.watches = w.watches[1:]; send == nil {
		return nil, apierrors.NewResourceExpired("too old")
	}
	events := watch.NewFakeWithChanSize(10, false)
	send(events)
	events.Stop()
	return events, nil
}

func at(version string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetResourceVersion(version)
	return u
}

// FollowTraces resumes after a watch that ends, starts anew with a note after lost events, and returns errors.
func TestTracesAreFollowed(t *testing.T) {
	enough := errors.New("enough")
	client := &watched{watches: []func(*watch.FakeWatcher){
		func(w *watch.FakeWatcher) { w.Add(at("1")); w.Modify(at("2")); w.Action(watch.Bookmark, at("3")) },
		func(w *watch.FakeWatcher) { w.Error(&metav1.Status{}) },
		nil,
		func(w *watch.FakeWatcher) { w.Add(at("4")) },
	}}
	var got []string
	var begun int
	var errs strings.Builder
	err := FollowTraces(t.Context(), client, "", func() { begun++ }, func(u *unstructured.Unstructured) error {
		if got = append(got, u.GetResourceVersion()); len(got) == 2 {
			return enough
		}
		return nil
	}, &errs)
	if !errors.Is(err, enough) || begun != 1 || !slices.Equal(got, []string{"1", "4"}) {
		t.Errorf("error %v, began %d times, got %q", err, begun, got)
	}
	if want := []string{"listed", "3", "listed", "listed"}; !slices.Equal(client.since, want) {
		t.Errorf("watched since %q, want %q", client.since, want)
	}
	if n := strings.Count(errs.String(), "Some requests are missing"); n != 2 {
		t.Errorf("%d times: %q", n, errs.String())
	}
}
