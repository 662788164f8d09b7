package command

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// The first signal ends a command that waits for standard input.
func TestInputEndsWithItsContext(t *testing.T) {
	in, _ := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(Input(ctx, in))
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	text := strings.Repeat("text", 10_000)
	if got, err := io.ReadAll(Input(t.Context(), strings.NewReader(text))); err != nil || string(got) != text {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
