package customresources

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/admission/initializers"
)

// conversionTimeout bounds one call of a conversion webhook.
const conversionTimeout = 30 * time.Second

// errNoAnswer ends calls whose time is over.
var errNoAnswer = fmt.Errorf("no answer within %v", conversionTimeout)

// ConversionError says that a conversion webhook did not convert.
type ConversionError struct {
	// Definition is the name of the CustomResourceDefinition.
	Definition string
	// Kind is that of the object, or of the list of objects, and Version what it was
	// to become.
	Kind    schema.GroupVersionKind
	Version string
	// URL is where the webhook was called.
	URL string
	// Err is what happened, after the name of the webhook: "failed: ..." or
	// "returned ...".
	Err error
}

// Error says what upstream says, and then what it leaves out.
func (e *ConversionError) Error() string {
	return fmt.Sprintf("conversion webhook for %v %v (to %s, CustomResourceDefinition %q)", e.Kind, cut(e.Err.Error()), e.Version, e.Definition)
}

func (e *ConversionError) Unwrap() error { return e.Err }

// conversionWebhook converts objects by asking a webhook. It is safe for
// concurrent use.
type conversionWebhook struct {
	definition string
	target     *target
	turns      *turns
	// review is the version of ConversionReview that both sides know.
	review string
}

// reviewVersions are the versions of ConversionReview this server speaks. They
// differ in what is checked in a response, not in form.
var reviewVersions = []string{"v1", "v1beta1"}

func newConversionWebhook(crd *apiextensionsv1.CustomResourceDefinition, o *Options) (*conversionWebhook, error) {
	hook := crd.Spec.Conversion.Webhook
	if hook == nil || hook.ClientConfig == nil {
		return nil, errors.New("conversion strategy Webhook without a clientConfig")
	}
	w := &conversionWebhook{definition: crd.Name, turns: newTurns(cmp.Or(o.MaxConversions, defaultConversions))}
	for _, v := range hook.ConversionReviewVersions {
		if slices.Contains(reviewVersions, v) {
			w.review = v
			break
		}
	}
	if w.review == "" {
		return nil, fmt.Errorf("none of the conversionReviewVersions %q is known: %q are", hook.ConversionReviewVersions, reviewVersions)
	}
	var err error
	w.target, err = newTarget(hook.ClientConfig, o)
	return w, err
}

func (w *conversionWebhook) close() { w.target.transport.CloseIdleConnections() }

// convert replaces the content of every object by what the webhook makes of it. The
// objects are in, or items of the list that is in. Of the metadata, the webhook may
// change labels and annotations only. The error is a *ConversionError, or 429 when the
// webhook does not answer those who wait for it, and then no object is changed.
func (w *conversionWebhook) convert(in runtime.Object, objects []*unstructured.Unstructured, to schema.GroupVersion) error {
	if !w.turns.take() {
		return apierrors.NewTooManyRequests(fmt.Sprintf("conversion webhook for %v: to %s, CustomResourceDefinition %q, POST %s: "+
			"%d calls wait for its answer, please try again later", objects[0].GroupVersionKind(), to, w.definition, w.target.url, cap(w.turns.calls)), 1)
	}
	defer w.turns.give()
	_, list := in.(*unstructured.UnstructuredList)
	converted, err := w.converted(objects, list, to)
	if err != nil {
		return &ConversionError{
			Definition: w.definition, Kind: in.GetObjectKind().GroupVersionKind(), Version: to.String(), URL: w.target.url.String(), Err: err,
		}
	}
	for i := range converted {
		objects[i].Object = converted[i].Object
	}
	return nil
}

// converted returns what the webhook makes of the objects, checked and with their
// metadata. Its errors are in upstream's words, which differ between a list and a
// single object.
func (w *conversionWebhook) converted(objects []*unstructured.Unstructured, list bool, to schema.GroupVersion) ([]*unstructured.Unstructured, error) {
	raw, err := w.call(objects, to)
	if err != nil {
		return nil, fmt.Errorf("failed: %w", err)
	}
	if got, want := len(raw), len(objects); got != want {
		return nil, fmt.Errorf("returned %d objects, expected %d", got, want)
	}
	converted := make([]*unstructured.Unstructured, len(raw))
	for i := range raw {
		object, at := "invalid object", " at index 0"
		metadata := "invalid metadata"
		if list {
			object, at = fmt.Sprintf("invalid converted object at index %d", i), ""
			metadata = fmt.Sprintf("invalid metadata in object at index %d", i)
		}
		converted[i] = &unstructured.Unstructured{}
		if err := converted[i].UnmarshalJSON(raw[i].Raw); err != nil {
			return nil, fmt.Errorf("returned %s%s: %w", object, at, err)
		}
		if err := checkKind(objects[i], converted[i], to); err != nil {
			return nil, fmt.Errorf("returned %s%s: %w", object, at, err)
		}
		if err := checkIdentity(objects[i], converted[i]); err != nil {
			return nil, fmt.Errorf("returned %s: %w", object, err)
		}
		if err := restoreMetadata(objects[i], converted[i]); err != nil {
			return nil, fmt.Errorf("returned %s: %w", metadata, err)
		}
	}
	return converted, nil
}

// call asks the webhook and returns the objects of its answer.
func (w *conversionWebhook) call(objects []*unstructured.Unstructured, to schema.GroupVersion) ([]runtime.RawExtension, error) {
	request := &apiextensionsv1.ConversionRequest{UID: uuid.NewUUID(), DesiredAPIVersion: to.String()}
	for _, u := range objects {
		shown := u.DeepCopy()
		if err := initializers.Expose(shown.Object); err != nil {
			return nil, err
		}
		request.Objects = append(request.Objects, runtime.RawExtension{Object: shown})
	}
	apiVersion := apiextensionsv1.GroupName + "/" + w.review
	body, err := json.Marshal(&apiextensionsv1.ConversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: "ConversionReview"}, Request: request,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), conversionTimeout, errNoAnswer)
	defer cancel()
	response, err := w.target.post(ctx, body)
	if err != nil {
		return nil, &url.Error{Op: "Post", URL: w.target.url.String(), Err: err}
	}
	defer response.Body.Close()
	data, done, err := readAnswer(ctx, response, len(objects))
	if err != nil {
		return nil, err
	}
	defer done()
	if response.StatusCode < 200 || response.StatusCode > 206 {
		return nil, badStatus(response.StatusCode, data, w.target.url)
	}
	var review apiextensionsv1.ConversionReview
	if err := json.Unmarshal(data, &review); err != nil {
		return nil, fmt.Errorf("the response is no ConversionReview: %w", err)
	}
	return w.read(&review, request)
}

// maxShown bounds what is shown of the body of an answer that is not a
// ConversionReview, in bytes.
const maxShown = 2 << 10

// badStatus says what upstream's client says of such an answer, and where it came
// from. It is not a status of the API itself, which would become the client's.
func badStatus(code int, body []byte, url *url.URL) error {
	if len(body) > maxShown {
		body = body[:maxShown]
	}
	err := apierrors.NewGenericServerResponse(code, "post", schema.GroupResource{}, "", strings.TrimSpace(string(body)), 0, true)
	return fmt.Errorf("%v: Post %q was answered with %d", err, url, code)
}

// read checks a response and returns the objects in it.
func (w *conversionWebhook) read(review *apiextensionsv1.ConversionReview, request *apiextensionsv1.ConversionRequest) ([]runtime.RawExtension, error) {
	// v1beta1 webhooks were never held to the kind and the uid.
	if want := apiextensionsv1.SchemeGroupVersion.WithKind("ConversionReview"); w.review == "v1" && review.GroupVersionKind() != want {
		return nil, fmt.Errorf("expected webhook response of %v, got %v", want, review.GroupVersionKind())
	}
	response := review.Response
	if response == nil {
		return nil, errors.New("no response provided")
	}
	if w.review == "v1" && response.UID != request.UID {
		return nil, fmt.Errorf("expected response.uid=%q, got %q", request.UID, response.UID)
	}
	if response.Result.Status != metav1.StatusSuccess {
		if response.Result.Message != "" {
			return nil, errors.New(response.Result.Message)
		}
		return nil, fmt.Errorf("response.result.status was '%s', not '%s'", response.Result.Status, metav1.StatusSuccess)
	}
	return response.ConvertedObjects, nil
}

// checkKind compares a converted object with the kind it was to become.
func checkKind(original, converted *unstructured.Unstructured, to schema.GroupVersion) error {
	if got := converted.GroupVersionKind().GroupVersion(); got != to {
		return fmt.Errorf("invalid groupVersion (expected %v, received %v)", to, got)
	}
	if want, got := original.GetKind(), converted.GetKind(); got != want {
		return fmt.Errorf("invalid kind (expected %v, received %v)", want, got)
	}
	return nil
}

// checkIdentity compares a converted object with what it was made of.
func checkIdentity(original, converted *unstructured.Unstructured) error {
	for _, same := range []struct{ name, before, after string }{
		{"name", original.GetName(), converted.GetName()},
		{"namespace", original.GetNamespace(), converted.GetNamespace()},
		{"UID", string(original.GetUID()), string(converted.GetUID())},
	} {
		if same.before != same.after {
			return fmt.Errorf("must have the same %s: %v != %v", same.name, same.before, same.after)
		}
	}
	return nil
}

// restoreMetadata gives a converted object the metadata of the original with its
// own labels and annotations.
func restoreMetadata(original, converted *unstructured.Unstructured) error {
	answer, ok := converted.Object["metadata"].(map[string]any)
	if _, found := converted.Object["metadata"]; !found {
		return errors.New("missing metadata in converted object")
	}
	if !ok {
		return fmt.Errorf("invalid metadata of type %T in converted object", converted.Object["metadata"])
	}
	before, _ := original.Object["metadata"].(map[string]any)
	metadata := runtime.DeepCopyJSON(before)
	for name, validate := range map[string]func(map[string]string, *field.Path) field.ErrorList{
		"labels": metav1validation.ValidateLabels, "annotations": validation.ValidateAnnotations,
	} {
		delete(metadata, name)
		if answer[name] == nil {
			continue
		}
		given, ok := answer[name].(map[string]any)
		if !ok {
			return fmt.Errorf("invalid metadata.%s of type %T in converted object", name, answer[name])
		}
		values := make(map[string]string, len(given))
		for key, value := range given {
			text, ok := value.(string)
			if !ok {
				return fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object", name, key, value)
			}
			values[key] = text
		}
		if errs := validate(values, field.NewPath("metadata", name)); len(errs) > 0 {
			return errs.ToAggregate()
		}
		metadata[name] = answer[name]
	}
	carry(before, metadata)
	converted.Object["metadata"] = metadata
	return nil
}

// carry keeps the initializers of an object, which webhooks cannot change.
func carry(before, after map[string]any) {
	annotations, _ := before["annotations"].(map[string]any)
	value, carried := annotations[initializers.Annotation]
	next, _ := after["annotations"].(map[string]any)
	switch {
	case carried && next == nil:
		after["annotations"] = map[string]any{initializers.Annotation: value}
	case carried:
		next[initializers.Annotation] = value
	default:
		delete(next, initializers.Annotation)
	}
}
