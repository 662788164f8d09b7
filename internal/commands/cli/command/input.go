package command

import (
	"context"
	"io"
)

// Input returns standard input for a command. A read ends with ctx, since input from a terminal or a pipe may
// never come.
func Input(ctx context.Context, in io.Reader) io.Reader { return input{ctx, in} }

type input struct {
	ctx context.Context
	in  io.Reader
}

// Read implements io.Reader. A read that outlives its context uses a buffer of its own.
func (i input) Read(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	buffer, done := make([]byte, len(p)), make(chan result, 1)
	go func() {
		n, err := i.in.Read(buffer)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return copy(p, buffer[:r.n]), r.err
	case <-i.ctx.Done():
		return 0, context.Cause(i.ctx)
	}
}
