package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// auditPolicy logs each request once, at the metadata level, when it is answered.
const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived","ResponseStarted"],"rules":[{"level":"Metadata"}]}`

// auditLog reads the audit log of a server. It is used for one request at a time.
type auditLog struct {
	policy, log string
	reader      *bufio.Reader
	// part is the beginning of a line that is not completely written yet.
	part string
}

func newAuditLog(dir string) (*auditLog, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &auditLog{policy: filepath.Join(dir, "audit-policy.json"), log: filepath.Join(dir, "audit.log")}
	return a, os.WriteFile(a.policy, []byte(auditPolicy), 0o600)
}

func (a *auditLog) flags() []string {
	return []string{"--audit-policy-file=" + a.policy, "--audit-log-path=" + a.log}
}

// annotations returns the audit annotations of a request, without the authorizer's, whose text names the
// implementation, and without the latencies of slow requests. It waits for the event: a server may write it shortly
// after the answer.
func (a *auditLog) annotations(ctx context.Context, id string) (map[string]any, error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		found, err := a.next(id)
		if found != nil || err != nil {
			return found, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, fmt.Errorf("the audit log %s has no event of the request", a.log)
}

func (a *auditLog) next(id string) (map[string]any, error) {
	if a.reader == nil {
		file, err := os.Open(a.log)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		a.reader = bufio.NewReader(file)
	}
	for {
		line, err := a.reader.ReadString('\n')
		a.part += line
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		var event struct {
			AuditID     string         `json:"auditID"`
			Annotations map[string]any `json:"annotations"`
		}
		err = json.Unmarshal([]byte(a.part), &event)
		a.part = ""
		if err != nil {
			return nil, fmt.Errorf("audit log %s: %w", a.log, err)
		}
		if event.AuditID != id {
			continue
		}
		kept := map[string]any{}
		for key, value := range event.Annotations {
			if !strings.HasPrefix(key, "authorization.k8s.io/") && !strings.HasPrefix(key, "apiserver.latency.k8s.io/") {
				kept[key] = value
			}
		}
		return kept, nil
	}
}
