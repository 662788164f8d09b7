package customresources

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// conversionTimeout bounds one call of a conversion webhook. The time left to the request may be a
// smaller bound.
const conversionTimeout = 30 * time.Second

// conversionHeaders are sent with every ConversionReview (S3.19).
var conversionHeaders = http.Header{
	"Accept":       {runtime.ContentTypeJSON + ", */*"},
	"Content-Type": {runtime.ContentTypeJSON},
	"User-Agent":   {"kube-apiserver-admission"},
}

// ConversionError is the failure of a conversion webhook.
type ConversionError struct {
	// Definition is the name of the CustomResourceDefinition.
	Definition string
	// Kind is the kind of the object, or of the list of objects, and Version the version to
	// which it was to be converted.
	Kind    schema.GroupVersionKind
	Version string
	// URL is the URL at which the webhook was called.
	URL string
	// Err continues a sentence that begins with the name of the webhook: "failed: ..." or
	// "returned ...".
	Err error
}

// Error returns upstream's text, followed by facts that upstream leaves out.
func (e *ConversionError) Error() string {
	return fmt.Sprintf("conversion webhook for %v %v (to %s, CustomResourceDefinition %q)", e.Kind, cut(e.Err.Error()), e.Version, e.Definition)
}

func (e *ConversionError) Unwrap() error { return e.Err }

// conversionWebhook converts objects by calling a webhook. It is safe for concurrent use.
type conversionWebhook struct {
	definition string
	caller     *call.Caller
	mayConvert func(context.Context, string, *registration.ClientConfig) error
	to         registration.ClientConfig
	// url is the URL of the webhook, with the name of a service as host.
	url   *url.URL
	turns *turns
	// review is the version of ConversionReview that both sides support.
	review string
}

// reviewVersions are the supported versions of ConversionReview. The versions have the same form,
// but the server checks more in a response of v1.
var reviewVersions = []string{"v1", "v1beta1"}

func newConversionWebhook(crd *apiextensionsv1.CustomResourceDefinition, o *Options) (*conversionWebhook, error) {
	hook := crd.Spec.Conversion.Webhook
	if hook == nil || hook.ClientConfig == nil {
		return nil, errors.New("conversion strategy Webhook without a clientConfig")
	}
	w := &conversionWebhook{definition: crd.Name, caller: o.Webhooks, mayConvert: o.MayConvert, turns: newTurns(cmp.Or(o.MaxConversions, defaultConversions))}
	for _, v := range hook.ConversionReviewVersions {
		if slices.Contains(reviewVersions, v) {
			w.review = v
			break
		}
	}
	if w.review == "" {
		return nil, fmt.Errorf("none of the conversionReviewVersions %q is known: %q are", hook.ConversionReviewVersions, reviewVersions)
	}
	// A bundle of white space is empty, as it is upstream.
	w.to.CABundle = bytes.TrimSpace(hook.ClientConfig.CABundle)
	switch service := hook.ClientConfig.Service; {
	case hook.ClientConfig.URL != nil:
		w.to.URL = *hook.ClientConfig.URL
	case service != nil:
		w.to.Service = &registration.Service{Namespace: service.Namespace, Name: service.Name, Port: 443}
		if service.Port != nil {
			w.to.Service.Port = *service.Port
		}
		if service.Path != nil {
			w.to.Service.Path = *service.Path
		}
	default:
		return nil, errors.New("conversion webhook with neither url nor service")
	}
	var err error
	w.url, err = call.Address(&w.to)
	return w, err
}

// convert replaces the content of every object by the converted content that the webhook
// returns. The objects are in itself, or items of the list that in is. Of the metadata, the
// webhook may change labels and annotations only. The error is a *ConversionError, or 429 when
// the call got no turn or no place; after an error no object is changed. The call ends with
// ctx.
func (w *conversionWebhook) convert(ctx context.Context, in runtime.Object, objects []*unstructured.Unstructured, to schema.GroupVersion) (err error) {
	kind, started := in.GetObjectKind().GroupVersionKind(), time.Now()
	defer func() { observe(ctx, w.definition, kind.Version, to.Version, time.Since(started), err) }()
	busy := func(why string) error {
		return apierrors.NewTooManyRequests(fmt.Sprintf("conversion webhook for %v: to %s, CustomResourceDefinition %q, POST %s: "+
			"%s, please try again later", objects[0].GroupVersionKind(), to, w.definition, w.url, why), 1)
	}
	if !w.turns.take() {
		return busy(fmt.Sprintf("%d calls wait for its answer", cap(w.turns.calls)))
	}
	defer w.turns.give()
	_, list := in.(*unstructured.UnstructuredList)
	converted, err := w.converted(ctx, objects, list, to)
	var failure *call.Failure
	if errors.As(err, &failure) && failure.Class == call.Busy {
		return busy(failure.Error())
	}
	if err != nil {
		return &ConversionError{Definition: w.definition, Kind: kind, Version: to.String(), URL: w.url.String(), Err: err}
	}
	for i := range converted {
		objects[i].Object = converted[i].Object
	}
	return nil
}

// converted returns the objects that the webhook has converted, checked and with their
// metadata. Its errors are in upstream's words, which differ between a list and a single
// object.
func (w *conversionWebhook) converted(ctx context.Context, objects []*unstructured.Unstructured, list bool, to schema.GroupVersion) ([]*unstructured.Unstructured, error) {
	raw, err := w.call(ctx, objects, to)
	if err != nil {
		return nil, fmt.Errorf("failed: %w", err)
	}
	if got, want := len(raw), len(objects); got != want {
		return nil, &stepError{conversion.ConversionWebhookPartialResponseFailure, fmt.Errorf("returned %d objects, expected %d", got, want)}
	}
	invalid := func(format string, args ...any) error {
		return &stepError{conversion.ConversionWebhookInvalidConvertedObjectFailure, fmt.Errorf(format, args...)}
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
			return nil, invalid("returned %s%s: %w", object, at, err)
		}
		if err := checkKind(objects[i], converted[i], to); err != nil {
			return nil, invalid("returned %s%s: %w", object, at, err)
		}
		if err := checkIdentity(objects[i], converted[i]); err != nil {
			return nil, invalid("returned %s: %w", object, err)
		}
		if err := restoreMetadata(objects[i], converted[i]); err != nil {
			return nil, invalid("returned %s: %w", metadata, err)
		}
	}
	return converted, nil
}

// call asks the webhook and returns the objects of its answer.
func (w *conversionWebhook) call(ctx context.Context, objects []*unstructured.Unstructured, to schema.GroupVersion) ([]runtime.RawExtension, error) {
	if w.mayConvert != nil {
		if err := w.mayConvert(ctx, w.definition, &w.to); err != nil {
			return nil, err
		}
	}
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
	var answer apiextensionsv1.ConversionReview
	answered := false
	delivery := &call.Delivery{To: &w.to, Timeout: conversionTimeout, TellTimeout: true, Header: conversionHeaders, Body: body}
	delivery.Read = func(ctx context.Context, response *http.Response) error {
		answered = true
		data, done, err := readAnswer(ctx, response, len(objects))
		if err != nil {
			return err
		}
		defer done()
		if response.StatusCode < 200 || response.StatusCode > 206 {
			return badStatus(response.StatusCode, data, w.url)
		}
		if err := json.Unmarshal(data, &answer); err != nil {
			return fmt.Errorf("the response is not a ConversionReview: %w", err)
		}
		return nil
	}
	failure := w.caller.Post(ctx, delivery)
	trace.CountDeprecations(ctx, delivery.Facts.Host, delivery.Facts.Deprecated)
	if failure != nil {
		return nil, w.explain(failure, answered)
	}
	converted, err := w.read(&answer, request)
	if err != nil {
		return nil, &stepError{conversion.ConversionWebhookMalformedResponseFailure, err}
	}
	return converted, nil
}

// explain returns the error of a failed call, in the words of net/http, with facts that net/http
// leaves out.
func (w *conversionWebhook) explain(failure *call.Failure, answered bool) error {
	err := failure.Cause
	switch {
	case failure.Class != call.Transport && failure.Class != call.Answer:
		// The webhook was not called.
		return failure
	case failure.TimedOut:
		err = fmt.Errorf("no answer within %v: %w", failure.Limit.Round(time.Millisecond), err)
	case failure.Dial && len(failure.Endpoints) > 1:
		err = fmt.Errorf("no endpoint of %s can be connected to, the last: %w", strings.Join(failure.Endpoints, ", "), err)
	}
	if answered {
		return err
	}
	return &url.Error{Op: "Post", URL: w.url.String(), Err: err}
}

// maxShown bounds the part that an error quotes of a response that is not a ConversionReview, in
// bytes.
const maxShown = 2 << 10

// badStatus returns the error that upstream's client returns for such an answer, with the URL
// of the webhook. The error is not a status of the API, since the server would send such a
// status to its client.
func badStatus(code int, body []byte, url *url.URL) error {
	if len(body) > maxShown {
		body = body[:maxShown]
	}
	err := apierrors.NewGenericServerResponse(code, "post", schema.GroupResource{}, "", strings.TrimSpace(string(body)), 0, true)
	// Wrapped, the error would be a status of the API.
	return fmt.Errorf("%s: Post %q was answered with %d", err.Error(), url, code)
}

// read checks a response and returns the objects in it.
func (w *conversionWebhook) read(review *apiextensionsv1.ConversionReview, request *apiextensionsv1.ConversionRequest) ([]runtime.RawExtension, error) {
	// The kind and the uid of responses in v1beta1 were never checked.
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

// checkKind checks that a converted object has the wanted version and the kind of the original.
func checkKind(original, converted *unstructured.Unstructured, to schema.GroupVersion) error {
	if got := converted.GroupVersionKind().GroupVersion(); got != to {
		return fmt.Errorf("invalid groupVersion (expected %v, received %v)", to, got)
	}
	if want, got := original.GetKind(), converted.GetKind(); got != want {
		return fmt.Errorf("invalid kind (expected %v, received %v)", want, got)
	}
	return nil
}

// checkIdentity compares the identity of a converted object with the original.
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
