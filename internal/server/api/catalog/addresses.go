package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	restclient "k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/replies"
)

// firstCheck lets upstream's first check of the addresses of services succeed while services are
// made. The check reads services and IPAddresses, and makes an IPAddress that it does not find. If a
// service was made a moment ago, by this server or by another one, the check may know the service and
// not its IPAddress yet. It then gets AlreadyExists, which it takes for the end, and the server ends
// a minute later. Until the first check is done, such an answer waits until the IPAddress is known,
// and becomes a conflict, after which the check begins again.
type firstCheck struct {
	// known reports whether the informer of IPAddresses has one of this name.
	known func(name string) bool
	done  atomic.Bool
}

const (
	// knownWithin is how long an answer waits, at most.
	knownWithin = 10 * time.Second
	knownEvery  = 10 * time.Millisecond
)

// client returns the configuration of the clients of the check.
func (c *firstCheck) client(config *restclient.Config) *restclient.Config {
	config = restclient.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return checking{next, c} })
	return config
}

// hook returns the hook that checks for the first time.
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
	body, err := replies.Peek(response)
	if err != nil {
		return nil, err
	}
	decoded, _, err := Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return response, nil
	}
	status, ok := decoded.(*metav1.Status)
	if !ok || status.Reason != metav1.StatusReasonAlreadyExists || status.Details == nil {
		return response, nil
	}
	c.await(req.Context(), status.Details.Name)
	conflict := apierrors.NewConflict(schema.GroupResource{Group: status.Details.Group, Resource: "ipaddresses"}, status.Details.Name, apierrors.FromObject(status)).Status()
	conflict.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if body, err = json.Marshal(&conflict); err != nil {
		return nil, err
	}
	response.Header = http.Header{"Content-Type": {"application/json"}}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return response, nil
}

// await waits until an IPAddress is known, or knownWithin has passed.
func (c *firstCheck) await(ctx context.Context, name string) {
	ctx, stop := context.WithTimeout(ctx, knownWithin)
	defer stop()
	tick := time.NewTicker(knownEvery)
	defer tick.Stop()
	for !c.known(name) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
