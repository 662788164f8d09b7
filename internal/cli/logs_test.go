package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

func TestErrorsOfWhatWasCancelledAreLeftOut(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()

	for _, c := range []struct {
		name     string
		ctx      context.Context
		err      error
		reported bool
	}{
		{"an error", t.Context(), errors.New("no such file"), true},
		{"no error, only a message", t.Context(), nil, true},
		{"a deadline that passed", late, nil, true},
		{"a request that was too slow", t.Context(), fmt.Errorf("listing: %w", context.DeadlineExceeded), true},
		{"a wait that was cancelled", cancelled, nil, false},
		{"a request that was cancelled", t.Context(), fmt.Errorf("listing: %w", context.Canceled), false},
		{"what repeats the error of a wait", t.Context(), errors.New(lateSync), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := utilruntime.ErrorHandlers
			defer func() { utilruntime.ErrorHandlers = before }()
			reports := 0
			utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{
				func(context.Context, error, string, ...any) { reports++ },
			}
			leaveOutCancelled()
			utilruntime.HandleErrorWithContext(c.ctx, c.err, "Unable to sync caches")
			if reported := reports == 1; reported != c.reported {
				t.Errorf("reported: %v, want %v", reported, c.reported)
			}
		})
	}
}
