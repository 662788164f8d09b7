package after

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

func newInitializersComplete(streams command.Streams) *cobra.Command {
	o := &initializersOptions{}
	cmd := &cobra.Command{
		Use:   "complete TYPE/NAME [INITIALIZER]",
		Short: "Mark an initializer of an object as done",
		Args:  o.oneObject(2),
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.complete(cmd.Context(), streams) },
	}
	o.cluster = command.NewCluster(cmd)
	command.CompletesObject(cmd, o.cluster.KindNames, o.cluster.ObjectNames(cmd))
	return cmd
}

func newInitializersFail(streams command.Streams) *cobra.Command {
	o := &initializersOptions{}
	cmd := &cobra.Command{
		Use:   "fail TYPE/NAME --message TEXT",
		Short: "Fail the initialization of an object",
		Args:  o.oneObject(1),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.message == "" {
				return command.Usagef("--message is required: the creator of the object gets it as an error")
			}
			if o.code < 400 || o.code > 599 {
				return command.Usagef("--code %d is not an HTTP status of a failure: it must be between 400 and 599", o.code)
			}
			return o.fail(cmd.Context(), streams)
		},
	}
	command.AddSection(cmd, "Error for the creator", func(f *pflag.FlagSet) {
		f.StringVar(&o.message, "message", "", "why the initialization failed (required)")
		f.StringVar(&o.reason, "reason", "", "reason in one word, for programs, such as Forbidden")
		f.IntVar(&o.code, "code", http.StatusInternalServerError, "HTTP status code")
	})
	o.cluster = command.NewCluster(cmd)
	command.CompletesObject(cmd, o.cluster.KindNames, o.cluster.ObjectNames(cmd))
	return cmd
}

// attempts is the largest number of attempts of a change that conflicts with others.
const attempts = 10

// settle changes metadata.initializers of the object and retries after a conflict. It returns the stored
// object.
func (o *initializersOptions) settle(ctx context.Context, change func(obj *unstructured.Unstructured, names []string) (any, error)) (*unstructured.Unstructured, error) {
	s, err := o.open()
	if err != nil {
		return nil, err
	}
	for range attempts {
		obj, client, err := s.find(ctx, o.object)
		if err != nil {
			return nil, err
		}
		names, ok := waits(obj)
		if !ok {
			return nil, fmt.Errorf("%s is initialized", o.object)
		}
		field, err := change(obj, names)
		if err != nil {
			return nil, err
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"initializers": field, "uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion(),
		}})
		if err != nil {
			return nil, err
		}
		stored, err := client.Patch(ctx, obj.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "gatehouse"})
		if !apierrors.IsConflict(err) {
			return stored, err
		}
	}
	return nil, fmt.Errorf("%s keeps changing; try again", o.object)
}

func (o *initializersOptions) complete(ctx context.Context, streams command.Streams) error {
	var taken string
	var left []string
	_, err := o.settle(ctx, func(obj *unstructured.Unstructured, names []string) (any, error) {
		taken = o.name
		if taken == "" && len(names) > 0 {
			taken = names[0]
		}
		at := slices.Index(names, taken)
		if at < 0 && len(names) > 0 {
			return nil, fmt.Errorf("%s does not wait for %q; it waits for %s", o.object, taken, strings.Join(names, ", "))
		}
		left = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == taken })
		if len(left) == 0 {
			return nil, nil
		}
		pending := make([]any, len(left))
		for i, name := range left {
			pending[i] = map[string]any{"name": name}
		}
		return map[string]any{"pending": pending}, nil
	})
	if err != nil {
		return err
	}
	if len(left) == 0 {
		terminal.Fprintf(streams.Out, "%s is initialized\n", o.object)
		return nil
	}
	terminal.Fprintf(streams.Out, "%s no longer waits for %s; next is %s\n", o.object, taken, left[0])
	return nil
}

func (o *initializersOptions) fail(ctx context.Context, streams command.Streams) error {
	stored, err := o.settle(ctx, func(*unstructured.Unstructured, []string) (any, error) {
		return map[string]any{"result": metav1.Status{
			Status: metav1.StatusFailure, Message: o.message, Reason: metav1.StatusReason(o.reason), Code: int32(o.code),
		}}, nil
	})
	if err != nil {
		return err
	}
	if names := holders(stored); len(names) > 0 {
		terminal.Fprintf(streams.Out, "%s failed and stays hidden until %s has released its resources\n", o.object, strings.Join(names, ", "))
		return nil
	}
	terminal.Fprintf(streams.Out, "%s failed and was deleted\n", o.object)
	return nil
}

// holders returns the initializers whose finalizers block the deletion of an object (S11.56).
func holders(obj *unstructured.Unstructured) []string {
	if obj.GetDeletionTimestamp() == nil {
		return nil
	}
	paired, _, _ := unstructured.NestedSlice(obj.Object, "metadata", "initializers", "paired")
	var names []string
	for _, entry := range paired {
		m, _ := entry.(map[string]any)
		name, _ := m["name"].(string)
		names = append(names, name)
	}
	return names
}
