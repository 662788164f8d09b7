package changing

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/cli/command"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestWaitInForceParses(t *testing.T) {
	for _, c := range []struct {
		args []string
		want inForceOptions
		err  string
	}{
		{args: []string{"validating/podpolicy"}, want: inForceOptions{state: "validatingwebhookconfigurations.podpolicy", timeout: 30 * time.Second}},
		{args: []string{"MutatingWebhookConfiguration/a.b", "--timeout", "5s"}, want: inForceOptions{state: "mutatingwebhookconfigurations.a.b", timeout: 5 * time.Second}},
		{args: []string{"initializerconfigurations.admissionregistration.k8s.io/i", "--deleted"}, want: inForceOptions{state: "initializerconfigurations.i", deleted: true, timeout: 30 * time.Second}},
		{args: []string{"external/e"}, want: inForceOptions{state: "externaladmissionhookconfigurations.e", timeout: 30 * time.Second}},
		{args: []string{}, err: "name one registration"},
		{args: []string{"podpolicy"}, err: "not of the form KIND/NAME"},
		{args: []string{"validating/"}, err: "not of the form KIND/NAME"},
		{args: []string{"pods/x"}, err: "not a kind of registration"},
		{args: []string{"validating/x", "--timeout", "0s"}, err: "--timeout"},
	} {
		var got *inForceOptions
		cmd := newWaitInForceCommand(func(_ context.Context, o *inForceOptions) error { got = o; return nil })
		cmd.SetArgs(c.args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.Execute()
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || !errors.As(err, new(command.UsageError)) {
				t.Errorf("%q: %v, want an error about %q", c.args, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		got.cluster = nil
		if *got != c.want {
			t.Errorf("%q: %+v, want %+v", c.args, *got, c.want)
		}
	}
}

func TestWaitInForceLooks(t *testing.T) {
	state := func(version string, inForce bool, replicas ...bool) *unstructured.Unstructured {
		list := []any{}
		for _, in := range replicas {
			list = append(list, map[string]any{"name": "r", "address": "https://r", "inForce": in})
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"registration": map[string]any{"resourceVersion": version}, "inForce": inForce, "replicas": list,
		}}
	}
	off := state("7", false, false)
	off.Object["replicas"].([]any)[0].(map[string]any)["off"] = true
	gone := apierrors.NewNotFound(registrationStates.GroupResource(), "x")
	for _, c := range []struct {
		name             string
		deleted          bool
		state            *unstructured.Unstructured
		err              error
		done, wait, fail string
	}{
		{name: "in force", state: state("7", true, true, true), done: "x is in force on 2 servers, resourceVersion 7"},
		{name: "not everywhere", state: state("7", false, true, false), wait: "not yet in force on r at https://r"},
		{name: "not everywhere, for good", state: off, wait: "not yet in force on r at https://r, which enforces none of its kind"},
		{name: "not there", err: gone, fail: "no such registration"},
		{name: "no answer", err: errors.New("refused"), wait: "refused"},
		{name: "not allowed", err: apierrors.NewForbidden(registrationStates.GroupResource(), "x", nil), fail: "forbidden"},
		{name: "deleted, to be waited for", deleted: true, err: gone, done: "no server enforces x"},
		{name: "deleted, and enforced somewhere", deleted: true, state: state("", false, true, false), wait: "not yet in force on r at https://r"},
		{name: "not deleted", deleted: true, state: state("7", true, true), wait: "it still exists"},
	} {
		o := &inForceOptions{state: "x", deleted: c.deleted}
		done, wait, err := o.look(c.state, c.err)
		if done != c.done || wait != c.wait || (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%s: %q, %q, %v", c.name, done, wait, err)
		}
	}
}
