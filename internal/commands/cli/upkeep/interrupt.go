package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// grace is the time for cleaning up after the context of a command has ended.
const grace = 500 * time.Millisecond

// interruptible makes all commands of a group return soon after their context has ended, even if they wait for
// a lock, a pipe or standard input. Commands of this package tolerate being killed at any moment.
func interruptible(cmd *cobra.Command) *cobra.Command {
	for _, c := range cmd.Commands() {
		interruptible(c)
	}
	run := cmd.RunE
	if run == nil {
		return cmd
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, done := cmd.Context(), make(chan error, 1)
		go func() { done <- run(cmd, args) }()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case err := <-done:
			return err
		case <-timer.C:
			return context.Cause(ctx)
		}
	}
	return cmd
}

// stopFirst adds advice to an error about data that another process uses.
func stopFirst(err error) error {
	if errors.Is(err, etcd.ErrInUse) {
		return fmt.Errorf("%w: stop it first", err)
	}
	return err
}
