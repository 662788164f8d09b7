package admission

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// The names of the plugins, as in flags, configuration files and metrics (S9.2).
const (
	NamespaceLifecycleName = "NamespaceLifecycle"
	InitializersName       = registration.InitializersPlugin
	MutatingPolicyName     = registration.MutatingPolicyPlugin
	MutatingWebhookName    = registration.MutatingPlugin
	ValidatingPolicyName   = registration.ValidatingPolicyPlugin
	GenericWebhookName     = registration.ExternalPlugin
	ValidatingWebhookName  = registration.ValidatingPlugin
)

// Known is a plugin that may appear in flags.
type Known struct {
	Name string
	// Default reports whether the plugin runs by default.
	Default bool
}

// Recommended returns the engine's plugins in the default order: the first plugin runs first (S9.3,
// S9.4, S19.2). A server inserts its own mutating plugins before MutatingWebhookName, and appends
// the quota plugin.
func Recommended() []Known {
	list := []Known{{NamespaceLifecycleName, true}}
	for _, source := range registration.InOrder() {
		list = append(list, Known{source.Descriptor().Plugin, true})
	}
	return list
}

// Plugins returns the plugins with these names, in this order. Plugins for webhooks, policies and
// initializers are the Engine's own, and other creates all other plugins. If other is nil, or
// returns nil without an error, the Engine can create NamespaceLifecycle itself. The error names
// the plugin that could not be created.
func (e *Engine) Plugins(names []string, other func(name string) (admission.Interface, error)) ([]Plugin, error) {
	list := make([]Plugin, 0, len(names))
	for _, name := range names {
		p := Plugin{Name: name, Interface: e.acting(name)}
		if p.Interface == nil && other != nil {
			var err error
			if p.Interface, err = other(name); err != nil {
				return nil, fmt.Errorf("admission plugin %s: %w", name, err)
			}
		}
		if p.Interface == nil && name == NamespaceLifecycleName {
			p.Interface = NewNamespaceLifecycle(e.options.Namespaces)
		}
		if p.Interface == nil {
			return nil, fmt.Errorf("admission plugin %s: it is unknown", name)
		}
		list = append(list, p)
	}
	return list, nil
}

// acting returns the Engine's plugin with a name; nil if there is none.
func (e *Engine) acting(name string) admission.Interface {
	for _, p := range []interface {
		admission.Interface
		acting
	}{e.initializers, &e.mutatingPolicies, &e.mutating, &e.validatingPolicies, &e.external, &e.validating} {
		if p.acts().Plugin == name {
			return p
		}
	}
	return nil
}

// Selection has the values of the flags that select plugins. Its zero value is the default set.
type Selection struct {
	// Control is --admission-control: exactly these plugins, in this order. Empty means that the
	// flag was not set.
	Control []string
	// Enable and Disable are --enable-admission-plugins and --disable-admission-plugins: they
	// change the default set, and the order remains the recommended one.
	Enable  []string
	Disable []string
}

// Names returns the names of the plugins to run, in order. known lists all plugins in the order in
// which they run by default. Names ignores spaces around a name. The error lists all unknown names
// and their flag (S9.6, S9.7).
func (s Selection) Names(known []Known) ([]string, error) {
	s = Selection{trimmed(s.Control), trimmed(s.Enable), trimmed(s.Disable)}
	if len(s.Control) > 0 {
		return s.controlled(known)
	}
	if err := checkKnown("enable-admission-plugins", s.Enable, known); err != nil {
		return nil, err
	}
	if err := checkKnown("disable-admission-plugins", s.Disable, known); err != nil {
		return nil, err
	}
	for _, name := range s.Enable {
		if slices.Contains(s.Disable, name) {
			return nil, fmt.Errorf("enable-admission-plugins and disable-admission-plugins both have plugin %q", name)
		}
	}
	var names []string
	for _, k := range known {
		if slices.Contains(s.Enable, k.Name) || k.Default && !slices.Contains(s.Disable, k.Name) {
			names = append(names, k.Name)
		}
	}
	return names, nil
}

func (s Selection) controlled(known []Known) ([]string, error) {
	if len(s.Enable) > 0 || len(s.Disable) > 0 {
		return nil, errors.New("admission-control is the whole list, and goes with neither enable-admission-plugins nor disable-admission-plugins")
	}
	if err := checkKnown("admission-control", s.Control, known); err != nil {
		return nil, err
	}
	for i, name := range s.Control {
		if slices.Contains(s.Control[:i], name) {
			return nil, fmt.Errorf("admission-control plugin %q is given twice", name)
		}
	}
	return slices.Clone(s.Control), nil
}

// trimmed returns names without surrounding spaces, because users also put spaces after the commas
// of a list.
func trimmed(names []string) []string {
	list := slices.Clone(names)
	for i, name := range list {
		list[i] = strings.TrimSpace(name)
	}
	return list
}

func checkKnown(flag string, names []string, known []Known) error {
	var all, unknown []string
	for _, k := range known {
		all = append(all, k.Name)
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			unknown = append(unknown, strconv.Quote(name))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	plugins := "plugin"
	if len(unknown) > 1 {
		plugins = "plugins"
	}
	return fmt.Errorf("%s: unknown %s %s; known plugins: %s", flag, plugins, strings.Join(unknown, ", "), strings.Join(all, ", "))
}
