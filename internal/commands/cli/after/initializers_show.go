package after

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

func newInitializersList(streams command.Streams) *cobra.Command {
	o := &initializersOptions{}
	cmd := &cobra.Command{
		Use:   "list [TYPE...]",
		Short: "List objects that are not yet initialized",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.types = args
			return o.list(cmd.Context(), streams)
		},
	}
	o.addAllNamespaces(cmd)
	command.AddOutput(cmd, &o.output, "json or yaml: the objects themselves (default a table)", "", "json", "yaml")
	o.cluster = command.NewCluster(cmd)
	command.CompletesArguments(cmd, o.cluster.KindNames)
	return cmd
}

// listed is an object that waits for initializers.
type listed struct {
	resource command.Resource
	object   *unstructured.Unstructured
	pending  []string
}

func (o *initializersOptions) list(ctx context.Context, streams command.Streams) error {
	s, resources, err := o.selected("list")
	if err != nil {
		return err
	}
	lists := make([][]listed, len(resources))
	group, listing := errgroup.WithContext(ctx)
	group.SetLimit(listsAtOnce)
	for i, r := range resources {
		group.Go(func() error {
			var err error
			lists[i], err = uninitialized(listing, r.Of(s.all, s.namespace), r)
			if err != nil && (len(o.types) > 0 || !skippable(err)) {
				return fmt.Errorf("listing %s: %w", r.GroupResource(), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	found := slices.Concat(lists...)
	if o.output != "" {
		return printObjects(streams.Out, o.output, found)
	}
	if len(found) == 0 {
		fmt.Fprintln(streams.Err, "No object waits for an initializer.")
		return nil
	}
	policies, err := s.policies(ctx)
	if err != nil {
		return err
	}
	return printTable(streams.Out, found, policies, o.allNamespaces)
}

var configurations = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1alpha1", Resource: "initializerconfigurations"}

// policies returns a function with the failure policy of an initializer that does not act. The policy is
// "unknown" for users without the right to read the configurations.
func (s *session) policies(ctx context.Context) (func(initializer string) string, error) {
	list, err := s.all.Resource(configurations).List(ctx, metav1.ListOptions{})
	if err != nil {
		if skippable(err) {
			return func(string) string { return "unknown" }, nil
		}
		return nil, fmt.Errorf("listing %s: %w", configurations.GroupResource(), err)
	}
	policies := map[string]string{}
	for _, c := range list.Items {
		entries, _, _ := unstructured.NestedSlice(c.Object, "initializers")
		for _, entry := range entries {
			fields, _ := entry.(map[string]any)
			name, _ := fields["name"].(string)
			if policy, ok := fields["failurePolicy"].(string); ok && policies[name] == "" {
				policies[name] = policy
			}
		}
	}
	return func(initializer string) string {
		if policy := policies[initializer]; policy != "" {
			return policy
		}
		// An initializer without a configuration also need not act.
		return "Ignore"
	}, nil
}

// skippable reports whether a kind can be omitted when all kinds are listed: it has no list, or the user may
// not list it.
func skippable(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// listsAtOnce is the number of kinds that are listed concurrently.
const listsAtOnce = 8

// pageSize is the number of objects in a page of a list.
const pageSize = 500

func uninitialized(ctx context.Context, client dynamic.ResourceInterface, r command.Resource) ([]listed, error) {
	var found []listed
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := client.List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			if names, ok := waits(&page.Items[i]); ok {
				found = append(found, listed{r, &page.Items[i], names})
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return found, nil
		}
	}
}

func printObjects(out io.Writer, format string, found []listed) error {
	items := make([]any, len(found))
	for i, f := range found {
		items[i] = f.object.Object
	}
	return command.PrintAs(out, format, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

func printTable(out io.Writer, found []listed, policies func(string) string, namespaces bool) error {
	titles := []string{"OBJECT", "PENDING", "POLICY", "AGE"}
	if namespaces {
		titles = append([]string{"NAMESPACE"}, titles...)
	}
	table := terminal.NewTable(terminal.Titles(titles...)...)
	for _, f := range found {
		policy := "Ignore"
		if len(f.pending) > 0 {
			policy = policies(f.pending[0])
		}
		age := duration.HumanDuration(time.Since(f.object.GetCreationTimestamp().Time))
		cells := []any{f.title(), strings.Join(f.pending, ","), policy, age}
		if namespaces {
			cells = append([]any{f.object.GetNamespace()}, cells...)
		}
		table.Row(cells...)
	}
	return command.WriteTable(out, table)
}

// title is the name of the object as commands accept it.
func (l *listed) title() string {
	return l.resource.GroupResource().String() + "/" + l.object.GetName()
}

func newInitializersWatch(streams command.Streams) *cobra.Command {
	o := &initializersOptions{}
	cmd := &cobra.Command{
		Use:   "watch [TYPE...]",
		Short: "Print events of objects that are not yet initialized",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.types = args
			return o.watch(cmd.Context(), streams)
		},
	}
	o.addAllNamespaces(cmd)
	o.cluster = command.NewCluster(cmd)
	command.CompletesArguments(cmd, o.cluster.KindNames)
	return cmd
}

func (o *initializersOptions) watch(ctx context.Context, streams command.Streams) error {
	s, resources, err := o.selected("watch")
	if err != nil {
		return err
	}
	// The watches write concurrently. The first failure ends all of them.
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var group sync.WaitGroup
	var mu sync.Mutex
	for _, r := range resources {
		group.Go(func() {
			w := watcher{resource: r, print: func(line string) {
				mu.Lock()
				defer mu.Unlock()
				terminal.Fprintf(streams.Out, "%s\n", line)
			}}
			err := w.run(ctx, r.Of(s.all, s.namespace))
			if err != nil && ctx.Err() == nil && (len(o.types) > 0 || !skippable(err)) {
				stop(fmt.Errorf("watching %s: %w", r.GroupResource(), err))
			}
		})
	}
	group.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// watcher prints the initialization steps of the objects of one resource.
type watcher struct {
	resource command.Resource
	print    func(line string)
	// pending maps each object to the initializers it last waited for.
	pending map[string][]string
}

// run watches until ctx ends, and starts a new watch when the server ends one.
func (w *watcher) run(ctx context.Context, client dynamic.ResourceInterface) error {
	w.pending = map[string][]string{}
	return command.Follow(ctx, client, metav1.ListOptions{AllowWatchBookmarks: true}, func() (string, error) {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			_ = w.step(watch.Modified, &list.Items[i])
		}
		return list.GetResourceVersion(), nil
	}, w.step)
}

// step prints an event about initialization.
func (w *watcher) step(kind watch.EventType, obj *unstructured.Unstructured) error {
	l := listed{w.resource, obj, nil}
	key := obj.GetNamespace() + "/" + obj.GetName()
	title := l.title()
	if ns := obj.GetNamespace(); ns != "" {
		title += " in " + ns
	}
	before, waited := w.pending[key]
	now, uninitialized := waits(obj)
	result, failed, _ := unstructured.NestedString(obj.Object, "metadata", "initializers", "result", "message")
	switch {
	case kind == watch.Deleted:
		delete(w.pending, key)
		if waited && !failed {
			w.print(title + ": deleted before it was initialized")
		}
	case failed && waited:
		w.print(fmt.Sprintf("%s: failed: %s", title, result))
	case uninitialized && (!waited || !slices.Equal(before, now)):
		w.pending[key] = now
		w.print(fmt.Sprintf("%s: waits for %s", title, strings.Join(now, ", ")))
	case !uninitialized && waited:
		delete(w.pending, key)
		w.print(title + ": initialized")
	}
	return nil
}
