package stores

import (
	"context"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	restclient "k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/replies"
)

// firstCheck lets upstream's first check of the addresses of services succeed while services are
// created. The check reads services and IPAddresses, and creates an IPAddress that it does not find.
// If a service was created a moment ago, by this server or by another one, the check may see the
// service and not its IPAddress yet. It then gets AlreadyExists, which it treats as fatal, and the
// server ends a minute later. Until the first check is done, such a response waits until the
// IPAddress is visible, and becomes a conflict, after which the check begins again.
type firstCheck struct {
	// known reports whether the informer has an IPAddress of this name.
	known func(name string) bool
	done  atomic.Bool
}

const (
	// knownWithin bounds how long a response waits.
	knownWithin = 10 * time.Second
	knownEvery  = 10 * time.Millisecond
)

// client returns the configuration of the clients of the check.
func (c *firstCheck) client(config *restclient.Config) *restclient.Config {
	config = restclient.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return checking{next, c} })
	return config
}

// hook returns the hook for the first check.
func (c *firstCheck) hook(run genericapiserver.PostStartHookFunc) genericapiserver.PostStartHookFunc {
	return func(ctx genericapiserver.PostStartHookContext) error {
		if err := run(ctx); err != nil {
			return err
		}
		c.done.Store(true)
		return nil
	}
}

type checking struct {
	http.RoundTripper
	*firstCheck
}

// RoundTrip implements http.RoundTripper.
func (c checking) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(req)
	if err != nil || c.done.Load() || response.StatusCode != http.StatusConflict || req.Method != http.MethodPost || path.Base(req.URL.Path) != "ipaddresses" {
		return response, err
	}
	status, err := replies.Status(response)
	if err != nil {
		return nil, err
	}
	if status == nil || status.Reason != metav1.StatusReasonAlreadyExists || status.Details == nil {
		return response, nil
	}
	c.await(req.Context(), status.Details.Name)
	conflict := apierrors.NewConflict(schema.GroupResource{Group: status.Details.Group, Resource: "ipaddresses"}, status.Details.Name, apierrors.FromObject(status)).Status()
	return replies.Say(response, &conflict)
}

// await waits until the informer has an IPAddress, or knownWithin has passed.
func (c *firstCheck) await(ctx context.Context, name string) {
	_ = wait.PollUntilContextTimeout(ctx, knownEvery, knownWithin, true, func(context.Context) (bool, error) { return c.known(name), nil })
}
