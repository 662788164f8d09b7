package resources

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/initialization"
)

// transforms reports whether the client may get tables or bare metadata instead of objects.
// k8s.io/apiserver encodes tables and metadata with a codec of its own, which would show the
// annotation of initializers. They are therefore made of objects without that annotation.
func transforms(req *http.Request) bool {
	for _, accept := range req.Header.Values("Accept") {
		// A parameter's name and its value may have blanks around them.
		for found := true; found; {
			if _, accept, found = strings.Cut(accept, "as"); found && strings.HasPrefix(strings.TrimLeft(accept, " \t"), "=") {
				return true
			}
		}
	}
	return false
}

// bare returns the object, list or event without metadata.initializers. The result is nearly
// always the argument itself, and otherwise a copy.
func bare(obj runtime.Object) runtime.Object {
	if obj == nil || !initialization.Carries(obj) {
		return obj
	}
	if shared, ok := obj.(runtime.CacheableObject); ok {
		// GetObject returns a copy.
		obj = shared.GetObject()
	} else {
		obj = obj.DeepCopyObject()
	}
	initialization.Strip(obj)
	return obj
}
