package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// AdmissionTraces is where a server keeps the traces of the latest requests.
var AdmissionTraces = schema.GroupVersionResource{Group: "gatehouse.dev", Version: "v1alpha1", Resource: "admissiontraces"}

// TraceError says of an error what may be behind it.
func TraceError(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; reading traces needs the verbs get, list and watch on admissiontraces in the group gatehouse.dev", err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w; the server may not be Gatehouse, or may be an older version", err)
	}
	return err
}

// DecodeTrace returns a trace that a server sent.
func DecodeTrace(u *unstructured.Unstructured) (*v1alpha1.AdmissionTrace, error) {
	data, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	t := &v1alpha1.AdmissionTrace{}
	if err := json.Unmarshal(data, t); err != nil {
		return nil, fmt.Errorf("reading a trace: %w", err)
	}
	return t, nil
}

// DecodeTraces returns the traces of a list that a server sent, in its order.
func DecodeTraces(list *unstructured.UnstructuredList) ([]*v1alpha1.AdmissionTrace, error) {
	var items []*v1alpha1.AdmissionTrace
	for i := range list.Items {
		t, err := DecodeTrace(&list.Items[i])
		if err != nil {
			return nil, err
		}
		items = append(items, t)
	}
	return items, nil
}

// nothingSelected is a selector that no trace has: a list with it is empty and has the
// server's resourceVersion.
const nothingSelected = "metadata.name=-"

// FollowTraces calls each with the traces that a selector selects, from now on until ctx ends or
// each returns an error. It calls begun once it would miss none. On errs it says when some are missing.
func FollowTraces(ctx context.Context, client dynamic.ResourceInterface, selector string, begun func(), each func(*unstructured.Unstructured) error, errs io.Writer) error {
	again := false
	err := Follow(ctx, client, metav1.ListOptions{FieldSelector: selector}, func() (string, error) {
		if again {
			fmt.Fprintln(errs, "Some requests are missing: they arrived faster than the command could show them.")
		}
		list, err := client.List(ctx, metav1.ListOptions{FieldSelector: nothingSelected})
		if err != nil {
			return "", err
		}
		if !again {
			begun()
		}
		again = true
		return list.GetResourceVersion(), nil
	}, func(kind watch.EventType, u *unstructured.Unstructured) error {
		if kind != watch.Added {
			return nil
		}
		return each(u)
	})
	if ctx.Err() != nil {
		return nil
	}
	return TraceError(err)
}

// Follow calls each with what happens to objects, until ctx ends or each returns an error. begin says since which
// version; Follow calls it again when events were lost.
func Follow(ctx context.Context, client dynamic.ResourceInterface, o metav1.ListOptions, begin func() (version string, err error), each func(watch.EventType, *unstructured.Unstructured) error) error {
	for ctx.Err() == nil {
		if o.ResourceVersion == "" {
			var err error
			if o.ResourceVersion, err = begin(); err != nil {
				return err
			}
		}
		events, err := client.Watch(ctx, o)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			o.ResourceVersion = ""
			continue
		}
		if err != nil {
			return err
		}
		for event := range events.ResultChan() {
			u, ok := event.Object.(*unstructured.Unstructured)
			if event.Type == watch.Error || !ok {
				o.ResourceVersion = ""
				break
			}
			o.ResourceVersion = u.GetResourceVersion()
			if event.Type == watch.Bookmark {
				continue
			}
			if err := each(event.Type, u); err != nil {
				events.Stop()
				return err
			}
		}
		events.Stop()
	}
	return nil
}
