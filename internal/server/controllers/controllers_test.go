package controllers

import (
	"context"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
)

// S22.28: a controller that panics ends alone, whether it is being made or runs. The others are made
// and continue.
func TestAControllerThatPanicsEndsAlone(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	others := make(chan string, 2)
	other := func(name string) row {
		return row{name: name, make: func(context.Context, *term, kubernetes.Interface) (func(context.Context), error) {
			return func(ctx context.Context) {
				others <- name
				<-ctx.Done()
			}, nil
		}}
	}
	made, ran := make(chan struct{}), make(chan struct{})
	c := &Controllers{
		options: Options{Loopback: &restclient.Config{Host: "https://127.0.0.1:1"}},
		rows: []row{
			{name: "made-badly", make: func(context.Context, *term, kubernetes.Interface) (func(context.Context), error) {
				defer close(made)
				panic("broken")
			}},
			other("second"),
			{name: "runs-badly", make: func(context.Context, *term, kubernetes.Interface) (func(context.Context), error) {
				return func(context.Context) {
					defer close(ran)
					panic("broken")
				}, nil
			}},
			other("last"),
		},
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	<-made
	<-ran
	if first, second := <-others, <-others; first != "second" && second != "second" {
		t.Errorf("%s and %s run", first, second)
	}
	stop()
	<-ended
	err := survive.Check().Check(nil)
	for _, name := range []string{"made-badly", "runs-badly"} {
		if err == nil || !strings.Contains(err.Error(), name+" has ended by a panic") {
			t.Errorf("the health check says %v, not that %s has ended", err, name)
		}
	}
}
