package replay

import (
	"bytes"
	"cmp"
	"io"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"
)

// reportName is the name of the reports, one of which is in each namespace.
const reportName = "gatehouse-audit"

// maxResults bounds the results of one report: an object of the API may have 1.5 MiB in etcd.
const maxResults = 1000

// PolicyReports writes the findings as PolicyReports, one or more for each namespace, and
// ClusterPolicyReports, in YAML.
func (r *AuditReport) PolicyReports(w io.Writer) error {
	byNamespace := map[string][]*AuditFinding{}
	var order []string
	for _, f := range r.Findings {
		if byNamespace[f.Namespace] == nil {
			order = append(order, f.Namespace)
		}
		byNamespace[f.Namespace] = append(byNamespace[f.Namespace], f)
	}
	slices.Sort(order)
	var b bytes.Buffer
	for _, namespace := range order {
		n := 0
		for part := range slices.Chunk(byNamespace[namespace], maxResults) {
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

func policyReport(namespace string, n int, findings []*AuditFinding) map[string]any {
	name := reportName
	if n > 0 {
		name += "-" + strconv.Itoa(n+1)
	}
	meta := map[string]any{"name": name, "labels": map[string]any{"app.kubernetes.io/managed-by": "gatehouse"}}
	kind := "ClusterPolicyReport"
	if namespace != "" {
		kind, meta["namespace"] = "PolicyReport", namespace
	}
	summary := map[string]int{"pass": 0, "fail": 0, "warn": 0, "error": 0, "skip": 0}
	results := make([]any, len(findings))
	for i, f := range findings {
		// The format knows no changes.
		result, severity := f.Result, "high"
		if f.Result != Fails {
			severity = "low"
		}
		if result == ChangesIt {
			result = Warns
		}
		summary[string(result)]++
		about := map[string]any{"apiVersion": f.APIVersion, "kind": f.ObjectKind, "name": f.Name}
		if f.Namespace != "" {
			about["namespace"] = f.Namespace
		}
		if f.UID != "" {
			about["uid"] = f.UID
		}
		one := map[string]any{"policy": f.Policy, "result": string(result), "severity": severity, "source": "gatehouse", "message": cmp.Or(f.Message, "no message"), "resources": []any{about}}
		if f.Validation != nil {
			one["rule"] = strconv.Itoa(*f.Validation)
		}
		results[i] = one
	}
	return map[string]any{"apiVersion": "wgpolicyk8s.io/v1alpha2", "kind": kind, "metadata": meta, "summary": summary, "results": results}
}
