package replicas

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// slowReads are the flags of servers whose regular reads are far apart, so that only a watch tells them of registrations.
var slowReads = []string{"--admission-refresh-interval", slowInterval.String(), "--admission-max-staleness", (2 * slowInterval).String()}

const slowInterval = 40 * time.Second

// TestOtherServersHearOfRegistrations verifies S11.8 for the servers that did not receive the write: they
// observe a registration by a watch and apply it at once, long before the next regular read. The server that
// received the write applies it as soon as the write is answered.
func TestOtherServersHearOfRegistrations(t *testing.T) {
	t.Parallel()
	const interval = slowInterval
	f := sharedFleet(t, pair, slowReads...)
	// judgedBy returns the version of the hook that evaluates a write through a server, 0 if none does.
	judgedBy := func(server int) int {
		t.Helper()
		a, err := f.client(server).send(harness.Context(t), "POST", configMaps+"?dryRun=All", configMap("judged"))
		if err != nil || a.code != http.StatusCreated {
			t.Fatalf("%+v, %v", a, err)
		}
		return versions(a.header)["mutating"]
	}
	var took []time.Duration
	for i := range speed.Of(4, 12) {
		writer, version := i%len(f.servers), i+1
		method, path, code := "POST", collection("mutating"), http.StatusCreated
		var body any = f.configuration("mutating", version)
		switch i % 4 {
		case 1, 2:
			method, path, code = "PATCH", path+"/history", http.StatusOK
		case 3:
			method, path, code, body, version = "DELETE", path+"/history", http.StatusOK, nil, 0
		}
		a := f.must(code, writer, method, path, body)
		answered := time.Now()
		if warnings := fmt.Sprint(a.header.Values("Warning")); strings.Contains(warnings, "not yet active") {
			t.Errorf("S11.8 write %d: %s", i, warnings)
		}
		if got := judgedBy(writer); got != version {
			t.Errorf("S11.8 write %d, through server %d, which then judges by version %d, not %d", i, writer, got, version)
		}
		for server := range f.servers {
			for judgedBy(server) != version {
				if time.Since(answered) > interval/2 {
					t.Fatalf("S11.8 write %d: server %d does not judge by it after %s", i, server, time.Since(answered))
				}
			}
		}
		took = append(took, time.Since(answered))
	}
	slices.Sort(took)
	t.Logf("in force on all servers %s after the answer, at most %s, measured by requests one after the other", took[len(took)/2], took[len(took)-1])
}

// TestOtherServersHearOfModes verifies S28.10 for several servers: a change of the mode of a policy, a
// binding or a webhook is active on the server that received the write when the write is answered, and on the
// other servers soon after, long before the next regular read.
func TestOtherServersHearOfModes(t *testing.T) {
	t.Parallel()
	const interval = slowInterval
	f := sharedFleet(t, pair, slowReads...)
	f.must(http.StatusCreated, 0, "POST", policies, validatingPolicy("modes", nil, "'no'"))
	f.must(http.StatusCreated, 0, "POST", bindings, binding("modes", map[string]any{"policyName": "modes", "validationActions": []string{"Deny"}}))
	// modeOf returns the mode that applies to a create through a server.
	modeOf := func(server int) string {
		t.Helper()
		a, err := f.client(server).send(harness.Context(t), "POST", configMaps+"?dryRun=All", configMap("judged"))
		switch {
		case err == nil && a.code >= http.StatusBadRequest:
			return "Deny"
		case err == nil && a.code == http.StatusCreated && len(a.header.Values("Warning")) > 0:
			return "Warn"
		case err == nil && a.code == http.StatusCreated:
			return "Audit"
		}
		t.Fatalf("%+v, %v", a, err)
		return ""
	}
	written := 0
	change := func(path, mode string) {
		t.Helper()
		writer := written % len(f.servers)
		written++
		var value any
		if mode != "" {
			value = mode
		} else {
			mode = "Deny"
		}
		f.must(http.StatusOK, writer, "PATCH", path, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"gatehouse.dev/enforcement": value}}})
		answered := time.Now()
		if got := modeOf(writer); got != mode {
			t.Errorf("S28.10 %s %s, through server %d, which then judges by %s", path, mode, writer, got)
		}
		for server := range f.servers {
			for modeOf(server) != mode {
				if time.Since(answered) > interval/2 {
					t.Fatalf("S28.10 %s %s: server %d does not judge by it after %s", path, mode, server, time.Since(answered))
				}
			}
		}
	}
	for _, mode := range speed.Some(t, 3, []string{"Warn", "Deny", "Audit", "Warn", "Audit", "", "Audit"}) {
		change(policies+"/modes", mode)
	}
	// The mode of a binding overrides the mode of its policy (S28.6).
	for _, mode := range append(speed.Some(t, 1, []string{"Deny", "Warn", "Deny"}), "Audit") {
		change(bindings+"/modes", mode)
	}
	// Add a webhook that rejects everything, next to the policy that only audits.
	hook := f.hooks.Hook("/modes", harness.Respond(map[string]any{"allowed": false, "status": map[string]any{"code": 403, "message": "no"}}))
	f.must(http.StatusCreated, 0, "POST", collection("validating"), map[string]any{
		"metadata": map[string]any{"name": "modes"},
		"webhooks": []any{map[string]any{
			"name": "modes.example.com", "clientConfig": hook.ClientConfig(), "rules": creations["resourceRules"],
			"sideEffects": "None", "timeoutSeconds": 5, "admissionReviewVersions": []string{"v1"},
		}},
	})
	for _, mode := range speed.Some(t, 2, []string{"Warn", "Deny", "Audit", "", "Warn"}) {
		change(collection("validating")+"/modes", mode)
	}
}
