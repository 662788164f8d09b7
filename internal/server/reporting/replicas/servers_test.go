package replicas

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/admission/announce"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

// S22.20: another server announces itself by an AdmissionServer, and is a replica in every state
// until it withdraws.
func TestOtherServersAreReplicas(t *testing.T) {
	s := newStore(t)
	servers := NewAdmissionServers(s.client.Client, prefix)
	first := s.write("podpolicy")
	own, _ := s.running("a")
	adopt(own, first)
	announceIt := func(said announce.Announcement, seconds int64) error {
		server := &v1alpha1.AdmissionServer{ObjectMeta: metav1.ObjectMeta{Name: "gallery"}, LifetimeSeconds: seconds, Announcement: said}
		_, _, err := servers.Update(t.Context(), "gallery", rest.DefaultUpdatedObjectInfo(server), nil, nil, true, &metav1.UpdateOptions{})
		return err
	}
	said := announce.Announcement{Address: "https://gallery"}
	if err := announceIt(said, 30); err != nil {
		t.Fatal(err)
	}
	s.eventually("announced, and nothing read", "podpolicy", summary{text(first), false, map[string]string{"a": text(first), "gallery": ""}})
	said.Adopted = []announce.Adoption{{Revision: first, At: time.Now()}}
	if err := announceIt(said, 30); err != nil {
		t.Fatal(err)
	}
	s.eventually("in force", "podpolicy", summary{text(first), true, map[string]string{"a": text(first), "gallery": text(first)}})

	// Writing it again keeps the same lease.
	leases, err := s.client.Client.Leases(t.Context())
	if err != nil || len(leases.Leases) != 2 {
		t.Errorf("%+v, %v", leases, err)
	}
	if _, _, err := servers.Delete(t.Context(), "gallery", nil, nil); err != nil {
		t.Fatal(err)
	}
	s.eventually("withdrawn", "podpolicy", summary{text(first), true, map[string]string{"a": text(first)}})
	if _, err := servers.Get(t.Context(), "gallery", nil); !apierrors.IsNotFound(err) {
		t.Errorf("after it was withdrawn: %v", err)
	}

	for name, c := range map[string]struct {
		said    announce.Announcement
		seconds int64
		field   string
	}{
		"no address":       {announce.Announcement{}, 30, "address"},
		"no end":           {announce.Announcement{Address: "x"}, 0, "lifetimeSeconds"},
		"for hours":        {announce.Announcement{Address: "x"}, 3600, "lifetimeSeconds"},
		"many revisions":   {announce.Announcement{Address: "x", Adopted: make([]announce.Adoption, 100)}, 30, "adopted"},
		"many are skipped": {announce.Announcement{Address: "x", Skipped: make([]announce.Skipped, 1000)}, 30, "skipped"},
	} {
		if err := announceIt(c.said, c.seconds); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
