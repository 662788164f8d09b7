package dev

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// answering is a transport that answers requests after answer is closed; at once if it is nil.
type answering struct{ answer chan struct{} }

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	if a.answer != nil {
		<-a.answer
	}
	return &http.Response{Body: io.NopCloser(strings.NewReader(""))}, nil
}

// ask makes a request with a timeout, and returns its duration.
func ask(t http.RoundTripper, host string, timeout time.Duration) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+host, nil)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	answer, err := t.RoundTrip(r)
	if err == nil {
		err = answer.Body.Close()
	}
	return time.Since(began), err
}

// While the program is replaced, requests to it wait until it listens, or for half of their time. Other
// requests do not wait.
func TestRequestsWaitWhileTheProgramIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{local: func(host string) bool { return host == "program" }}
		transport := g.wrap(answering{})
		g.hold(time.Second)
		type result struct {
			host    string
			timeout time.Duration
			want    time.Duration
		}
		errs := make(chan error)
		results := []result{{"program", 10 * time.Second, 3 * time.Second}, {"program", 4 * time.Second, 2 * time.Second}, {"other", 10 * time.Second, 0}}
		for _, r := range results {
			go func() {
				took, err := ask(transport, r.host, r.timeout)
				if err == nil && took != r.want {
					err = errors.New(r.host + ": it took " + took.String())
				}
				errs <- err
			}()
		}
		time.AfterFunc(3*time.Second, g.release)
		for range results {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

// The program is replaced after the last request is answered, or after a timeout.
func TestAProgramAnswersBeforeItIsReplaced(t *testing.T) {
	for _, tc := range []struct {
		name           string
		answered, want time.Duration
	}{
		{"in time", 2 * time.Second, 2 * time.Second},
		{"late", time.Minute, 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{local: func(string) bool { return true }}
				answer := make(chan struct{})
				transport := g.wrap(answering{answer})
				done := make(chan error)
				go func() {
					_, err := ask(transport, "program", time.Hour)
					done <- err
				}()
				synctest.Wait()
				time.AfterFunc(tc.answered, func() { close(answer) })
				began := time.Now()
				g.hold(5 * time.Second)
				if took := time.Since(began); took != tc.want {
					t.Errorf("held after %s, want %s", took, tc.want)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
				g.release()
				if _, err := ask(transport, "program", time.Second); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
