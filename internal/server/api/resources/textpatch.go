package resources

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/userpatch"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
)

// textApply applies a patch to an object in JSON. With strict, errs are the errors of strict decoding of the patch.
type textApply func(ctx context.Context, object []byte, strict bool) (patched []byte, errs []error, err error)

// emptyPatch is a JSON patch without operations.
const emptyPatch = "[]"

// textPatch serves a JSON patch or a JSON merge patch. plain answers a request whose body cannot be read or parsed as
// JSON.
func (e *Endpoint) textPatch(storage rest.Patcher, admit admission.Interface, plain http.HandlerFunc, w http.ResponseWriter, req *http.Request) {
	body, whole := peekBody(req, e.Scope.MaxRequestBodyBytes)
	if !whole || len(body) < len(emptyPatch) || !json.Valid(body) {
		plain(w, req)
		return
	}
	mediaType := types.PatchType(mediaTypeOf(req))
	e.patchText(storage, admit, body, func(ctx context.Context, object []byte, strict bool) ([]byte, []error, error) {
		patch := userpatch.Patch{Type: mediaType, Body: body, Strict: strict}
		return patch.Apply(ctx, object)
	}, w, req)
}

// patchText serves a patch of at least the length of emptyPatch. The handler of k8s.io/apiserver gets emptyPatch. It
// encodes the stored object, for which textSerializer returns the patched object, and decodes the result.
func (e *Endpoint) patchText(storage rest.Patcher, admit admission.Interface, body []byte, apply textApply, w http.ResponseWriter, req *http.Request) {
	scope := *e.Scope
	s := &textSerializer{
		NegotiatedSerializer: scope.Serializer,
		patch:                apply,
		weight:               review.Weight(body),
		strict:               strictSerializers(scope.Serializer),
		// The audit log has the patch in place of the empty one.
		created: func() { audit.LogRequestPatch(req.Context(), body) },
	}
	scope.Serializer = s
	replaced := req.Clone(req.Context())
	replaced.Header.Set("Content-Type", string(types.JSONPatchType))
	// The metric of the sizes of bodies counts white space.
	replaced.Body = io.NopCloser(io.MultiReader(strings.NewReader(emptyPatch), io.LimitReader(blank{}, int64(len(body)-len(emptyPatch)))))
	handlers.PatchResource(textPatcher{storage, s}, &scope, admit, []string{string(types.JSONPatchType)})(w, replaced)
}

// blank is white space without an end.
type blank struct{}

func (blank) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// textPatcher is a storage for writes with a textSerializer.
type textPatcher struct {
	rest.Patcher
	s *textSerializer
}

func (p textPatcher) Update(ctx context.Context, name string, obj rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc,
	validate rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return p.Patcher.Update(ctx, name, textUpdate{obj, p.s}, validateCreate, validate, force, options)
}

// textUpdate is an update that applies a patch.
type textUpdate struct {
	rest.UpdatedObjectInfo
	s *textSerializer
}

func (u textUpdate) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	u.s.ctx = ctx
	defer u.s.giveBack()
	return u.UpdatedObjectInfo.UpdatedObject(ctx, old)
}

// textSerializer encodes a stored object as the patched object. One goroutine at a time updates an object.
type textSerializer struct {
	runtime.NegotiatedSerializer
	// patch applies the patch, and weight is the memory for its body.
	patch  textApply
	weight int64
	// strict has the decoders of the serializer that decode strictly, and isStrict is set if one is used.
	strict   map[any]bool
	isStrict bool
	// created is called when the encoder and the decoder for the patch exist.
	created func()
	// encoder is the last one before created. The encoders after that are for responses.
	encoder *textEncoder
	done    bool
	// ctx is the context of the update.
	ctx context.Context
	// errors are the errors of strict decoding of the patch.
	errors []error
	// give releases the memory for the patch; nil if there is none.
	give func()
}

func (s *textSerializer) EncoderForVersion(e runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	e = s.NegotiatedSerializer.EncoderForVersion(e, gv)
	if s.done {
		return e
	}
	s.encoder = &textEncoder{Encoder: e}
	return s.encoder
}

func (s *textSerializer) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	s.done, s.encoder.s = true, s
	s.isStrict = s.strict[d]
	s.created()
	return &textDecoder{Decoder: s.NegotiatedSerializer.DecoderToVersion(d, gv), s: s}
}

// giveBack releases the memory for the patch.
func (s *textSerializer) giveBack() {
	if s.give != nil {
		s.give()
		s.give = nil
	}
}

// textEncoder applies the patch of s to the encoded object. Without s it only encodes.
type textEncoder struct {
	runtime.Encoder
	s *textSerializer
}

func (e *textEncoder) Encode(obj runtime.Object, w io.Writer) error {
	if e.s == nil {
		return e.Encoder.Encode(obj, w)
	}
	var encoded bytes.Buffer
	if err := e.Encoder.Encode(obj, &encoded); err != nil {
		return err
	}
	return e.s.apply(encoded.Bytes(), w)
}

// apply writes an object with the patch applied.
func (s *textSerializer) apply(object []byte, w io.Writer) (err error) {
	s.giveBack()
	if s.give, err = inflight.TakePatch(s.ctx, s.weight+review.Weight(object)); err != nil {
		return err
	}
	patched, strict, err := s.patch(s.ctx, object, s.isStrict)
	if err != nil {
		return err
	}
	s.errors = strict
	_, err = w.Write(patched)
	return err
}

// textDecoder decodes a patched object.
type textDecoder struct {
	runtime.Decoder
	s *textSerializer
}

func (d *textDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	// Later steps, such as webhooks, need only the object.
	d.s.giveBack()
	return obj, gvk, withStrict(d.s.errors, err)
}
