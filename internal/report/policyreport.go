package report

import (
	"bytes"
	"cmp"
	"io"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"
)

// Resource is what a policy says of an object of a cluster.
type Resource struct {
	APIVersion, Kind, Namespace, Name, UID string
	// Policy names what judged the object, and Rule is a part of it; it may be empty.
	Policy, Rule string
	// Result is pass, fail, warn, error or skip.
	Result, Message string
}

// policyReportName is the name of the reports, one of which is in each namespace.
const policyReportName = "gatehouse-audit"

// maxPolicyResults bounds the results of one PolicyReport: an object of the API may have 1.5 MiB in
// etcd.
const maxPolicyResults = 1000

// policyReports writes PolicyReports, one or more for each namespace, and ClusterPolicyReports, in
// YAML.
func (r *Report) policyReports(w io.Writer) error {
	byNamespace := map[string][]Resource{}
	var order []string
	for _, one := range r.Resources {
		if byNamespace[one.Namespace] == nil {
			order = append(order, one.Namespace)
		}
		byNamespace[one.Namespace] = append(byNamespace[one.Namespace], one)
	}
	slices.Sort(order)
	var b bytes.Buffer
	for _, namespace := range order {
		n := 0
		for part := range slices.Chunk(byNamespace[namespace], maxPolicyResults) {
			data, err := yaml.Marshal(policyReport(namespace, n, part))
			if err != nil {
				return err
			}
			b.WriteString("---\n")
			b.Write(data)
			n++
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func policyReport(namespace string, n int, list []Resource) map[string]any {
	name := policyReportName
	if n > 0 {
		name += "-" + strconv.Itoa(n+1)
	}
	meta := map[string]any{"name": name, "labels": map[string]any{"app.kubernetes.io/managed-by": "gatehouse"}}
	kind := "ClusterPolicyReport"
	if namespace != "" {
		kind, meta["namespace"] = "PolicyReport", namespace
	}
	summary := map[string]int{"pass": 0, "fail": 0, "warn": 0, "error": 0, "skip": 0}
	results := make([]any, len(list))
	for i, r := range list {
		severity := "high"
		if r.Result != "fail" {
			severity = "low"
		}
		summary[r.Result]++
		about := map[string]any{"apiVersion": r.APIVersion, "kind": r.Kind, "name": r.Name}
		if r.Namespace != "" {
			about["namespace"] = r.Namespace
		}
		if r.UID != "" {
			about["uid"] = r.UID
		}
		one := map[string]any{"policy": r.Policy, "result": r.Result, "severity": severity, "source": "gatehouse", "message": cmp.Or(r.Message, "no message"), "resources": []any{about}}
		if r.Rule != "" {
			one["rule"] = r.Rule
		}
		results[i] = one
	}
	return map[string]any{"apiVersion": "wgpolicyk8s.io/v1alpha2", "kind": kind, "metadata": meta, "summary": summary, "results": results}
}
