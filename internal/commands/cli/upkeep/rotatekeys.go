package upkeep

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
)

const (
	rotateKeysUse = "rotate-keys"
	// rotateTimeout limits one run of the command. rotateLook is the interval between checks whether all
	// servers have applied a phase.
	rotateTimeout, rotateLook = 5 * time.Minute, 200 * time.Millisecond
	// maxAnswer is the largest response with Secrets, in bytes.
	maxAnswer = 64 << 20
)

// phases describes the work of the servers in each phase.
var phases = map[keys.Phase]string{
	keys.PhaseTrust:   "1 of 4: the servers trust new keys in addition to the old ones",
	keys.PhaseUse:     "2 of 4: the servers sign with the new keys",
	keys.PhaseForget:  "3 of 4: the servers end the trust in the old keys",
	keys.PhaseStore:   "3 of 4: the new keys are stored in place of the old ones",
	keys.PhaseRestart: "4 of 4: the servers start again, one after the other",
}

func (c *cluster) rotateKeys(ctx context.Context, _ []string) error {
	if c.endTokens && !c.finish {
		return command.Usagef("--end-tokens needs --finish")
	}
	key := server.RotationKey(c.prefix)
	now, err := keys.ReadRotation(ctx, c.client.KV, key)
	if err != nil {
		return err
	}
	if now == nil && c.resume {
		terminal.Fprintf(c.out, "no keys are being replaced\n")
		return nil
	}
	if now == nil {
		if _, err := c.rotatable(ctx); err != nil {
			return err
		}
		began := time.Now().UTC()
		now = &keys.Rotation{ID: began.Format("20060102t150405"), Phase: keys.PhaseTrust, Started: began}
		if err := now.Set(ctx, c.client.KV, key); err != nil {
			return err
		}
	}
	for {
		terminal.Fprintf(c.out, "phase %s\n", phases[now.Phase])
		if now.Phase != keys.PhaseStore {
			if err := c.awaitPhase(ctx, now); err != nil {
				return err
			}
		}
		switch now.Phase {
		case keys.PhaseTrust:
			now.Phase = keys.PhaseUse
		case keys.PhaseUse:
			if err := c.endJoinTokens(ctx); err != nil {
				return err
			}
			if !c.finish {
				c.replaceKubeconfigs(", then run 'gatehouse cluster rotate-keys --resume --finish'")
				return nil
			}
			now.Phase, now.EndTokens = keys.PhaseForget, c.endTokens
		case keys.PhaseForget:
			now.Phase = keys.PhaseStore
		case keys.PhaseStore:
			// A server performs this phase and advances to the next one.
			if now, err = c.awaitStored(ctx, key); err != nil {
				return err
			}
			continue
		case keys.PhaseRestart:
			return c.endRotation(ctx, now, key)
		default:
			return fmt.Errorf("the rotation is in the phase %q, which this version does not know", now.Phase)
		}
		if err := now.Set(ctx, c.client.KV, key); err != nil {
			return err
		}
	}
}

// rotatable returns the members. It is an error if a member does not respond or runs an older release.
func (c *cluster) rotatable(ctx context.Context) ([]member, error) {
	all, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	var silent, old []string
	for _, m := range all {
		switch {
		case m.Status == nil:
			silent = append(silent, m.name())
		case m.Status.Keys == nil:
			old = append(old, m.name())
		}
	}
	switch {
	case len(silent) > 0:
		return all, fmt.Errorf("%s: not running or joining: the keys are replaced on all servers together; start them, or remove them from the cluster, and run the command again", strings.Join(silent, ", "))
	case len(old) > 0:
		return all, fmt.Errorf("%s: an older release that cannot replace its keys: upgrade all servers first", strings.Join(old, ", "))
	}
	return all, nil
}

// awaitPhase waits until all servers have applied a phase.
func (c *cluster) awaitPhase(ctx context.Context, r *keys.Rotation) error {
	var last error
	for {
		all, err := c.rotatable(ctx)
		if err == nil {
			var late []string
			for _, m := range all {
				if m.Status.Keys.Rotation != r.State() {
					late = append(late, m.name())
				}
			}
			if len(late) == 0 {
				return nil
			}
			err = fmt.Errorf("%s: still in the phase before; the log of the server says why", strings.Join(late, ", "))
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-time.After(rotateLook):
		case <-ctx.Done():
			return fmt.Errorf("in the phase %s: %w; run the command again", r.Phase, errors.Join(last, context.Cause(ctx)))
		}
	}
}

// awaitStored waits until a server has stored the new keys.
func (c *cluster) awaitStored(ctx context.Context, key string) (*keys.Rotation, error) {
	for {
		r, err := keys.ReadRotation(ctx, c.client.KV, key)
		if err == nil && r == nil {
			err = keys.ErrOtherRotation
		}
		if err != nil || r.Phase != keys.PhaseStore {
			return r, err
		}
		select {
		case <-time.After(rotateLook):
		case <-ctx.Done():
			return nil, fmt.Errorf("no server has stored the new keys; the logs of the servers say why: %w; run the command again", context.Cause(ctx))
		}
	}
}

// endJoinTokens revokes the join tokens that contain the old certificate authority.
func (c *cluster) endJoinTokens(ctx context.Context) error {
	all, err := c.tokens().List(ctx)
	if err != nil {
		return err
	}
	for _, t := range all {
		if _, err := c.tokens().Revoke(ctx, t.ID); err != nil {
			return err
		}
	}
	if len(all) > 0 {
		terminal.Fprintf(c.out, "revoked %s by which servers join: make new ones\n", report.Count(len(all), "token"))
	}
	return nil
}

func (c *cluster) replaceKubeconfigs(then string) {
	terminal.Fprintf(c.out, `
The ConfigMaps kube-root-ca.crt have the new CA, and so has admin.kubeconfig in the data directory of each server.
Replace these%s:
  - copies of admin.kubeconfig
  - kubeconfigs with a client certificate of a CertificateSigningRequest
  - the certificate authority in all other kubeconfigs and clients outside of pods (pki/%s has it)
`, then, keys.TrustName)
}

// endRotation ends a rotation whose keys are stored.
func (c *cluster) endRotation(ctx context.Context, r *keys.Rotation, key string) error {
	all, err := c.rotatable(ctx)
	if err != nil {
		return err
	}
	call, err := c.caller(ctx, all)
	if err != nil {
		return err
	}
	if err := c.forgetCallers(call); err != nil {
		return fmt.Errorf("the CAs that aggregated servers trust: %w; run the command again", err)
	}
	if r.EndTokens {
		if err := renewKeptTokens(c.out, call); err != nil {
			return fmt.Errorf("tokens of service accounts that are kept in Secrets: %w; run the command again", err)
		}
	}
	var restart []string
	for _, m := range all {
		if m.Status.Keys.Restart {
			restart = append(restart, m.name())
		}
	}
	if len(restart) > 0 {
		c.replaceKubeconfigs("; the old ones are refused from now on")
		terminal.Fprintf(c.out, `
Restart these servers, one after the other: %s.
Until then, their connections to other members trust the old CA. Then run 'gatehouse cluster rotate-keys --resume'.
`, strings.Join(restart, ", "))
		return nil
	}
	r.Phase = ""
	if err := r.Set(ctx, c.client.KV, key); err != nil {
		return err
	}
	terminal.Fprintf(c.out, "all keys of the cluster are replaced\n")
	if !r.EndTokens {
		terminal.Fprintf(c.out, "tokens of service accounts that the old key has signed stay good until they expire\n")
	}
	terminal.Fprintf(c.out, `
Earlier backups have the old keys: save a new one. The servers still encrypt Secrets with the same key: write a new key
into the file of --encryption-provider-config, and run 'gatehouse secrets-encryption rotate'.
`)
	return nil
}

// caller sends a request to the API and decodes the response.
type caller func(method, path string, body []byte, into any) error

// caller returns a caller with the administrator's credentials.
func (c *cluster) caller(ctx context.Context, all []member) (caller, error) {
	client, err := c.api()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(m member) bool { return m.Server != "" })
	if i < 0 {
		return nil, errors.New("no server answers")
	}
	return func(method, path string, body []byte, into any) error {
		req, err := http.NewRequestWithContext(ctx, method, all[i].Server+path, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/merge-patch+json")
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s %s: %s", method, path, res.Status)
		}
		return json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(into)
	}, nil
}

// callersPath is the ConfigMap from which aggregated servers learn the certificate authorities of clients.
// Servers add certificate authorities to it and remove none.
const callersPath = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

// forgetCallers removes certificate authorities of the cluster that are no longer trusted. The certificate
// authorities of flags remain, since the servers add them again.
func (c *cluster) forgetCallers(call caller) error {
	var known struct {
		Metadata struct{ ResourceVersion string }
		Data     map[string]string
	}
	if err := call(http.MethodGet, callersPath, nil, &known); err != nil {
		return err
	}
	changed := map[string]string{}
	for key, file := range map[string]string{"client-ca-file": keys.TrustName, "requestheader-client-ca-file": keys.FrontProxyTrustName} {
		trusted, err := files.Read(filepath.Join(c.dataDir, "pki", file), files.Configuration)
		if err != nil {
			return err
		}
		if left, err := keys.Without(known.Data[key], string(trusted)); err == nil && left != known.Data[key] {
			changed[key] = left
		}
	}
	if len(changed) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]string{"resourceVersion": known.Metadata.ResourceVersion}, "data": changed})
	if err != nil {
		return err
	}
	return call(http.MethodPatch, callersPath, patch, &struct{}{})
}

// renewKeptTokens removes from Secrets the tokens that no current key verifies. The controllers of the cluster
// create new tokens.
func renewKeptTokens(out io.Writer, call caller) error {
	var good struct{ Keys []struct{ Kid string } }
	if err := call(http.MethodGet, "/openid/v1/jwks", nil, &good); err != nil {
		return err
	}
	var secrets struct {
		Items []struct {
			Metadata struct{ Namespace, Name, ResourceVersion string }
			Data     map[string][]byte
		}
	}
	if err := call(http.MethodGet, "/api/v1/secrets?fieldSelector="+url.QueryEscape("type=kubernetes.io/service-account-token"), nil, &secrets); err != nil {
		return err
	}
	n := 0
	for _, s := range secrets.Items {
		kid := keyOf(s.Data["token"])
		if kid == "" || slices.ContainsFunc(good.Keys, func(k struct{ Kid string }) bool { return k.Kid == kid }) {
			continue
		}
		patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"data":{"token":null}}`, s.Metadata.ResourceVersion)
		if err := call(http.MethodPatch, "/api/v1/namespaces/"+s.Metadata.Namespace+"/secrets/"+s.Metadata.Name, []byte(patch), &struct{}{}); err != nil {
			return err
		}
		n++
	}
	if n > 0 {
		terminal.Fprintf(out, "renewed %s of service accounts that are kept in Secrets\n", report.Count(n, "token"))
	}
	return nil
}

// keyOf returns the ID of the key that signed a token; empty for an invalid token.
func keyOf(token []byte) string {
	head, _, _ := bytes.Cut(token, []byte("."))
	text, err := base64.RawURLEncoding.DecodeString(string(head))
	var header struct{ Kid string }
	if err != nil || json.Unmarshal(text, &header) != nil {
		return ""
	}
	return header.Kid
}
