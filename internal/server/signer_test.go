package server_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	signertesting "k8s.io/kubernetes/pkg/serviceaccount/externaljwt/plugin/testing/v1"

	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/test/harness/inside"
)

// An external signer signs the tokens of service accounts, and provides their lifetime and the keys
// that verify them.
func TestAnExternalSignerSignsTokens(t *testing.T) {
	// The path of a socket must be short.
	dir, err := os.MkdirTemp("", "signer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	signer := signertesting.NewMockSigner(t, socket)
	s := inside.Start(t, server.Options{ServiceAccountSigningEndpoint: socket})
	h, ns := s.HTTP(t, nil), s.Namespace(t)
	made := h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/serviceaccounts/default/token", `{"spec":{"expirationSeconds":86400}}`)
	end, err := time.Parse(time.RFC3339, made.Text("status", "expirationTimestamp"))
	if limit := time.Duration(signer.MaxTokenExpirationSeconds) * time.Second; err != nil || time.Until(end) > limit+time.Minute {
		t.Errorf("the token ends at %s (%v), want at most %s from now", made.Text("status", "expirationTimestamp"), err, limit)
	}
	who := s.HTTP(t, s.WithToken(made.Text("status", "token"))).Must(http.StatusCreated, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	if got, want := who.Text("status", "userInfo", "username"), "system:serviceaccount:"+ns+":default"; got != want {
		t.Errorf("the bearer is %s, want %s", got, want)
	}
	keys := string(h.Get("/openid/v1/jwks").Raw)
	for id := range signer.GetSupportedKeys() {
		if !strings.Contains(keys, id) {
			t.Errorf("the key %s is not served: %s", id, keys)
		}
	}
	if _, err := server.New(server.Options{DataDir: t.TempDir(), ServiceAccountSigningEndpoint: "@a/b"}); err == nil || !strings.Contains(err.Error(), "abstract socket") {
		t.Errorf("error %v, want one about the socket", err)
	}
}
