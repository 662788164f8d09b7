package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

func TestUsualErrorsAreLeftOut(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()

	for _, c := range []struct {
		name     string
		ctx      context.Context
		err      error
		message  string
		reported bool
	}{
		{"an error", t.Context(), errors.New("no such file"), "Unhandled Error", true},
		{"no error, only a message", t.Context(), nil, "Cannot delete a pod", true},
		{"a wait whose deadline passed", late, nil, "Unable to sync caches", true},
		{"a request that was too slow", t.Context(), fmt.Errorf("listing: %w", context.DeadlineExceeded), "Unhandled Error", true},
		{"a wait that was cancelled", cancelled, nil, "Unable to sync caches", false},
		{"a request that was cancelled", t.Context(), fmt.Errorf("listing: %w", context.Canceled), "Unhandled Error", false},
		{"a wait without a context", t.Context(), nil, "Unable to sync caches", false},
		{"a wait of the aggregation layer", t.Context(), errors.New("Unable to sync caches for LocalAvailability controller"), "Unhandled Error", false},
		{"a wait of custom resources", t.Context(), errors.New("timed out waiting for caches to sync"), "Unhandled Error", false},
		{"an address that is stored and not yet seen", t.Context(), errors.New("the ClusterIP [IPv4]: 10.0.0.1 for Service default/kubernetes is not allocated; repairing"), "Unhandled Error", false},
		{"a ConfigMap that another server made first", t.Context(), errors.New("kube-system/extension-apiserver-authentication failed with : configmaps \"extension-apiserver-authentication\" already exists"), "Unhandled Error", false},
		{"another ConfigMap", t.Context(), errors.New("configmaps \"kube-root-ca.crt\" already exists"), "Unhandled Error", true},
		{"an address of another service", t.Context(), errors.New("the ClusterIP [IPv4]: 10.0.0.7 for Service shop/web is not allocated; repairing"), "Unhandled Error", true},
		{"what repeats the error of a wait", t.Context(), errors.New("timed out waiting for dependency graph builder sync during GC sync"), "Unhandled Error", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := utilruntime.ErrorHandlers
			defer func() { utilruntime.ErrorHandlers = before }()
			reports := 0
			utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{
				func(context.Context, error, string, ...any) { reports++ },
			}
			leaveOutUsualErrors(t.Context())
			utilruntime.HandleErrorWithContext(c.ctx, c.err, c.message)
			if reported := reports == 1; reported != c.reported {
				t.Errorf("reported: %v, want %v", reported, c.reported)
			}
		})
	}
}

// A server that stops also stops the background work of its libraries.
func TestErrorsAfterTheEndAreLeftOut(t *testing.T) {
	before := utilruntime.ErrorHandlers
	defer func() { utilruntime.ErrorHandlers = before }()
	reports := 0
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(context.Context, error, string, ...any) { reports++ }}
	serving, stop := context.WithCancel(t.Context())
	leaveOutUsualErrors(serving)
	wrong := errors.New("cannot update the cluster role edit")
	utilruntime.HandleError(wrong)
	if reports != 1 {
		t.Fatalf("%d reports while the server runs, want 1", reports)
	}
	stop()
	utilruntime.HandleError(wrong)
	if reports != 1 {
		t.Errorf("%d reports after the end, want 1", reports)
	}
}

func TestLoggingFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", ""},
		{"--logging-format json -v 4", ""},
		{"--vmodule a=4", ""},
		{"--logging-format xml", `--logging-format "xml" is not one of text, json`},
		{"--logging-format json --vmodule a=4", "--vmodule is for --logging-format=text only"},
		{"-v -1", "--v -1 must not be negative"},
	} {
		l, flags := NewLogging(), pflag.NewFlagSet("", pflag.ContinueOnError)
		l.AddFlags(flags, "")
		if err := flags.Parse(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := l.Check(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
}
