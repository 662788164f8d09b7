package exclusion

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Effect is the effect of a rule.
type Effect string

// The effects.
const (
	// Skip: no entry of the plugins applies to the request (S23.5).
	Skip Effect = "skip"
	// IgnoreFailures: a failure is handled as with failure policy Ignore (S23.6).
	IgnoreFailures Effect = "ignoreFailures"
	// CapTimeout: a call of a webhook takes at most timeoutSeconds (S23.7).
	CapTimeout Effect = "capTimeout"
	// Deny, Warn and Audit: the entries have this mode, regardless of their annotations (S28.5).
	Deny  Effect = "deny"
	Warn  Effect = "warn"
	Audit Effect = "audit"
)

// modes are the modes that effects set.
var modes = map[Effect]registration.Mode{Deny: registration.ModeDeny, Warn: registration.ModeWarn, Audit: registration.ModeAudit}

// Rule is one element of exclusionRules in the AdmissionConfiguration. A request must match all
// lists that are not empty, by any value of each (S23.3).
type Rule struct {
	// Name identifies the rule in traces, audit events and metrics.
	Name string `json:"name"`
	// Effect is skip, ignoreFailures, capTimeout, deny, warn or audit.
	Effect Effect `json:"effect"`
	// TimeoutSeconds is the timeout of the effect capTimeout, from 1 to 29.
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// Plugins are the names of the plugins of the rule; empty means all plugins that support the
	// effect.
	Plugins []string `json:"plugins,omitempty"`
	// Configurations are the names of webhook configurations, policies and bindings for the effects
	// deny, warn and audit; empty means all.
	Configurations []string `json:"configurations,omitempty"`
	// Operations are CREATE, UPDATE, DELETE and CONNECT.
	Operations []string `json:"operations,omitempty"`
	// APIGroups and Resources match the resource of the request; "*" is any. A resource may have a
	// subresource, as in rules of webhooks: nodes/status, pods/*, */status, */*.
	APIGroups []string `json:"apiGroups,omitempty"`
	Resources []string `json:"resources,omitempty"`
	// Namespaces and Names match the object.
	Namespaces []string `json:"namespaces,omitempty"`
	Names      []string `json:"names,omitempty"`
	// Users and Groups match the user who makes the request.
	Users  []string `json:"users,omitempty"`
	Groups []string `json:"groups,omitempty"`
}

// Timeout returns the maximum duration of a call; 0 if the rule sets none.
func (r *Rule) Timeout() time.Duration { return time.Duration(r.TimeoutSeconds) * time.Second }

// Rules are all rules of a server, in order. They are immutable; nil has none.
type Rules struct{ list []Rule }

// List returns the rules. The caller must not change them.
func (r *Rules) List() []Rule {
	if r == nil {
		return nil
	}
	return r.list
}

// plugins are the plugins with exclusion rules, and the effects that each supports.
var plugins = map[string][]Effect{
	registration.InitializersPlugin:     {Skip},
	registration.MutatingPolicyPlugin:   {Skip, IgnoreFailures, Deny, Warn, Audit},
	registration.ValidatingPolicyPlugin: {Skip, IgnoreFailures, Deny, Warn, Audit},
	registration.MutatingPlugin:         {Skip, IgnoreFailures, CapTimeout, Deny, Warn, Audit},
	registration.ExternalPlugin:         {Skip, IgnoreFailures, CapTimeout, Deny, Warn, Audit},
	registration.ValidatingPlugin:       {Skip, IgnoreFailures, CapTimeout, Deny, Warn, Audit},
}

var (
	effects     = []string{string(Skip), string(IgnoreFailures), string(CapTimeout), string(Deny), string(Warn), string(Audit)}
	operations  = []string{"CREATE", "UPDATE", "DELETE", "CONNECT"}
	pluginNames = []string{
		registration.InitializersPlugin, registration.MutatingPolicyPlugin, registration.MutatingPlugin,
		registration.ValidatingPolicyPlugin, registration.ExternalPlugin, registration.ValidatingPlugin,
	}
)

// New checks and returns rules. The error names each wrong field and value, and gives the correct
// form (S23.2).
func New(list []Rule) (*Rules, error) {
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range list {
		path := field.NewPath("exclusionRules").Index(i)
		r := &list[i]
		switch {
		case r.Name == "":
			errs = append(errs, field.Required(path.Child("name"), "traces, audit events and metrics name the rule"))
		case names[r.Name]:
			errs = append(errs, field.Duplicate(path.Child("name"), r.Name))
		default:
			for _, text := range validation.IsDNS1123Label(r.Name) {
				errs = append(errs, field.Invalid(path.Child("name"), r.Name, text))
			}
		}
		names[r.Name] = true
		errs = append(errs, r.check(path)...)
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	if len(list) == 0 {
		return nil, nil
	}
	return &Rules{list: list}, nil
}

func (r *Rule) check(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case r.Effect == "":
		errs = append(errs, field.Required(path.Child("effect"), "must be one of "+strings.Join(effects, ", ")))
	case !slices.Contains(effects, string(r.Effect)):
		errs = append(errs, field.NotSupported(path.Child("effect"), r.Effect, effects))
	}
	timeout := path.Child("timeoutSeconds")
	switch {
	case r.Effect == CapTimeout && (r.TimeoutSeconds < 1 || r.TimeoutSeconds > 29):
		errs = append(errs, field.Invalid(timeout, r.TimeoutSeconds, "must be between 1 and 29 with the effect capTimeout: no webhook may take more than 30"))
	case r.Effect != CapTimeout && r.TimeoutSeconds != 0:
		errs = append(errs, field.Invalid(timeout, r.TimeoutSeconds, "has a meaning only with the effect capTimeout: remove it, or change the effect"))
	}
	if _, ok := modes[r.Effect]; !ok && len(r.Configurations) > 0 && slices.Contains(effects, string(r.Effect)) {
		errs = append(errs, field.Forbidden(path.Child("configurations"), "has a meaning only with the effects deny, warn and audit: remove it, or change the effect"))
	}
	for i, name := range r.Plugins {
		at := path.Child("plugins").Index(i)
		known, ok := plugins[name]
		switch {
		case !ok:
			errs = append(errs, field.NotSupported(at, name, pluginNames))
		case !slices.Contains(known, r.Effect) && slices.Contains(effects, string(r.Effect)):
			errs = append(errs, field.Invalid(at, name, fmt.Sprintf("the effect %s does nothing for this plugin: remove the plugin, or use %s", r.Effect, known[0])))
		}
	}
	for i, o := range r.Operations {
		if !slices.Contains(operations, o) {
			errs = append(errs, field.NotSupported(path.Child("operations").Index(i), o, operations))
		}
	}
	for i, resource := range r.Resources {
		at := path.Child("resources").Index(i)
		main, sub, has := strings.Cut(resource, "/")
		switch {
		case main == "" || has && sub == "" || strings.Contains(sub, "/"):
			errs = append(errs, field.Invalid(at, resource, "must be RESOURCE or RESOURCE/SUBRESOURCE, such as nodes/status; * matches any"))
		case main != strings.ToLower(main):
			errs = append(errs, field.Invalid(at, resource, "must be the plural in lower case, as in URLs"))
		}
	}
	for name, values := range map[string][]string{"configurations": r.Configurations, "namespaces": r.Namespaces, "names": r.Names, "users": r.Users, "groups": r.Groups} {
		for i, v := range values {
			if v == "" {
				errs = append(errs, field.Required(path.Child(name).Index(i), "remove the entry, or the list to match all"))
			} else if strings.Contains(v, "*") {
				errs = append(errs, field.Invalid(path.Child(name).Index(i), v, "no wildcards here: list the values, or remove the list to match all"))
			}
		}
	}
	if !r.selects() {
		errs = append(errs, field.Invalid(path, r.Name, "this matches every request: name at least resources, namespaces, names, users or groups; configurations if the effect is deny, warn or audit"))
	}
	return errs
}

// selects reports whether the rule selects only some of the requests. A list of all resources
// without their subresources does not count, because every created object is in a main resource.
// The group system:authenticated does not count either.
func (r *Rule) selects() bool {
	everything := len(r.Resources) == 0 || slices.Contains(r.Resources, "*/*") || slices.Contains(r.Resources, "*")
	any := len(r.APIGroups) == 0 || slices.Contains(r.APIGroups, "*")
	everybody := len(r.Groups) == 0 || slices.Contains(r.Groups, user.AllAuthenticated)
	return !everything || !any || !everybody || len(r.Namespaces)+len(r.Names)+len(r.Users)+len(r.Configurations) > 0
}

// Attributes is the part of a request that is compared with rules.
type Attributes struct {
	// Operation is CREATE, UPDATE, DELETE or CONNECT.
	Operation                    string
	Group, Resource, Subresource string
	Namespace, Name              string
	// User may be nil.
	User user.Info
}

// Exclusion has the rules that match one plugin and one request. Nil means that no rule matches.
type Exclusion struct {
	// Skip, IgnoreFailures and CapTimeout are the rules with these effects; nil for none. If
	// several rules have one effect the first one counts, and for CapTimeout the one with the
	// shortest time.
	Skip, IgnoreFailures, CapTimeout *Rule
	// Modes are the rules that set the mode of entries, in order.
	Modes []*Rule
}

// For returns the rules that match a plugin and a request; nil if none does. It allocates only if a
// rule matches.
func (r *Rules) For(plugin string, q *Attributes) *Exclusion {
	if r == nil {
		return nil
	}
	var out *Exclusion
	for i := range r.list {
		rule := &r.list[i]
		if !rule.concerns(plugin) || !rule.matches(q) {
			continue
		}
		if out == nil {
			out = &Exclusion{}
		}
		switch rule.Effect {
		case Skip:
			// Other rules cannot have an effect on skipped entries.
			return &Exclusion{Skip: rule}
		case IgnoreFailures:
			if out.IgnoreFailures == nil {
				out.IgnoreFailures = rule
			}
		case CapTimeout:
			if out.CapTimeout == nil || rule.TimeoutSeconds < out.CapTimeout.TimeoutSeconds {
				out.CapTimeout = rule
			}
		default:
			out.Modes = append(out.Modes, rule)
		}
	}
	return out
}

// concerns reports whether the rule applies to a plugin.
func (r *Rule) concerns(plugin string) bool {
	if len(r.Plugins) > 0 {
		return slices.Contains(r.Plugins, plugin)
	}
	return slices.Contains(plugins[plugin], r.Effect)
}

func (r *Rule) matches(q *Attributes) bool {
	return in(r.Operations, q.Operation) &&
		(in(r.APIGroups, q.Group) || slices.Contains(r.APIGroups, "*")) &&
		(len(r.Resources) == 0 || Covers(r.Resources, q.Resource, q.Subresource)) &&
		in(r.Namespaces, q.Namespace) && in(r.Names, q.Name) && r.byUser(q.User)
}

// in reports whether a list is empty or contains a value.
func in(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }

// Covers reports whether one of a rule's resources matches the resource or subresource of a request
// (S2.7). "pods/*" matches pods, too.
func Covers(resources []string, resource, subresource string) bool {
	for _, one := range resources {
		main, sub, _ := strings.Cut(one, "/")
		if (main == "*" || main == resource) && (sub == "*" || sub == subresource) {
			return true
		}
	}
	return false
}

func (r *Rule) byUser(u user.Info) bool {
	if len(r.Users) == 0 && len(r.Groups) == 0 {
		return true
	}
	if u == nil || !in(r.Users, u.GetName()) {
		return false
	}
	if len(r.Groups) == 0 {
		return true
	}
	return slices.ContainsFunc(u.GetGroups(), func(g string) bool { return slices.Contains(r.Groups, g) })
}

// Skips reports whether the entries of the plugin are skipped.
func (x *Exclusion) Skips() bool { return x != nil && x.Skip != nil }

// Forgives reports whether failures are ignored.
func (x *Exclusion) Forgives() bool { return x != nil && x.IgnoreFailures != nil }

// Mode returns the mode of an entry set by the rules, and the rule; nil if there is none.
// configurations are the names of the entry's objects. The strictest mode counts (S28.5).
func (x *Exclusion) Mode(configurations ...string) (registration.Mode, *Rule) {
	if x == nil || x.Modes == nil {
		return "", nil
	}
	for _, effect := range []Effect{Deny, Warn, Audit} {
		for _, rule := range x.Modes {
			if rule.Effect != effect {
				continue
			}
			if len(rule.Configurations) == 0 || slices.ContainsFunc(configurations, func(c string) bool { return slices.Contains(rule.Configurations, c) }) {
				return modes[effect], rule
			}
		}
	}
	return "", nil
}

// Timeout returns the maximum duration of a call whose own timeout is own.
func (x *Exclusion) Timeout(own time.Duration) time.Duration {
	if x == nil || x.CapTimeout == nil {
		return own
	}
	return min(own, x.CapTimeout.Timeout())
}
