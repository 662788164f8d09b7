package customresources

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	// Kind is what the objects are, and Version what they were to become.
	Kind    schema.GroupVersionKind
	Version string
	// URL is where the webhook was called.
	URL string
	Err error
}

func (e *ConversionError) Error() string {
	return fmt.Sprintf("conversion webhook for %v failed: to %s, CustomResourceDefinition %q, POST %s: %v",
		e.Kind, e.Version, e.Definition, e.URL, cut(e.Err.Error()))
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

// convert replaces the content of every object by what the webhook makes of it.
// Of the metadata, the webhook may change labels and annotations only. The error
// is a *ConversionError, or 429 when the webhook does not answer those who wait for
// it, and then no object is changed.
func (w *conversionWebhook) convert(objects []*unstructured.Unstructured, to schema.GroupVersion) error {
	if !w.turns.take() {
		return apierrors.NewTooManyRequests(fmt.Sprintf("conversion webhook for %v: to %s, CustomResourceDefinition %q, POST %s: "+
			"%d calls wait for its answer, please try again later", objects[0].GroupVersionKind(), to, w.definition, w.target.url, cap(w.turns.calls)), 1)
	}
	defer w.turns.give()
	converted, err := w.call(objects, to)
	if err == nil {
		for i := range converted {
			if err = merge(objects[i], converted[i], to); err != nil {
				err = fmt.Errorf("invalid converted object at index %d: %w", i, err)
				break
			}
		}
	}
	if err != nil {
		return &ConversionError{
			Definition: w.definition, Kind: objects[0].GroupVersionKind(), Version: to.String(), URL: w.target.url.String(), Err: err,
		}
	}
	for i := range converted {
		objects[i].Object = converted[i].Object
	}
	return nil
}

func (w *conversionWebhook) call(objects []*unstructured.Unstructured, to schema.GroupVersion) ([]*unstructured.Unstructured, error) {
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
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode > 206 {
		return nil, fmt.Errorf("the response is %s", response.Status)
	}
	data, done, err := readAnswer(ctx, response, len(objects))
	if err != nil {
		return nil, err
	}
	defer done()
	var review apiextensionsv1.ConversionReview
	if err := json.Unmarshal(data, &review); err != nil {
		return nil, fmt.Errorf("the response is no ConversionReview: %w", err)
	}
	return w.read(&review, request)
}

// read checks a response and returns the objects in it.
func (w *conversionWebhook) read(review *apiextensionsv1.ConversionReview, request *apiextensionsv1.ConversionRequest) ([]*unstructured.Unstructured, error) {
	response := review.Response
	if response == nil {
		return nil, errors.New("the response has no field response")
	}
	// v1beta1 webhooks were never held to these.
	if w.review == "v1" {
		if want := apiextensionsv1.SchemeGroupVersion.WithKind("ConversionReview"); review.GroupVersionKind() != want {
			return nil, fmt.Errorf("the response is %v, expected %v", review.GroupVersionKind(), want)
		}
		if response.UID != request.UID {
			return nil, fmt.Errorf("the response has response.uid %q, expected %q", response.UID, request.UID)
		}
	}
	if response.Result.Status != metav1.StatusSuccess {
		if response.Result.Message != "" {
			return nil, errors.New(response.Result.Message)
		}
		return nil, fmt.Errorf("response.result.status is %q, not %q", response.Result.Status, metav1.StatusSuccess)
	}
	if got, want := len(response.ConvertedObjects), len(request.Objects); got != want {
		return nil, fmt.Errorf("the response has %d objects, expected %d", got, want)
	}
	converted := make([]*unstructured.Unstructured, len(response.ConvertedObjects))
	for i, raw := range response.ConvertedObjects {
		converted[i] = &unstructured.Unstructured{}
		if err := converted[i].UnmarshalJSON(raw.Raw); err != nil {
			return nil, fmt.Errorf("invalid converted object at index %d: %w", i, err)
		}
	}
	return converted, nil
}

// merge checks a converted object against what it was made of, and gives it the
// metadata of the original with its own labels and annotations.
func merge(original, converted *unstructured.Unstructured, to schema.GroupVersion) error {
	if want := to.WithKind(original.GetKind()); converted.GroupVersionKind() != want {
		return fmt.Errorf("it is %v, expected %v", converted.GroupVersionKind(), want)
	}
	for _, same := range []struct{ name, before, after string }{
		{"name", original.GetName(), converted.GetName()},
		{"namespace", original.GetNamespace(), converted.GetNamespace()},
		{"uid", string(original.GetUID()), string(converted.GetUID())},
	} {
		if same.before != same.after {
			return fmt.Errorf("metadata.%s must stay %q, and is %q", same.name, same.before, same.after)
		}
	}
	answer, ok := converted.Object["metadata"].(map[string]any)
	if !ok {
		return fmt.Errorf("metadata is a %T, expected an object", converted.Object["metadata"])
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
		values, _, err := unstructured.NestedStringMap(answer, name)
		if err != nil {
			return fmt.Errorf("metadata.%s: %w", name, err)
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
