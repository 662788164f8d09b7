package rollout

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// InForce interprets the result of reading a state: done is a message if there is nothing to wait for, and
// wait is the reason for waiting. name is the name of the state. deleted is set if the caller waits for the
// end of the registration.
func InForce(name string, deleted bool, state *unstructured.Unstructured, err error) (done, wait string, _ error) {
	if apierrors.IsNotFound(err) {
		if deleted {
			return "no server enforces " + name, "", nil
		}
		return "", "", fmt.Errorf("%s: no such registration", name)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError {
		return "", "", fmt.Errorf("%s: %w", name, err)
	}
	if err != nil {
		// Another attempt may succeed after the server, or its storage, has recovered.
		return "", err.Error(), nil
	}
	stored, _, _ := unstructured.NestedString(state.Object, "registration", "resourceVersion")
	if deleted && stored != "" {
		return "", "it still exists", nil
	}
	replicas, _, _ := unstructured.NestedSlice(state.Object, "replicas")
	var behind []string
	for _, r := range replicas {
		replica, _ := r.(map[string]any)
		if in, _ := replica["inForce"].(bool); !in {
			who := fmt.Sprintf("%v at %v", replica["name"], replica["address"])
			if off, _ := replica["off"].(bool); off {
				who += ", which enforces none of its kind"
			}
			behind = append(behind, who)
		}
	}
	if in, _, _ := unstructured.NestedBool(state.Object, "inForce"); in && !deleted {
		of := "resourceVersion " + stored
		if source, _, _ := unstructured.NestedString(state.Object, "registration", "source"); source != "" {
			of = "from manifest files"
		}
		return fmt.Sprintf("%s is active on %s, %s", name, report.Count(len(replicas), "server"), of), "", nil
	}
	if len(behind) == 0 {
		return "", "the servers have different manifest files", nil
	}
	return "", "not yet active on " + strings.Join(behind, ", "), nil
}
