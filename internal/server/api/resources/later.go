package resources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-openapi/jsonpointer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
)

// Later handles fields in requests that the emulated release does not have (S26.13).
type Later struct {
	// Fields are the fields in which the release differs.
	Fields *emulation.Fields
	// Release is the emulated release, such as 1.35.
	Release string
	// Reject treats the fields as unknown, as the release does. Otherwise the fields are kept, and
	// the response has a warning.
	Reject bool
}

// readLater looks for fields in the body of a write that the emulated release does not have. It
// adds warnings, removes the fields from the body, or returns the error of that release.
func (e *Endpoint) readLater(info *request.RequestInfo, req *http.Request) error {
	if e.Later == nil || info.Verb != "create" && info.Verb != "update" && info.Verb != "patch" {
		return nil
	}
	body, err := readBody(req, e.Scope.MaxRequestBodyBytes)
	if err != nil {
		return err
	}
	replace := func(body []byte) {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	replace(body)
	typed, err := e.Scope.Creater.New(e.Kind)
	if err != nil {
		return nil
	}
	mediaType := mediaTypeOf(req)
	cleaned, later := e.Later.clean(body, mediaType, reflect.TypeOf(typed))
	if len(later) == 0 {
		return nil
	}
	ctx := req.Context()
	if !e.Later.Reject {
		for _, path := range later {
			warning.AddWarning(ctx, "", fmt.Sprintf("Kubernetes %s does not have the field %s", e.Later.Release, path))
		}
		return nil
	}
	unknown := make([]error, len(later))
	for i, path := range later {
		unknown[i] = fmt.Errorf("unknown field %q", path)
	}
	directive := req.URL.Query().Get("fieldValidation")
	switch {
	case mediaType == string(types.ApplyYAMLPatchType):
		// An apply finds no such field in the schema, whatever the directive is.
		for i, path := range later {
			unknown[i] = fmt.Errorf(".%s: field not declared in schema", path)
		}
		return apierrors.NewBadRequest(fmt.Sprintf("failed to create typed patch object (%s/%s; %s, Kind=%s): %v", info.Namespace, info.Name, e.Kind.GroupVersion(), e.Kind.Kind, errors.Join(unknown...)))
	case directive == metav1.FieldValidationStrict && info.Verb == "patch":
		return apierrors.NewInvalid(e.Kind.GroupKind(), info.Name, field.ErrorList{
			field.Invalid(field.NewPath("patch"), string(body), runtime.NewStrictDecodingError(unknown).Error()),
		})
	case directive == metav1.FieldValidationStrict:
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", e.Kind.Kind, e.Kind.Version, e.Kind.Kind, runtime.NewStrictDecodingError(unknown)))
	case directive != metav1.FieldValidationIgnore:
		for _, err := range unknown {
			warning.AddWarning(ctx, "", err.Error())
		}
	}
	replace(cleaned)
	return nil
}

// clean returns the body without the fields that the release does not have, and their paths. It
// leaves a body in protobuf, and a body that cannot be parsed, to the decoder, which drops unknown
// fields and returns the error.
func (l *Later) clean(body []byte, mediaType string, of reflect.Type) (cleaned []byte, later []string) {
	plain := body
	if strings.HasSuffix(mediaType, "yaml") {
		var err error
		if plain, err = yaml.YAMLToJSON(body); err != nil {
			return body, nil
		}
	}
	var content any
	if mediaType == string(types.JSONPatchType) {
		var operations []any
		if kjson.UnmarshalCaseSensitivePreserveInts(plain, &operations) != nil {
			return body, nil
		}
		kept := []any{}
		for _, operation := range operations {
			found := l.ofOperation(operation, of)
			if later = append(later, found...); len(found) == 0 {
				kept = append(kept, operation)
			}
		}
		content = kept
	} else {
		object := map[string]any{}
		if kjson.UnmarshalCaseSensitivePreserveInts(plain, &object) != nil {
			return body, nil
		}
		// The responses of this server have an empty status of a kind that got one later. Updates send it back.
		if status, ok := object["status"].(map[string]any); ok && len(status) == 0 {
			delete(object, "status")
		}
		later, content = l.Fields.Remove(object, of), object
	}
	if len(later) == 0 {
		return body, nil
	}
	cleaned, err := json.Marshal(content)
	if err != nil {
		return body, nil
	}
	return cleaned, later
}

// ofOperation returns the paths of the fields that an operation of a JSON patch sets.
func (l *Later) ofOperation(operation any, of reflect.Type) []string {
	o, _ := operation.(map[string]any)
	path, _ := o["path"].(string)
	value, sets := o["value"]
	// mostLevels is deeper than any field of a release.
	const mostLevels = 1000
	if !sets || strings.Count(path, "/") > mostLevels {
		return nil
	}
	tokens := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i := len(tokens) - 1; i >= 0; i-- {
		if _, err := strconv.Atoi(tokens[i]); err == nil || tokens[i] == "-" {
			value = []any{value}
		} else {
			value = map[string]any{jsonpointer.Unescape(tokens[i]): value}
		}
	}
	object, _ := value.(map[string]any)
	return l.Fields.Remove(object, of)
}
