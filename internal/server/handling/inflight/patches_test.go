package inflight

import (
	"context"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// S27.12: a user's patches have no more memory than remains for other users. Patches of administrators are applied
// anyway, and leave less for other users.
func TestPatchesShareMemory(t *testing.T) {
	b := &budget{limit: 100}
	as := func(name string, groups ...string) context.Context {
		return request.WithUser(t.Context(), &user.DefaultInfo{Name: name, Groups: groups})
	}
	var gives []func()
	for i, c := range []struct {
		ctx   context.Context
		bytes int64
		ok    bool
	}{
		{as("alice"), 51, false}, {as("alice"), 50, true}, {as("alice"), 1, false}, {as("bob"), 25, true}, {t.Context(), 12, true},
		{as("admin", user.SystemPrivilegedGroup), 1000, true}, {as("carol"), 1, false},
	} {
		give, err := b.patch(c.ctx, c.bytes)
		if (err == nil) != c.ok {
			t.Fatalf("%d: %v", i, err)
		}
		if err == nil {
			gives = append(gives, give)
		} else if seconds, retry := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !retry || seconds != 1 || err.(apierrors.APIStatus).Status().Code != http.StatusTooManyRequests {
			t.Errorf("%d: got %v, want 429 and a retry after one second", i, err)
		}
	}
	for _, give := range gives {
		give()
		give()
	}
	if b.held != 0 || len(b.users) != 0 {
		t.Errorf("%d bytes are held, of %v", b.held, b.users)
	}
}

// Any single patch fits: the longest patch needs less than half of the memory.
func TestTheLargestPatchHasRoom(t *testing.T) {
	const mostPerByte = 48
	if most := int64(mostPerByte * (3<<20 + 3<<19)); 2*most > patches.limit {
		t.Errorf("a patch of 3 MiB for an object of 1.5 MiB needs %d bytes, more than half of %d", most, patches.limit)
	}
}
