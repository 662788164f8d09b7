package stores

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// AfterDelete returns the functions to call when an object was deleted other than through the
// storage of its kind, by resource. Services, for example, give back their addresses.
func AfterDelete(groups []Group) map[schema.GroupResource]func(runtime.Object) {
	after := map[schema.GroupResource]func(runtime.Object){}
	for v := range Versions(groups) {
		for name, storage := range v.Storage {
			if s := RegistryOf(storage); s != nil && s.AfterDelete != nil {
				after[schema.GroupResource{Group: v.Group, Resource: name}] = func(obj runtime.Object) {
					s.AfterDelete(obj, &metav1.DeleteOptions{})
				}
			}
		}
	}
	return after
}

// RegistryOf returns the registry that a storage is made around, nil if there is
// none. The storages of upstream embed it and have no common method for it.
func RegistryOf(storage rest.Storage) *genericregistry.Store {
	v := reflect.Indirect(reflect.ValueOf(storage))
	if v.Kind() != reflect.Struct {
		return nil
	}
	field := v.FieldByName("Store")
	if !field.IsValid() || !field.CanInterface() {
		return nil
	}
	s, _ := field.Interface().(*genericregistry.Store)
	return s
}
