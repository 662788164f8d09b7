package lazyinformer

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// wantsMetadata reports whether a client asks for only the metadata of objects.
func wantsMetadata(req *http.Request) bool {
	return strings.Contains(req.Header.Get("Accept"), ";as=PartialObjectMetadata")
}

// wantsWhole reports whether a client asks for whole objects, in protobuf if that is possible.
func wantsWhole(req *http.Request) bool {
	first, _, _ := strings.Cut(req.Header.Get("Accept"), ",")
	return first == runtime.ContentTypeProtobuf
}

// uninitialized is the annotation of objects that are not initialized, or whose initializers are
// being released. A server works on such an object when it reads it, so a request for it must
// reach a server.
const uninitialized = initializers.Annotation

// mark is the prefix of objects that are stored or sent in protobuf.
var mark = []byte("k8s\x00")

// unwrapped returns a stored object in protobuf; nil if the object is stored as JSON.
func unwrapped(kv *mvccpb.KeyValue) (*runtime.Unknown, error) {
	data, ok := bytes.CutPrefix(kv.Value, mark)
	if !ok {
		return nil, nil
	}
	u := &runtime.Unknown{}
	if err := u.Unmarshal(data); err != nil {
		return nil, unreadable(kv, err)
	}
	return u, nil
}

func unreadable(kv *mvccpb.KeyValue, err error) error {
	return fmt.Errorf("the object at %s in etcd cannot be read: %w", kv.Key, err)
}

// metadataOnly is the form of metadata clients.
type metadataOnly struct{}

func (metadataOnly) mediaType() string { return runtime.ContentTypeJSON }

func (metadataOnly) object(kv *mvccpb.KeyValue, revision int64) ([]byte, error) {
	m, err := metadataOf(kv, revision)
	if err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

func (metadataOnly) list(meta metav1.ListMeta, objects [][]byte) ([]byte, error) {
	data, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":%s,"items":[%s]}`,
		data, bytes.Join(objects, []byte(","))), nil
}

func (metadataOnly) event(kind string, object []byte) ([]byte, error) {
	return fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", kind, object), nil
}

func (metadataOnly) status(status *metav1.Status) ([]byte, error) { return json.Marshal(status) }

// stored is the part of an object's metadata that controllers of objects of every kind read.
type stored struct {
	Metadata struct {
		Name                       string                  `json:"name"`
		Namespace                  string                  `json:"namespace"`
		UID                        types.UID               `json:"uid"`
		Generation                 int64                   `json:"generation"`
		CreationTimestamp          metav1.Time             `json:"creationTimestamp"`
		DeletionTimestamp          *metav1.Time            `json:"deletionTimestamp"`
		DeletionGracePeriodSeconds *int64                  `json:"deletionGracePeriodSeconds"`
		Finalizers                 []string                `json:"finalizers"`
		OwnerReferences            []metav1.OwnerReference `json:"ownerReferences"`
		Annotations                map[string]string       `json:"annotations"`
		Initializers               json.RawMessage         `json:"initializers"`
	} `json:"metadata"`
}

// metadataOf reads the metadata of a stored object.
func metadataOf(kv *mvccpb.KeyValue, revision int64) (*metav1.PartialObjectMetadata, error) {
	m, err := storedMetadata(kv)
	if err != nil {
		return nil, err
	}
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{
			Name: m.Name, Namespace: m.Namespace, UID: m.UID, Generation: m.Generation, ResourceVersion: strconv.FormatInt(revision, 10),
			CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
			Finalizers: m.Finalizers, OwnerReferences: m.OwnerReferences,
		},
	}, nil
}

func storedMetadata(kv *mvccpb.KeyValue) (*metav1.ObjectMeta, error) {
	u, err := unwrapped(kv)
	if err != nil {
		return nil, err
	}
	if u != nil {
		return metadataIn(kv, u)
	}
	var s stored
	if err := json.Unmarshal(kv.Value, &s); err != nil {
		return nil, unreadable(kv, err)
	}
	m := &s.Metadata
	if _, tended := m.Annotations[uninitialized]; tended || m.Initializers != nil {
		return nil, errTended
	}
	return &metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
		Finalizers: m.Finalizers, OwnerReferences: m.OwnerReferences,
	}, nil
}

// metadataIn reads the metadata of an object in protobuf: it is the first field of every kind.
func metadataIn(kv *mvccpb.KeyValue, u *runtime.Unknown) (*metav1.ObjectMeta, error) {
	var m metav1.PartialObjectMetadata
	if err := m.Unmarshal(u.Raw); err != nil {
		return nil, unreadable(kv, err)
	}
	if _, tended := m.Annotations[uninitialized]; tended {
		return nil, errTended
	}
	return &m.ObjectMeta, nil
}

// whole is the form of clients that want objects in protobuf, in the version in which they are
// stored. The stored bytes of an object are sent unchanged.
type whole struct{ kind schema.GroupVersionKind }

func (whole) mediaType() string { return runtime.ContentTypeProtobuf }

const (
	// metadataField, listField and versionField are the tags of metadata in an object, of
	// items in a list and of resourceVersion in metadata.
	metadataField, listField, versionField = 1<<3 | 2, 2<<3 | 2, 6<<3 | 2
)

func (w whole) object(kv *mvccpb.KeyValue, revision int64) ([]byte, error) {
	u, err := unwrapped(kv)
	if err != nil {
		return nil, err
	}
	if u == nil || schema.FromAPIVersionAndKind(u.APIVersion, u.Kind) != w.kind || u.ContentEncoding != "" {
		return nil, errTended
	}
	if _, err := metadataIn(kv, u); err != nil {
		return nil, err
	}
	// In protobuf, repeated messages are merged: the resource version, which is not stored, is
	// added to the metadata at the end.
	version := strconv.AppendInt(nil, revision, 10)
	metadata := append(appendLength([]byte{versionField}, len(version)), version...)
	return append(appendLength(append(u.Raw, metadataField), len(metadata)), metadata...), nil
}

func (w whole) list(meta metav1.ListMeta, objects [][]byte) ([]byte, error) {
	head, err := meta.Marshal()
	if err != nil {
		return nil, err
	}
	size := len(head) + 2*binary.MaxVarintLen64
	for _, one := range objects {
		size += len(one) + binary.MaxVarintLen64
	}
	raw := append(appendLength(append(make([]byte, 0, size), metadataField), len(head)), head...)
	for _, one := range objects {
		raw = append(appendLength(append(raw, listField), len(one)), one...)
	}
	return wrapped(w.kind.GroupVersion().WithKind(w.kind.Kind+"List"), raw)
}

func (w whole) event(kind string, object []byte) ([]byte, error) {
	if kind != "ERROR" {
		var err error
		if object, err = wrapped(w.kind, object); err != nil {
			return nil, err
		}
	}
	event := &metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object}}
	data, err := event.Marshal()
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...), nil
}

func (whole) status(status *metav1.Status) ([]byte, error) {
	data, err := status.Marshal()
	if err != nil {
		return nil, err
	}
	return wrapped(schema.GroupVersionKind{Version: "v1", Kind: "Status"}, data)
}

func appendLength(data []byte, length int) []byte { return binary.AppendUvarint(data, uint64(length)) }

// wrapped returns an object in protobuf in the form that is sent.
func wrapped(kind schema.GroupVersionKind, raw []byte) ([]byte, error) {
	u := &runtime.Unknown{Raw: raw}
	u.APIVersion, u.Kind = kind.ToAPIVersionAndKind()
	data, err := u.Marshal()
	return append(bytes.Clone(mark), data...), err
}
