package command

import (
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
