package customresources

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/finalizer"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// finalizing finds the objects of CRDs that are being deleted.
type finalizing struct{ *Server }

// GetCustomResourceListerCollectionDeleter returns the store of the objects of a CRD. It returns
// when the last creation is over: from then on, a list shows all objects. Stores hold all objects,
// also uninitialized ones.
func (f finalizing) GetCustomResourceListerCollectionDeleter(crd *apiextensionsv1.CustomResourceDefinition) (finalizer.ListerCollectionDeleter, error) {
	e, ok := (*f.snapshot.Load())[keyOf(crd)]
	if !ok || e.crd.UID != crd.UID {
		return nil, errors.New("it is not served")
	}
	e.creations.close()
	select {
	case <-e.creations.empty:
		made, err := e.open()
		if err != nil {
			return nil, err
		}
		return emptied{made.stores[e.stored].REST}, nil
	case <-e.retired.Done():
		return nil, errors.New("it changed a moment ago")
	}
}

// finalizerPeriod is a little more than the time that upstream's finalizer waits before it lists
// the objects again.
const finalizerPeriod = 6 * time.Second

// emptied are the objects of a CRD that is being deleted. Upstream's finalizer lists them until
// none is left, for a minute.
type emptied struct {
	finalizer.ListerCollectionDeleter
}

// List returns the objects. If objects are left and there is no time for another list, List returns
// an error that names them: otherwise upstream's finalizer would continue until its time is over,
// and its error would not name them.
func (e emptied) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	list, err := e.ListerCollectionDeleter.List(ctx, options)
	if err != nil {
		return nil, err
	}
	deadline, limited := ctx.Deadline()
	left, ok := list.(*unstructured.UnstructuredList)
	if !ok || !limited || len(left.Items) == 0 || time.Until(deadline) > finalizerPeriod {
		return list, nil
	}
	first := left.Items[0]
	return nil, fmt.Errorf("objects still there: %d; %s waits for its finalizers %q",
		len(left.Items), path.Join(first.GetNamespace(), first.GetName()), first.GetFinalizers())
}
