package call

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Delivery is a request to a webhook that is not an admission webhook.
type Delivery struct {
	// To is the address of the webhook.
	To *registration.ClientConfig
	// Timeout bounds the call. Zero means 30 s. TellTimeout adds the time limit to the query, as
	// for reviews (S3.3).
	Timeout     time.Duration
	TellTimeout bool
	// Header is sent with the body, in addition to the credentials. It must not change. Nil means
	// none.
	Header http.Header
	Body   []byte
	// Read reads the answer, whatever its status, until ctx ends, and bounds its size. Post then
	// closes the body, and returns the error of Read as the cause of a Failure of the class Answer.
	Read func(ctx context.Context, answer *http.Response) error
	// Facts are set by Post.
	Facts Facts
}

// Post sends a body to a webhook and passes the answer to Read. Like [Caller.Call], it sends at
// most one request, to the first endpoint that accepts a connection, takes at most Timeout and no
// longer than ctx allows, and fails if the webhook server's circuit is open or too many calls of
// the server are running. Nil means that Read got the answer and returned no error.
func (c *Caller) Post(ctx context.Context, d *Delivery) *Failure {
	p := post{delivery: d}
	p.parcel, p.to, p.limit, p.tellTimeout, p.base, p.facts = &p, d.To, d.Timeout, d.TellTimeout, d.Header, &d.Facts
	if p.base == nil {
		p.base = http.Header{}
	}
	return c.deliver(ctx, &p.exchange)
}

// post delivers a Delivery.
type post struct {
	exchange
	delivery *Delivery
}

func (p *post) size() int64 { return int64(len(p.delivery.Body)) }

func (p *post) open() (io.ReadCloser, int64) {
	return io.NopCloser(bytes.NewReader(p.delivery.Body)), p.size()
}

func (p *post) read(ctx context.Context, answer *http.Response) (Class, error) {
	err := p.delivery.Read(ctx, answer)
	switch {
	case err == nil:
		return 0, nil
	case ctx.Err() != nil:
		return Transport, err
	}
	return Answer, err
}
