package changing

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/rollout"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

type inForceOptions struct {
	cluster *command.Cluster
	// state is the name of the EnforcementState of the webhook configuration, policy or binding.
	state   string
	deleted bool
	timeout time.Duration
}

// NewWaitInForce returns the command gatehouse wait-in-force.
func NewWaitInForce(streams command.Streams) *cobra.Command {
	o := &inForceOptions{}
	cmd := &cobra.Command{
		Use:   "wait-in-force KIND/NAME",
		Short: "Wait until every server enforces a registration",
		Args:  command.Exactly(1, "one registration, as KIND/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := rollout.ParseTarget(args[0])
			if err != nil {
				return command.UsageError{Err: err}
			}
			if o.timeout <= 0 {
				return command.Usagef("--timeout %s must be more than 0", o.timeout)
			}
			o.state = target.State()
			return o.run(cmd.Context(), streams)
		},
	}
	command.AddSection(cmd, "Waiting", func(f *pflag.FlagSet) {
		f.BoolVar(&o.deleted, "deleted", false, "wait until the registration is deleted and no server enforces it")
		f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait")
	})
	o.cluster = command.NewCluster(cmd)
	completesRegistration(cmd, o.cluster, rollout.Kinds)
	return cmd
}

// completesRegistration makes the shell complete KIND/NAME of a webhook configuration, policy or binding.
func completesRegistration(cmd *cobra.Command, c *command.Cluster, kinds func() []string) {
	command.CompletesObject(cmd, kinds, func(kind string) []string {
		plural, ok := rollout.Plural(kind)
		if !ok {
			return nil
		}
		return c.ObjectNames(cmd)(plural + "." + registration.GroupName)
	})
}

// pollInterval is the interval between queries of the server.
const pollInterval = 50 * time.Millisecond

func (o *inForceOptions) run(ctx context.Context, streams command.Streams) error {
	client, config, err := o.cluster.Objects()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if _, err := client.Resource(rollout.States).List(ctx, metav1.ListOptions{Limit: 1}); apierrors.IsNotFound(err) {
		return fmt.Errorf("the server at %s is not Gatehouse: it does not report which registrations are active", config.Host)
	}
	done, last := "", ""
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		state, err := client.Resource(rollout.States).Get(ctx, o.state, metav1.GetOptions{})
		if ctx.Err() != nil {
			return false, nil
		}
		done, last, err = rollout.InForce(o.state, o.deleted, state, err)
		return done != "", err
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("%s: not within %s: %s", o.state, o.timeout, cmp.Or(last, "the server did not answer"))
	}
	if err == nil {
		terminal.Fprintf(streams.Out, "%s\n", done)
	}
	return err
}
