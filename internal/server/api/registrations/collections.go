package registrations

import (
	"fmt"
	"path"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	// It adds the policies to the scheme.
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"

	admissionregistration "github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Collection is the collection of the objects of one kind in etcd.
type Collection struct {
	// Resource is the plural, such as mutatingwebhookconfigurations.
	Resource string
	// Prefix begins the keys; the rest of a key is an object's name.
	Prefix string

	decoder runtime.Decoder
}

// policies are the sources whose objects are served with the built-in kinds.
func policies() []admissionregistration.Descriptor {
	return admissionregistration.Sources()[admissionregistration.ValidatingPolicies:]
}

// Collections lists the kinds that configure admission, in an order that does not change. root is the
// prefix of all keys of the server.
func Collections(root string) []Collection {
	var list []Collection
	for _, k := range kinds {
		plural := k.Descriptor().Resource
		list = append(list, Collection{Resource: plural, Prefix: path.Join(root, plural) + "/", decoder: storageCodec(k.hub())})
	}
	for _, p := range policies() {
		list = append(list, Collection{Resource: p.Resource, Prefix: path.Join(root, p.Resource) + "/", decoder: legacyscheme.Codecs.UniversalDeserializer()})
	}
	return list
}

// Decode decodes a stored object, without managedFields: admission does not need them, and they
// take as much memory as the rest. revision is the revision of the object's last modification. The
// error names the key.
func (c *Collection) Decode(key, value []byte, revision int64) (runtime.Object, error) {
	obj, err := runtime.Decode(c.decoder, value)
	if err != nil {
		return nil, fmt.Errorf("decoding %s: %w", key, err)
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("decoding %s: %w", key, err)
	}
	m.SetResourceVersion(strconv.FormatInt(revision, 10))
	m.SetManagedFields(nil)
	return obj, nil
}
