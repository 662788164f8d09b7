package hooktest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// ConvertWidgets is a conversion webhook that renames spec.size in v1beta1 to spec.replicas in the other
// versions.
func ConvertWidgets(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion string `json:"apiVersion"`
		Request    struct {
			UID               string           `json:"uid"`
			DesiredAPIVersion string           `json:"desiredAPIVersion"`
			Objects           []map[string]any `json:"objects"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	from, to := "size", "replicas"
	if strings.HasSuffix(review.Request.DesiredAPIVersion, "/v1beta1") {
		from, to = to, from
	}
	for _, o := range review.Request.Objects {
		o["apiVersion"] = review.Request.DesiredAPIVersion
		if spec, ok := o["spec"].(map[string]any); ok {
			if value, ok := spec[from]; ok {
				spec[to] = value
				delete(spec, from)
			}
		}
	}
	// An error means that the client has closed the connection, and can be ignored.
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": review.APIVersion, "kind": "ConversionReview", "response": map[string]any{
		"uid": review.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": review.Request.Objects,
	}})
}
