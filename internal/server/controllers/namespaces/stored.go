package namespaces

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/server/storage/encryption"
)

// Stored reads namespaces from etcd.
type Stored struct {
	// Decoder decodes a namespace into its v1 form, and Values, which may be nil, decrypts it.
	Decoder runtime.Decoder
	Values  *encryption.Transformers
}

// Read returns a namespace. The error names its key.
func (s Stored) Read(ctx context.Context, kv *mvccpb.KeyValue) (*corev1.Namespace, error) {
	value, err := s.Values.Plain(ctx, corev1.Resource("namespaces"), kv)
	if err != nil {
		return nil, err
	}
	obj, _, err := s.Decoder.Decode(value, nil, &corev1.Namespace{})
	if err != nil {
		return nil, fmt.Errorf("decoding %s: %w", kv.Key, err)
	}
	ns, ok := obj.(*corev1.Namespace)
	if !ok {
		return nil, fmt.Errorf("decoding %s: it is a %T", kv.Key, obj)
	}
	return ns, nil
}
