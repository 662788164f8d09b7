package resources

import (
	"errors"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// explain turns errors that come from a client's mistake, and that k8s.io/apiserver answers with
// 500, into errors with the right status.
func explain(kind schema.GroupVersionKind, name string, err error) error {
	if err == nil || errors.As(err, new(apierrors.APIStatus)) {
		return err
	}
	if errors.Is(err, apistorage.ErrResourceVersionSetOnCreate) {
		return apierrors.NewBadRequest(err.Error())
	}
	// A resourceVersion that is not a number fails when it is compared.
	if bad := (*strconv.NumError)(nil); errors.As(err, &bad) {
		return apierrors.NewInvalid(kind.GroupKind(), name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), bad.Num, "must be a version that the server returned"),
		})
	}
	// Server-side apply does not wrap the schema's error about the patch.
	if strings.HasPrefix(err.Error(), "failed to create typed patch object") {
		return apierrors.NewBadRequest(err.Error())
	}
	return err
}

// explainRead is explain for reads. There k8s.io/apiserver returns InvalidError only for a
// parameter resourceVersion that is not a number. The text equals the text of a list, which
// k8s.io/apiserver itself answers with 400.
func explainRead(err error) error {
	if errors.As(err, new(apistorage.InvalidError)) {
		return apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	return err
}
