package customresources

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"weak"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clientscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	clientv1 "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	informersv1 "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	listersv1 "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Schemas take more memory than the rest of a CRD together, and a hundred times their compressed
// size. CRDs are therefore kept with packed schemas. A packed schema has only a default. The
// default begins with packedMark, with which no JSON begins; after the mark comes the schema in
// protobuf, compressed. Equal schemas are packed into equal bytes.

// packedMark is the first byte of a packed schema.
const packedMark = 0

func isPacked(v *apiextensionsv1.CustomResourceValidation) bool {
	if v == nil || v.OpenAPIV3Schema == nil || v.OpenAPIV3Schema.Default == nil {
		return false
	}
	raw := v.OpenAPIV3Schema.Default.Raw
	return len(raw) > 0 && raw[0] == packedMark
}

// pack packs the schemas of a CRD in place. before, which may be nil, is an earlier state of the
// CRD. Its packed schemas are used again if they are the same.
func pack(crd, before *apiextensionsv1.CustomResourceDefinition) error {
	// The generation grows with every change of the spec.
	same := before != nil && before.UID == crd.UID && before.Generation == crd.Generation && len(before.Spec.Versions) == len(crd.Spec.Versions)
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Schema == nil || isPacked(v.Schema) {
			continue
		}
		if same && before.Spec.Versions[i].Name == v.Name && isPacked(before.Spec.Versions[i].Schema) {
			v.Schema = before.Spec.Versions[i].Schema
			continue
		}
		packed, err := packSchema(v.Schema)
		if err != nil {
			return fmt.Errorf("packing the schema of version %s of %s: %w", v.Name, crd.Name, err)
		}
		remember(digestOf(packed), v.Schema)
		v.Schema = packed
	}
	return nil
}

// packers is a pool of compressing writers. Each has a megabyte of tables.
var packers sync.Pool

func packSchema(v *apiextensionsv1.CustomResourceValidation) (*apiextensionsv1.CustomResourceValidation, error) {
	text, err := v.Marshal()
	if err != nil {
		return nil, err
	}
	packed := bytes.NewBuffer(make([]byte, 0, len(text)/4))
	packed.WriteByte(packedMark)
	w, _ := packers.Get().(*flate.Writer)
	if w == nil {
		if w, err = flate.NewWriter(packed, flate.BestSpeed); err != nil {
			return nil, err
		}
	} else {
		w.Reset(packed)
	}
	defer packers.Put(w)
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
		Default: &apiextensionsv1.JSON{Raw: bytes.Clone(packed.Bytes())},
	}}, nil
}

// wholes has schemas by the digest of their packed form, as long as something else refers to them:
// a CRD is unpacked several times while it becomes established, for the server and for its
// controllers. Unpacked schemas must not be changed.
var wholes sync.Map // of weak pointers to *apiextensionsv1.CustomResourceValidation

type digest = [sha256.Size]byte

func digestOf(packed *apiextensionsv1.CustomResourceValidation) digest {
	return sha256.Sum256(packed.OpenAPIV3Schema.Default.Raw)
}

func remember(key digest, schema *apiextensionsv1.CustomResourceValidation) {
	whole := weak.Make(schema)
	wholes.Store(key, whole)
	runtime.AddCleanup(schema, func(key digest) { wholes.CompareAndDelete(key, whole) }, key)
}

func unpackSchema(v *apiextensionsv1.CustomResourceValidation) (*apiextensionsv1.CustomResourceValidation, error) {
	key := digestOf(v)
	if known, ok := wholes.Load(key); ok {
		if schema := known.(weak.Pointer[apiextensionsv1.CustomResourceValidation]).Value(); schema != nil {
			return schema, nil
		}
	}
	text, err := io.ReadAll(flate.NewReader(bytes.NewReader(v.OpenAPIV3Schema.Default.Raw[1:])))
	if err != nil {
		return nil, err
	}
	out := &apiextensionsv1.CustomResourceValidation{}
	if err := out.Unmarshal(text); err != nil {
		return nil, err
	}
	remember(key, out)
	return out, nil
}

// unpacked returns a CRD with its schemas. It does not change crd, and returns crd itself if no
// schema is packed.
func unpacked(crd *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	out := crd
	for i := range crd.Spec.Versions {
		if !isPacked(crd.Spec.Versions[i].Schema) {
			continue
		}
		if out == crd {
			copied := *crd
			copied.Spec.Versions = append([]apiextensionsv1.CustomResourceDefinitionVersion(nil), crd.Spec.Versions...)
			out = &copied
		}
		schema, err := unpackSchema(crd.Spec.Versions[i].Schema)
		if err != nil {
			return nil, fmt.Errorf("unpacking the schema of version %s of %s: %w", crd.Spec.Versions[i].Name, crd.Name, err)
		}
		out.Spec.Versions[i].Schema = schema
	}
	return out, nil
}

// statusWriter is a client for controllers that read CRDs with packed schemas, and write their status.
type statusWriter struct {
	client clientv1.ApiextensionsV1Interface
	// before, if set, is called before a status is written. It returns the CRD to write, and a
	// function to call if the write fails.
	before func(context.Context, *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, func())
}

// CustomResourceDefinitions implements clientv1.CustomResourceDefinitionsGetter.
func (w statusWriter) CustomResourceDefinitions() clientv1.CustomResourceDefinitionInterface {
	return statusWriting{w.client.CustomResourceDefinitions(), w}
}

type statusWriting struct {
	clientv1.CustomResourceDefinitionInterface
	statusWriter
}

// metadataOnly asks for only the metadata of the written object: the caller has the rest.
const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// UpdateStatus writes a status. The schemas are not sent: withStoredSpec gives admission the whole
// CRD. The result has the status that was sent; changes that a webhook makes arrive with the
// informer.
func (w statusWriting) UpdateStatus(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, o metav1.UpdateOptions) (*apiextensionsv1.CustomResourceDefinition, error) {
	failed := func() {}
	if w.before != nil {
		crd, failed = w.before(ctx, crd)
	}
	metadata, err := w.write(ctx, withoutSchemas(crd), o)
	if err != nil {
		failed()
		return nil, err
	}
	updated := *crd
	updated.ObjectMeta = metadata
	return &updated, nil
}

// withoutSchemas returns a copy of a CRD that has no schemas.
func withoutSchemas(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	copied := *crd
	copied.Spec.Versions = slices.Clone(crd.Spec.Versions)
	for i := range copied.Spec.Versions {
		copied.Spec.Versions[i].Schema = nil
	}
	return &copied
}

func (w statusWriting) write(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, o metav1.UpdateOptions) (metav1.ObjectMeta, error) {
	result := w.client.RESTClient().Put().Resource("customresourcedefinitions").Name(crd.Name).SubResource("status").
		VersionedParams(&o, clientscheme.ParameterCodec).SetHeader("Accept", metadataOnly).Body(crd).Do(ctx)
	updated := metav1.PartialObjectMetadata{}
	if err := result.Error(); err != nil {
		return updated.ObjectMeta, err
	}
	text, err := result.Raw()
	if err != nil {
		return updated.ObjectMeta, err
	}
	return updated.ObjectMeta, json.Unmarshal(text, &updated)
}

// withSchemas is the informer of CRDs for a controller that reads schemas.
type withSchemas struct {
	informersv1.CustomResourceDefinitionInformer
	server *Server
}

// Lister implements informersv1.CustomResourceDefinitionInformer.
func (w withSchemas) Lister() listersv1.CustomResourceDefinitionLister {
	return listingSchemas{w.CustomResourceDefinitionInformer.Lister(), w.server}
}

type listingSchemas struct {
	listersv1.CustomResourceDefinitionLister
	server *Server
}

// Get returns a CRD with its schemas, or without them if they are known to be good, because the
// controller calls it repeatedly.
func (l listingSchemas) Get(name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd, err := l.CustomResourceDefinitionLister.Get(name)
	if err != nil {
		return nil, err
	}
	if l.server.trusted(crd) {
		return withoutSchemas(crd), nil
	}
	return unpacked(crd)
}
