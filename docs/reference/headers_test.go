package reference

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/trace"

	"github.com/gatehouse-dev/gatehouse/test/pagetest"
)

// headers are the headers of answers that mean something here: name, answers that have it,
// meaning.
var headers = [][3]string{
	{admission.TraceHeader, "every request that admission decided, unless `--admission-trace-bytes` is 0", "The ID of the request's [trace](../who-changed-it.md#traces). `gatehouse trace ID` prints it."},
	{"Gatehouse-Registration-Revision", "every write that admission decided", "Every registration whose `resourceVersion` is not greater was active. [Operations](../three-servers.md#when-a-registration-is-active) says more."},
	{"Warning", "any answer", "A text for the user, as kubectl prints it: from webhooks and policies, about deprecated versions, and about registrations that are not active."},
	{"Retry-After", "429, and 500 and 503 that may pass", "The seconds after which a client may retry. Most clients of Kubernetes do so by themselves."},
	{"Audit-Id", "every answer", "The ID of the request's audit event."},
}

var headerName = regexp.MustCompile(`^Gatehouse-[A-Z][A-Za-z-]+$`)

// docs/reference/headers.md has the headers of the table, and every header of Gatehouse's
// own is in the table.
func TestTheReferenceHasAllHeaders(t *testing.T) {
	var b strings.Builder
	b.WriteString("Headers of answers for clients, and annotations of audit events.\n\n## Response headers\n\n| header | in the answer to | meaning |\n|---|---|---|\n")
	for _, h := range headers {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", h[0], h[1], pagetest.Cell(h[2]))
	}
	b.WriteString("\n## Audit annotations\n\n" + auditTable())
	check(t, "headers.md", "Response headers and audit annotations", b.String())
	found := map[string]bool{}
	for _, file := range sources(t) {
		for _, text := range parse(t, file).texts {
			if headerName.MatchString(text) {
				found[text] = true
				if !slices.ContainsFunc(headers, func(h [3]string) bool { return h[0] == text }) {
					t.Errorf("%s has the header %s, and the table of headers has not", file, text)
				}
			}
		}
	}
	for _, h := range headers {
		if headerName.MatchString(h[0]) && !found[h[0]] {
			t.Errorf("no code sets the header %s; remove its row", h[0])
		}
	}
}

// annotation is an annotation of an audit event. suffix describes the end of its key.
type annotation struct{ key, suffix, level, meaning string }

const roundIndex = "round_N_index_N"

var annotations = []annotation{
	{trace.MutationAnnotationPrefix, roundIndex, "Metadata", "A mutating webhook was called: `configuration`, `webhook`, and `mutated`, whether it changed the object. The index counts all webhooks of the kind."},
	{trace.PatchAnnotationPrefix, roundIndex, "Request", "The patch of a mutating webhook or policy."},
	{trace.FailedOpenMutationPrefix, roundIndex, "Metadata", "A mutating webhook failed, and the request went on: its `failurePolicy` is `Ignore`."},
	{trace.FailedOpenValidatingPrefix, roundIndex, "Metadata", "The same for a validating webhook."},
	{trace.FailedOpenExternalPrefix, roundIndex, "Metadata", "The same for an external admission hook."},
	{trace.DiscardedPrefix, roundIndex, "Metadata", "A mutating webhook was called ahead of its turn and its answer was not used. The value says why."},
	{trace.ValidationFailureAnnotation, "", "Metadata", "The violations of ValidatingAdmissionPolicies whose bindings have the action `Audit`."},
	{trace.SparedPrefix, "PLUGIN_" + roundIndex, "Metadata", "A webhook or policy in the mode Warn or Audit would have rejected or changed the request (S28): `configuration`, `webhook` or `binding`, `mode`, `would` and `message`."},
	{trace.ExclusionAnnotationPrefix, "PLUGIN, or PLUGIN_round_1", "Metadata", "Exclusion rules that changed the effect of the plugin (S23). The value has each rule, its effect and the entries."},
	{"missing-san.invalid-cert.kubernetes.io/", "HOST", "Metadata", "The webhook's certificate has no subjectAltName."},
	{"insecure-sha1.invalid-cert.kubernetes.io/", "HOST", "Metadata", "The webhook's certificate has a signature that uses SHA-1."},
}

// auditKey is the form of the keys of annotations in the package that writes them.
var auditKey = regexp.MustCompile(`^[a-z0-9.-]+\.(k8s\.io|kubernetes\.io|gatehouse\.dev)/[a-z_]*$`)

// auditTable is the section of the annotations.
func auditTable() string {
	var b strings.Builder
	b.WriteString("What admission adds to the audit event of a request. An event has an annotation when the audit policy asks for its level or a\nhigher one. `round` is 0, or 1 when webhooks are called again.\n\n| annotation | level | meaning |\n|---|---|---|\n")
	for _, a := range annotations {
		fmt.Fprintf(&b, "| `%s%s` | %s | %s |\n", a.key, a.suffix, a.level, pagetest.Cell(a.meaning))
	}
	b.WriteString("| `WEBHOOK/KEY` | Metadata | The webhook WEBHOOK answered with `auditAnnotations` that have KEY. |\n" +
		"| `POLICY/KEY` | Metadata | The policy POLICY has an audit annotation KEY. |\n" +
		"| `apiserver.latency.k8s.io/mutating-webhook`, `apiserver.latency.k8s.io/validating-webhook` | Metadata | How long the webhooks of a pass took. k8s.io/apiserver writes them for slow requests. |\n")
	return b.String()
}

// The table of annotations has every key in admission/trace, which alone annotates audit events
// (TestOnlyTheTraceCountsAndLogs).
func TestTheReferenceHasAllAuditAnnotations(t *testing.T) {
	keys := map[string]bool{}
	for _, file := range sources(t) {
		if !strings.HasPrefix(file, "admission/trace/") {
			continue
		}
		for _, text := range parse(t, file).texts {
			if auditKey.MatchString(text) {
				keys[text] = true
				if !slices.ContainsFunc(annotations, func(a annotation) bool { return a.key == text }) {
					t.Errorf("%s has the key %s, and the table of annotations has not", file, text)
				}
			}
		}
	}
	for _, a := range annotations {
		if !keys[a.key] {
			t.Errorf("admission/trace does not have the key %s; remove its row", a.key)
		}
	}
}
