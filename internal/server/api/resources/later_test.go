package resources

import (
	"reflect"
	"slices"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
)

// S26.13: a client of an emulated server may send an object back as it was read.
func TestAnEmptyLaterStatusIsNoField(t *testing.T) {
	l := &Later{Fields: emulation.FieldsOf("1.36")}
	for body, want := range map[string][]string{
		`{"metadata":{"name":"a"},"status":{}}`:                nil,
		`{"metadata":{"name":"a"},"status":{"conditions":[]}}`: {"status"},
	} {
		if _, later := l.clean([]byte(body), "application/json", reflect.TypeFor[storagev1.CSINode]()); !slices.Equal(later, want) {
			t.Errorf("%s: later fields %q, want %q", body, later, want)
		}
	}
}
