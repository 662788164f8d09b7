package auditlog

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// cause is the cause of a rejection, according to the status of a response.
type cause struct {
	// by is an admission plugin, or the name of a part of the server; unknown if the status is ambiguous.
	by string
	// webhook is the name of the webhook, and verdict the result of its call, if a webhook is the cause.
	webhook string
	verdict trace.Verdict
	// conditions is set if match conditions of a webhook failed.
	conditions bool
	// policy and binding are set if a policy is the cause. The binding may be empty.
	policy, binding string
	// message is the message of the policy.
	message string
}

// Names of parts of the server, in addition to the names in plans.
const (
	authentication = "Authentication"
	unknown        = string(trace.Unknown)
)

// The annotation with the decision of authorization, and its value for an unauthorized request.
const (
	decided   = "authorization.k8s.io/decision"
	forbidden = "forbid"
)

// rejection returns the cause of a rejection; by is empty if the request was not rejected.
func (e *event) rejection() cause {
	s := e.ResponseStatus
	switch {
	case e.Annotations[decided] == forbidden:
		return cause{by: plan.AuthorizationName}
	case e.Stage == "RequestReceived" || e.Stage == "Panic" || s == nil || s.Code == 0:
		return cause{by: unknown}
	case s.Code < http.StatusBadRequest:
		return cause{}
	case s.Code == http.StatusUnauthorized:
		return cause{by: authentication}
	case s.Code == http.StatusNotAcceptable, s.Code == http.StatusRequestEntityTooLarge, s.Code == http.StatusUnsupportedMediaType:
		return cause{by: plan.DecodingName}
	}
	for _, read := range []func(*event, *metav1.Status) (cause, bool){ofWebhook, ofMutatingPolicy, ofForbidden, ofServer} {
		if c, ok := read(e, s); ok {
			return c
		}
	}
	return cause{by: unknown}
}

// ofWebhook parses messages about a webhook, which begin with its quoted name.
func ofWebhook(_ *event, s *metav1.Status) (cause, bool) {
	for _, form := range []struct {
		before, after string
		verdict       trace.Verdict
	}{
		{"admission webhook ", " denied the request", trace.Denied},
		{"admission webhook ", " does not support dry run", trace.Refused},
		{"Internal error occurred: failed calling webhook ", ": ", trace.Failed},
	} {
		rest, ok := strings.CutPrefix(s.Message, form.before)
		quoted, err := strconv.QuotedPrefix(rest)
		if !ok || err != nil || !strings.HasPrefix(rest[len(quoted):], form.after) {
			continue
		}
		webhook, err := strconv.Unquote(quoted)
		if err == nil && webhook != "" {
			return cause{webhook: name(webhook), verdict: form.verdict}, true
		}
	}
	return cause{}, false
}

// plugins are the messages of built-in admission plugins after `RESOURCE "NAME" is forbidden: `. Only unambiguous
// messages are here.
var plugins = []struct {
	form *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`^violates PodSecurity "`), "PodSecurity"},
	{regexp.MustCompile(`^(exceeded|failed) quota: `), "ResourceQuota"},
	{regexp.MustCompile(`^unable to create new content in namespace \S+ because it is being terminated`), "NamespaceLifecycle"},
	{regexp.MustCompile(`^this namespace may not be deleted$`), "NamespaceLifecycle"},
	{regexp.MustCompile(`^error looking up service account `), "ServiceAccount"},
	{regexp.MustCompile(`^no PriorityClass with name `), "Priority"},
	{regexp.MustCompile(`^\[?(maximum|minimum) \S+ usage per (Container|Pod|PersistentVolumeClaim) is `), "LimitRanger"},
	{regexp.MustCompile(`^User "(\\.|[^"\\])*" cannot `), plan.AuthorizationName},
}

// ofForbidden parses a message of NewForbidden in upstream's package admission: the resource and the quoted name come
// first. The name of an object cannot imitate the rest of the message, because it is quoted.
func ofForbidden(e *event, s *metav1.Status) (cause, bool) {
	resource := e.ObjectRef.Resource
	if e.ObjectRef.APIGroup != "" {
		resource += "." + e.ObjectRef.APIGroup
	}
	rest, ok := strings.CutPrefix(s.Message, resource+" ")
	quoted, err := strconv.QuotedPrefix(rest)
	if !ok || err != nil {
		return cause{}, false
	}
	if rest, ok = strings.CutPrefix(rest[len(quoted):], " is forbidden: "); !ok {
		return cause{}, false
	}
	if m := validatingPolicy.FindStringSubmatch(rest); m != nil {
		return cause{by: registration.ValidatingPolicyPlugin, policy: name(m[1]), binding: name(m[2]), message: m[3]}, true
	}
	if matchConditions.MatchString(rest) {
		return cause{by: registration.MutatingPlugin + " or " + registration.ValidatingPlugin, conditions: true}, true
	}
	i := slices.IndexFunc(plugins, func(p struct {
		form *regexp.Regexp
		by   string
	}) bool {
		return p.form.MatchString(rest)
	})
	if i < 0 {
		return cause{}, false
	}
	return cause{by: plugins[i].by}, true
}

// matchConditions matches the error of a webhook's match conditions that failed under the failure policy Fail. The
// error of a policy begins with the name of the policy instead.
var matchConditions = regexp.MustCompile(`^\[?expression '(?s:.*)' resulted in error: `)

// Messages of policies. The message of a mutating policy lacks the name of the object.
var (
	validatingPolicy = regexp.MustCompile(`^ValidatingAdmissionPolicy '([^']*)'(?: with binding '([^']*)')? denied request: (?s:(.*))$`)
	mutatingPolicy   = regexp.MustCompile(`^policy (?:'([^']*)' with binding '([^']*)'|"([^"]*)") denied request: (?s:(.*))$`)
)

// ofMutatingPolicy parses the message of a mutating policy that failed.
func ofMutatingPolicy(_ *event, s *metav1.Status) (cause, bool) {
	m := mutatingPolicy.FindStringSubmatch(s.Message)
	if m == nil || s.Code != http.StatusForbidden {
		return cause{}, false
	}
	return cause{by: registration.MutatingPolicyPlugin, policy: name(m[1] + m[3]), binding: name(m[2]), message: m[4]}, true
}

// invalid matches a validation message: KIND[.GROUP] "NAME" is invalid.
var invalid = regexp.MustCompile(`^[A-Z]\w*(\.[a-z0-9.-]+)? "(\\.|[^"\\])*" is invalid: `)

// ofServer parses messages of parts other than admission.
func ofServer(e *event, s *metav1.Status) (cause, bool) {
	ref := e.ObjectRef
	switch {
	case s.Reason == metav1.StatusReasonInvalid && invalid.MatchString(s.Message):
		return cause{by: plan.ValidationName}, true
	case s.Code == http.StatusConflict && (s.Reason == metav1.StatusReasonAlreadyExists || s.Reason == metav1.StatusReasonConflict && strings.HasPrefix(s.Message, "Operation cannot be fulfilled on ")):
		return cause{by: plan.StorageName}, true
	case s.Code == http.StatusNotFound && s.Message == "namespaces "+strconv.Quote(ref.Namespace)+" not found" && ref.Namespace != "" && ref.Resource != "namespaces":
		return cause{by: "NamespaceLifecycle"}, true
	case s.Code == http.StatusNotFound && s.Details != nil && s.Details.Name == ref.Name && s.Details.Kind == ref.Resource && s.Details.Group == ref.APIGroup:
		return cause{by: plan.StorageName}, true
	case s.Code == http.StatusBadRequest && strings.Contains(s.Message, " cannot be handled as a "), s.Code == http.StatusBadRequest && strings.HasPrefix(s.Message, "strict decoding error: "),
		s.Code == http.StatusBadRequest && strings.HasPrefix(s.Message, "the object provided is unrecognized (must be of type "):
		return cause{by: plan.DecodingName}, true
	}
	return cause{}, false
}
