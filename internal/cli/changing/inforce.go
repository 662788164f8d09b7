package changing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/cli/command"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/report"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// registrationStates is where a server says which registrations are in force.
var registrationStates = schema.GroupVersionResource{Group: "gatehouse.dev", Version: "v1alpha1", Resource: "registrationstates"}

// registrationKinds are the kinds of registrations, by plural, with the names
// that are understood besides it.
var registrationKinds = map[string][]string{
	"mutatingwebhookconfigurations":       {"mutatingwebhookconfiguration", "mutating"},
	"validatingwebhookconfigurations":     {"validatingwebhookconfiguration", "validating"},
	"validatingadmissionpolicies":         {"validatingadmissionpolicy"},
	"validatingadmissionpolicybindings":   {"validatingadmissionpolicybinding"},
	"mutatingadmissionpolicies":           {"mutatingadmissionpolicy"},
	"mutatingadmissionpolicybindings":     {"mutatingadmissionpolicybinding"},
	"initializerconfigurations":           {"initializerconfiguration", "initializer"},
	"externaladmissionhookconfigurations": {"externaladmissionhookconfiguration", "external"},
}

type inForceOptions struct {
	cluster *command.Cluster
	// state is the name of the registration's state.
	state   string
	deleted bool
	timeout time.Duration
}

// NewWaitInForce returns the command gatehouse wait-in-force.
func NewWaitInForce(streams command.Streams) *cobra.Command {
	return newWaitInForceCommand(func(ctx context.Context, o *inForceOptions) error { return o.run(ctx, streams) })
}

func newWaitInForceCommand(run func(context.Context, *inForceOptions) error) *cobra.Command {
	o := &inForceOptions{}
	cmd := &cobra.Command{
		Use:   "wait-in-force KIND/NAME",
		Short: "Wait until every server enforces a registration",
		Long: `Wait until every server enforces a webhook configuration, an admission policy,
a policy binding, an initializer configuration or an external admission hook
configuration as it is stored now. Every server then applies it to all writes
that begin after the command ends.

KIND is as kubectl takes it, or one of mutating, validating, initializer and
external, which name the kinds that end in "configuration".`,
		Example: `  # register webhooks and wait until they are in force
  gatehouse kubectl apply -f webhooks.yaml
  gatehouse wait-in-force validatingwebhookconfiguration/podpolicy

  # delete a webhook and wait until no server enforces it
  gatehouse kubectl delete validatingwebhookconfiguration podpolicy
  gatehouse wait-in-force validating/podpolicy --deleted`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return command.Usagef("name one registration, as KIND/NAME")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			state, err := stateName(args[0])
			if err != nil {
				return err
			}
			if o.timeout <= 0 {
				return command.Usagef("--timeout %s must be more than 0", o.timeout)
			}
			o.state = state
			return run(cmd.Context(), o)
		},
	}
	command.AddSection(cmd, "Waiting", func(f *pflag.FlagSet) {
		f.SortFlags = false
		f.BoolVar(&o.deleted, "deleted", false, "wait until the registration is deleted and no server enforces it")
		f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait")
	})
	o.cluster = command.NewCluster(cmd)
	command.CompletesObject(cmd, func() []string { return slices.Sorted(maps.Keys(registrationKinds)) }, func(kind string) []string {
		plural, ok := registrationPlural(kind)
		if !ok {
			return nil
		}
		return o.cluster.ObjectNames(cmd)(plural + ".admissionregistration.k8s.io")
	})
	return cmd
}

// stateName is the name of the state of a registration that a user wrote as
// KIND/NAME.
func stateName(registration string) (string, error) {
	kind, name, ok := strings.Cut(registration, "/")
	if !ok || kind == "" || name == "" {
		return "", command.Usagef("%q is not of the form KIND/NAME", registration)
	}
	if plural, ok := registrationPlural(kind); ok {
		return plural + "." + name, nil
	}
	return "", command.Usagef("%q is not a kind of registration: use mutating, validating, initializer or external", kind)
}

// registrationPlural returns the resource of a kind of registration that a user wrote.
func registrationPlural(kind string) (string, bool) {
	given := strings.TrimSuffix(strings.ToLower(kind), ".admissionregistration.k8s.io")
	for plural, others := range registrationKinds {
		if given == plural || slices.Contains(others, given) {
			return plural, true
		}
	}
	return "", false
}

// pollInterval is how often the server is asked.
const pollInterval = 50 * time.Millisecond

func (o *inForceOptions) run(ctx context.Context, streams command.Streams) error {
	client, config, err := o.cluster.Objects()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if _, err := client.Resource(registrationStates).List(ctx, metav1.ListOptions{Limit: 1}); apierrors.IsNotFound(err) {
		return fmt.Errorf("the server at %s is not Gatehouse: it does not say which registrations are in force", config.Host)
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	last := ""
	for {
		state, err := client.Resource(registrationStates).Get(ctx, o.state, metav1.GetOptions{})
		if ctx.Err() == nil {
			var done string
			if done, last, err = o.look(state, err); err != nil {
				return err
			}
			if done != "" {
				terminal.Fprintf(streams.Out, "%s\n", done)
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if last == "" {
				last = "the server did not answer"
			}
			return fmt.Errorf("%s: not within %s: %s", o.state, o.timeout, last)
		}
	}
}

// look says what the state of the registration means: done, when there is nothing
// to wait for, or wait, what is waited for.
func (o *inForceOptions) look(state *unstructured.Unstructured, err error) (done, wait string, _ error) {
	if apierrors.IsNotFound(err) {
		if o.deleted {
			return "no server enforces " + o.state, "", nil
		}
		return "", "", fmt.Errorf("%s: no such registration", o.state)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError {
		return "", "", fmt.Errorf("%s: %w", o.state, err)
	}
	if err != nil {
		// Another attempt may find the server, or its storage, well again.
		return "", err.Error(), nil
	}
	stored, _, _ := unstructured.NestedString(state.Object, "registration", "resourceVersion")
	if o.deleted && stored != "" {
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
	if in, _, _ := unstructured.NestedBool(state.Object, "inForce"); in && !o.deleted {
		of := "resourceVersion " + stored
		if source, _, _ := unstructured.NestedString(state.Object, "registration", "source"); source != "" {
			of = "from manifest files"
		}
		return fmt.Sprintf("%s is in force on %s, %s", o.state, report.Count(len(replicas), "server"), of), "", nil
	}
	if len(behind) == 0 {
		return "", "the servers have different manifest files", nil
	}
	return "", "not yet in force on " + strings.Join(behind, ", "), nil
}
