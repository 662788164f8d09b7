package initializers

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// disown removes the field from the managedFields of all managers. k8s.io/apimachinery does this
// only for fields removed by clients, not for fields removed by the server. disown also removes a
// manager that owned nothing else.
func disown(m metav1.Object) {
	managed := m.GetManagedFields()
	var kept []metav1.ManagedFieldsEntry
	changed := false
	for _, entry := range managed {
		if entry.FieldsV1 != nil {
			if fields, found := withoutField(entry.FieldsV1.GetRawBytes()); found {
				changed = true
				if len(fields) == 0 {
					continue
				}
				// The entry may share its FieldsV1 with a cache.
				entry.FieldsV1 = metav1.NewFieldsV1(string(fields))
			}
		}
		kept = append(kept, entry)
	}
	if changed {
		m.SetManagedFields(kept)
	}
}

// withoutField returns a set of fields without metadata.initializers, empty if no field is left,
// and whether the set had the field. A set that cannot be parsed is unchanged.
func withoutField(fields []byte) (left []byte, found bool) {
	const metadata, field = "f:metadata", "f:initializers"
	if !bytes.Contains(fields, []byte(field)) {
		return nil, false
	}
	var set, inner map[string]json.RawMessage
	if json.Unmarshal(fields, &set) != nil || json.Unmarshal(set[metadata], &inner) != nil || inner[field] == nil {
		return nil, false
	}
	delete(inner, field)
	if len(inner) == 0 {
		delete(set, metadata)
	} else {
		set[metadata] = encode(inner)
	}
	if len(set) == 0 {
		return nil, true
	}
	return encode(set), true
}

// encode encodes members that were decoded from JSON.
func encode(members map[string]json.RawMessage) []byte {
	data, err := json.Marshal(members)
	if err != nil {
		panic("decoded JSON cannot be encoded: " + err.Error())
	}
	return data
}
