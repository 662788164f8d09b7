package resources

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Computed describes the objects of a storage that computes them when a client reads them.
type Computed struct {
	// Object and List return an empty object and an empty list. A storage without lists needs no
	// List.
	Object, List func() runtime.Object
	Singular     string
	Namespaced   bool
}

var (
	_ rest.Scoper               = Computed{}
	_ rest.SingularNameProvider = Computed{}
)

// New implements rest.Storage.
func (c Computed) New() runtime.Object { return c.Object() }

// NewList implements rest.Lister.
func (c Computed) NewList() runtime.Object { return c.List() }

// Destroy implements rest.Storage.
func (c Computed) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (c Computed) NamespaceScoped() bool { return c.Namespaced }

// GetSingularName implements rest.SingularNameProvider.
func (c Computed) GetSingularName() string { return c.Singular }

// Table makes the table of an object, or of a list. cells returns the cells of an object; age is how
// old the object is, for people.
func Table[T any](obj runtime.Object, columns []metav1.TableColumnDefinition, cells func(object T, age string) []any) (*metav1.Table, error) {
	rows, err := table.MetaToTableRow(obj, func(one runtime.Object, _ metav1.Object, _, age string) ([]any, error) {
		object, ok := any(one).(T)
		if !ok {
			return nil, fmt.Errorf("a table of %T", one)
		}
		return cells(object, age), nil
	})
	if err != nil {
		return nil, err
	}
	made := &metav1.Table{ColumnDefinitions: columns, Rows: rows}
	if list, err := meta.ListAccessor(obj); err == nil {
		made.ResourceVersion, made.Continue, made.RemainingItemCount = list.GetResourceVersion(), list.GetContinue(), list.GetRemainingItemCount()
	} else if object, err := meta.CommonAccessor(obj); err == nil {
		made.ResourceVersion = object.GetResourceVersion()
	}
	return made, nil
}
