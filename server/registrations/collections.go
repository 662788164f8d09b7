package registrations

import (
	"fmt"
	"path"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// Collection is where etcd keeps the objects of one kind.
type Collection struct {
	// Resource is the plural, such as mutatingwebhookconfigurations.
	Resource string
	// Prefix begins the keys; the rest of a key is an object's name.
	Prefix string

	codec runtime.Codec
}

// Collections lists the kinds, in an order that does not change. root is what all
// keys of the server begin with.
func Collections(root string) []Collection {
	list := make([]Collection, len(kinds))
	for i, k := range kinds {
		list[i] = Collection{Resource: k.plural, Prefix: path.Join(root, k.plural) + "/", codec: storageCodec(k.hub)}
	}
	return list
}

// Decode reads an object as it is stored. revision is that of its last
// modification. The error names the key.
func (c *Collection) Decode(key, value []byte, revision int64) (runtime.Object, error) {
	obj, err := runtime.Decode(c.codec, value)
	if err != nil {
		return nil, fmt.Errorf("decoding %s: %w", key, err)
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("decoding %s: %w", key, err)
	}
	m.SetResourceVersion(strconv.FormatInt(revision, 10))
	return obj, nil
}
