package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"
)

// Resource is the result of a policy for an object of a cluster.
type Resource struct {
	APIVersion, Kind, Namespace, Name, UID string
	// Policy names the policy, webhook or plugin of the result, and Rule a part of it; Rule may be empty.
	Policy, Rule string
	// Result is pass, fail, warn, error or skip. Severity is high, medium, low or info; empty means high for
	// failures, and low otherwise.
	Result, Severity, Message string
	// ID, if set, is a property of the result by which a program recognizes it later.
	ID string
}

// PropertyID is the property with the ID of a result.
const PropertyID = "gatehouse.dev/id"

// Reports is a kind of reports in a cluster: a namespaced kind and a cluster-scoped kind.
type Reports struct {
	APIVersion, Namespaced, Cluster string
}

// The kinds of reports. The results of both have the same fields.
var (
	PolicyReports = Reports{"wgpolicyk8s.io/v1alpha2", "PolicyReport", "ClusterPolicyReport"}
	OpenReports   = Reports{"openreports.io/v1alpha1", "Report", "ClusterReport"}
)

// Bounds of one report, in results and in bytes of JSON: an API object in etcd is limited to 1.5 MiB.
const (
	maxPolicyResults = 1000
	maxPolicyBytes   = 1 << 20
)

// policyReports writes PolicyReports, one or more for each namespace, and ClusterPolicyReports, in YAML.
func (r *Document) policyReports(w io.Writer) error {
	var b bytes.Buffer
	for _, one := range PolicyReports.Of("gatehouse-audit", map[string]any{"app.kubernetes.io/managed-by": "gatehouse"}, r.Resources) {
		data, err := yaml.Marshal(one)
		if err != nil {
			return err
		}
		b.WriteString("---\n")
		b.Write(data)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Of returns the reports of results, one or more for each namespace, ordered by namespace and name. The second
// report of a namespace has the name NAME-2.
func (k Reports) Of(name string, labels map[string]any, list []Resource) (reports []map[string]any) {
	byNamespace := map[string][]Resource{}
	for _, one := range list {
		byNamespace[one.Namespace] = append(byNamespace[one.Namespace], one)
	}
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		var results []any
		size, n := 0, 0
		summary := map[string]any{}
		end := func() {
			n++
			meta := map[string]any{"name": name, "labels": maps.Clone(labels)}
			if n > 1 {
				meta["name"] = name + "-" + strconv.Itoa(n)
			}
			kind := k.Cluster
			if namespace != "" {
				kind, meta["namespace"] = k.Namespaced, namespace
			}
			reports = append(reports, map[string]any{"apiVersion": k.APIVersion, "kind": kind, "metadata": meta, "summary": summary, "results": results})
		}
		for i := range byNamespace[namespace] {
			r := &byNamespace[namespace][i]
			one := r.result()
			// Maps of strings can always be encoded.
			data, _ := json.Marshal(one)
			if len(results) == maxPolicyResults || len(results) > 0 && size+len(data) > maxPolicyBytes {
				end()
				results, size, summary = nil, 0, map[string]any{}
			}
			if len(results) == 0 {
				for _, result := range []string{"pass", "fail", "warn", "error", "skip"} {
					summary[result] = int64(0)
				}
			}
			results, size = append(results, one), size+len(data)
			count, _ := summary[r.Result].(int64)
			summary[r.Result] = count + 1
		}
		end()
	}
	return reports
}

// result returns the report entry of a Resource.
func (r *Resource) result() map[string]any {
	severity := "high"
	if r.Result != "fail" {
		severity = "low"
	}
	about := map[string]any{"apiVersion": r.APIVersion, "kind": r.Kind, "name": r.Name}
	if r.Namespace != "" {
		about["namespace"] = r.Namespace
	}
	if r.UID != "" {
		about["uid"] = r.UID
	}
	one := map[string]any{"policy": r.Policy, "result": r.Result, "severity": cmp.Or(r.Severity, severity), "source": "gatehouse", "message": cmp.Or(r.Message, "no message"), "resources": []any{about}}
	if r.Rule != "" {
		one["rule"] = r.Rule
	}
	if r.ID != "" {
		one["properties"] = map[string]any{PropertyID: r.ID}
	}
	return one
}
