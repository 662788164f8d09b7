package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// AdmissionTraces is the resource of the traces of recent requests.
var AdmissionTraces = schema.GroupVersionResource{Group: "gatehouse.dev", Version: "v1alpha1", Resource: "admissiontraces"}

// maxReporting is the largest number of group versions of other servers that are queried.
const maxReporting = 16

// Reporting returns the group versions of other servers that serve traces and explanations of their own
// requests. These servers embed the engine and announce themselves. Without the right to list
// admissionservers there are none.
func Reporting(ctx context.Context, client dynamic.Interface) []schema.GroupVersion {
	list, err := client.Resource(schema.GroupVersionResource{Group: AdmissionTraces.Group, Version: AdmissionTraces.Version, Resource: "admissionservers"}).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	var found []schema.GroupVersion
	for i := range list.Items {
		text, _, _ := unstructured.NestedString(list.Items[i].Object, "reports")
		gv, err := schema.ParseGroupVersion(text)
		// The group and the version become parts of a path.
		valid := err == nil && len(validation.IsDNS1123Subdomain(gv.Group)) == 0 && len(validation.IsDNS1035Label(gv.Version)) == 0
		if valid && gv.Group != AdmissionTraces.Group && !slices.Contains(found, gv) && len(found) < maxReporting {
			found = append(found, gv)
		}
	}
	return found
}

// ServerTraces reads the traces of the main server and of the servers behind it.
type ServerTraces struct {
	// Main reads the traces of the main server.
	Main dynamic.ResourceInterface
	// Behind reads the traces of other servers, by group version.
	Behind map[schema.GroupVersion]dynamic.ResourceInterface
	// Errs receives a line for each other server that cannot be read.
	Errs io.Writer
}

// List returns the traces of all servers, ordered by their start.
func (s ServerTraces) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list, err := s.Main.List(ctx, o)
	if err != nil {
		return nil, err
	}
	for gv, traces := range s.Behind {
		others, err := traces.List(ctx, o)
		if err != nil {
			terminal.Fprintf(s.Errs, "The traces of the server of %s cannot be read: %v\n", gv, err)
			continue
		}
		list.Items = append(list.Items, others.Items...)
	}
	slices.SortStableFunc(list.Items, func(a, b unstructured.Unstructured) int { return begun(a).Compare(begun(b)) })
	return list, nil
}

// begun returns the start of the request of a trace.
func begun(u unstructured.Unstructured) time.Time {
	text, _, _ := unstructured.NestedString(u.Object, "start")
	// A trace with another format of the time sorts first.
	at, _ := time.Parse(time.RFC3339Nano, text)
	return at
}

// Get returns a trace by name from the first server that has it.
func (s ServerTraces) Get(ctx context.Context, name string, o metav1.GetOptions, subresources ...string) (*unstructured.Unstructured, error) {
	t, err := s.Main.Get(ctx, name, o, subresources...)
	if err == nil {
		return t, nil
	}
	for _, traces := range s.Behind {
		if t, err := traces.Get(ctx, name, o, subresources...); err == nil {
			return t, nil
		}
	}
	return nil, err
}

// TraceError adds the likely cause to an error of reading traces.
func TraceError(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; reading traces needs the verbs get, list and watch on admissiontraces in the group gatehouse.dev", err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w; the server may not be Gatehouse, or may be an older version", err)
	}
	return err
}

// DecodeTrace decodes a trace.
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

// DecodeTraces decodes a list of traces and keeps its order.
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

// nothingSelected is a field selector without a match: the list is empty and has the server's resourceVersion.
const nothingSelected = "metadata.name=-"

// FollowTraces calls each for every selected trace, from now until ctx ends or each returns an error. It calls
// begun as soon as no later trace can be missed. It reports missing traces on errs.
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

// Follow calls each for every watch event, until ctx ends or each returns an error. begin returns the
// resourceVersion to start from. Follow calls it again when events were lost.
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
