package initialization

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// registeredNow is a reader that finds some objects.
type registeredNow []runtime.Object

func (r registeredNow) Read(context.Context, snapshot.Version) (snapshot.Registrations, error) {
	return snapshot.Registrations{Version: "1", Objects: r}, nil
}

// An initializer that is not registered need not act, and is removed when an object has waited too long. Before
// the first read of the InitializerConfigurations, the server does not know the registered initializers, and
// removes none.
func TestUnknownInitializersAreNotGivenUp_S11_47(t *testing.T) {
	fail, ignore := v1alpha1.Fail, v1alpha1.Ignore
	configuration := &v1alpha1.InitializerConfiguration{Initializers: []v1alpha1.Initializer{
		{Name: "fail.example.com", FailurePolicy: &fail}, {Name: "ignore.example.com", FailurePolicy: &ignore},
	}}
	configuration.Name = "c"
	read := make(chan struct{})
	refresher, err := snapshot.NewRefresher(snapshot.Options{
		Reader: registeredNow{configuration},
		Observer: func(snapshot.Read) {
			select {
			case read <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	mustAct, _ := Registered(refresher.Current)
	check := func(when string, want map[string]bool) {
		t.Helper()
		for name, want := range want {
			if got := mustAct(name); got != want {
				t.Errorf("%s: mustAct(%q) = %v, want %v", when, name, got, want)
			}
		}
	}
	check("before the first read", map[string]bool{"fail.example.com": true, "ignore.example.com": true, "unknown.example.com": true})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = refresher.Run(ctx)
	}()
	<-read
	check("when they were read", map[string]bool{"fail.example.com": true, "ignore.example.com": false, "unknown.example.com": false})
	stop()
	<-done
}
