package resources

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/registry/rest"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// patch serves PATCH. k8s.io/apiserver applies strategic merge patches to typed
// objects, which have an annotation in place of metadata.initializers: patch itself applies a
// patch that may change the annotation or the field, to the object as the client sees it. JSON patches
// and JSON merge patches are applied by package userpatch (S27.11).
func (e *Endpoint) patch(storage rest.Patcher, admit admission.Interface) http.HandlerFunc {
	plain := handlers.PatchResource(storage, e.Scope, admit, e.PatchTypes)
	return func(w http.ResponseWriter, req *http.Request) {
		mediaType := mediaTypeOf(req)
		switch types.PatchType(mediaType) {
		case types.JSONPatchType, types.MergePatchType:
			if slices.Contains(e.PatchTypes, mediaType) {
				e.textPatch(storage, admit, plain, w, req)
				return
			}
		}
		strategic := mediaType == string(types.StrategicMergePatchType)
		if (!strategic && mediaType != string(types.ApplyYAMLPatchType)) || !slices.Contains(e.PatchTypes, mediaType) {
			plain(w, req)
			return
		}
		body, err := readBody(req, e.Scope.MaxRequestBodyBytes)
		if err != nil {
			responsewriters.ErrorNegotiated(err, e.Scope.Serializer, e.Kind.GroupVersion(), w, req)
			return
		}
		storage, plain := storage, plain
		if strategic {
			storage = boundLists(storage, body)
			plain = handlers.PatchResource(storage, e.Scope, admit, e.PatchTypes)
		}
		touched, annotation := mentions(body, !strategic)
		if annotation {
			responsewriters.ErrorNegotiated(apierrors.NewBadRequest(fmt.Sprintf("metadata.annotations[%s] is reserved: write metadata.initializers instead", initializers.Annotation)),
				e.Scope.Serializer, e.Kind.GroupVersion(), w, req)
			return
		}
		if !strategic || !touched {
			req.Body = io.NopCloser(bytes.NewReader(body))
			plain(w, req)
			return
		}
		apply, err := e.strategic(body)
		if err != nil {
			responsewriters.ErrorNegotiated(err, e.Scope.Serializer, e.Kind.GroupVersion(), w, req)
			return
		}
		e.patchText(storage, admit, body, apply, w, req)
	}
}

// mentions reports whether a patch may change metadata.initializers, by name or as part of a
// field that the patch removes or replaces, and whether it names the annotation that carries
// the field inside the server. Both are false for a body that cannot be read.
func mentions(body []byte, inYAML bool) (touched, annotation bool) {
	// Names can be escaped, or tagged in YAML, which can be UTF-16 and then has zero
	// bytes; directives begin with a dollar sign.
	if !bytes.Contains(body, []byte("initializers")) && !bytes.ContainsAny(body, "\\!$\x00") && !bytes.Contains(body, null) {
		return false, false
	}
	if inYAML {
		var err error
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return false, false
		}
	}
	// If a member occurs twice, k8s.io/apiserver uses the last one, and so does this function.
	var patch map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(body, &patch) != nil {
		return false, false
	}
	metadata, isObject := patch["metadata"].(map[string]any)
	if !isObject {
		_, touched = patch["metadata"]
		return touched || directed(patch), false
	}
	_, named := metadata["initializers"]
	annotations, isObject := metadata["annotations"].(map[string]any)
	_, whole := metadata["annotations"]
	_, annotation = annotations[initializers.Annotation]
	return named || whole && !isObject || directed(patch) || directed(metadata) || directed(annotations), annotation
}

var null = []byte("null")

// directed reports whether an object in a strategic merge patch has a merge directive.
func directed(object map[string]any) bool {
	for name := range object {
		if strings.HasPrefix(name, "$") {
			return true
		}
	}
	return false
}

// strategic returns the function that applies a strategic merge patch.
func (e *Endpoint) strategic(body []byte) (textApply, error) {
	var patch map[string]any
	duplicates, err := kjson.UnmarshalStrict(body, &patch)
	if err != nil {
		return nil, apierrors.NewBadRequest("decoding strategic merge patch: " + err.Error())
	}
	schema, err := e.patchMeta()
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return func(_ context.Context, object []byte, strict bool) (patched []byte, errs []error, err error) {
		var current map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(object, &current); err != nil {
			return nil, nil, err
		}
		merged, err := strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(current, runtime.DeepCopyJSON(patch), schema)
		if err != nil {
			// The error names only the patch: it must not quote the object.
			return nil, nil, apierrors.NewBadRequest("applying strategic merge patch: " + err.Error())
		}
		if strict {
			errs = duplicates
		}
		patched, err = json.Marshal(merged)
		return patched, errs, err
	}, nil
}

// patchMeta returns a lookup of merge keys: for the kind in its Go type, and for
// metadata.initializers in a type of this package.
func (e *Endpoint) patchMeta() (strategicpatch.LookupPatchMeta, error) {
	obj, err := e.Scope.Creater.New(e.Kind)
	if err != nil {
		return nil, err
	}
	inner, err := strategicpatch.NewPatchMetaFromStruct(obj)
	if err != nil {
		return nil, err
	}
	metadata, err := strategicpatch.NewPatchMetaFromStruct(struct {
		Metadata struct {
			metav1.ObjectMeta `json:",inline"`
			Initializers      *struct {
				Pending []initializers.Initializer `json:"pending" patchStrategy:"merge" patchMergeKey:"name"`
				Result  *metav1.Status             `json:"result"`
				Paired  []initializers.Pair        `json:"paired" patchStrategy:"merge" patchMergeKey:"name"`
			} `json:"initializers"`
		} `json:"metadata"`
	}{})
	if err != nil {
		return nil, err
	}
	return patchSchema{LookupPatchMeta: inner, metadata: metadata}, nil
}

type patchSchema struct {
	strategicpatch.LookupPatchMeta
	metadata strategicpatch.LookupPatchMeta
}

func (s patchSchema) LookupPatchMetadataForStruct(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	if key == "metadata" {
		return s.metadata.LookupPatchMetadataForStruct(key)
	}
	return s.LookupPatchMeta.LookupPatchMetadataForStruct(key)
}

// withStrict returns the error of decoding a patched object, with the errors of strict decoding of the patch.
func withStrict(strict []error, err error) error {
	if len(strict) == 0 {
		return err
	}
	if err != nil {
		inner, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			return err
		}
		strict = append(slices.Clip(strict), inner.Errors()...)
	}
	return runtime.NewStrictDecodingError(strict)
}

func strictSerializers(s runtime.NegotiatedSerializer) map[any]bool {
	strict := map[any]bool{}
	for _, info := range s.SupportedMediaTypes() {
		if info.StrictSerializer != nil {
			strict[info.StrictSerializer] = true
		}
	}
	return strict
}

// readBody reads a request's body of at most limit bytes; more is 413.
func readBody(req *http.Request, limit int64) ([]byte, error) {
	defer req.Body.Close()
	body, err := io.ReadAll(http.MaxBytesReader(nil, req.Body, limit))
	if err == nil {
		return body, nil
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
	}
	if cause := context.Cause(req.Context()); cause != nil {
		return nil, apierrors.NewTimeoutError("reading the request's body: "+cause.Error(), 0)
	}
	return nil, apierrors.NewBadRequest("reading the request's body: " + err.Error())
}
