package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// score counts claims.
type score struct{ right, wrong, unknown int }

// tally contains the results of comparing records with the actual requests.
type tally struct {
	level string
	// known reports whether the records were created with webhook configurations and policies.
	known bool

	written, derived score
	// by counts the rejected requests by the part of the server that rejected them.
	by map[string]int
	// unclear counts the rejected requests whose record does not tell which part of the server rejected them.
	unclear     map[string]int
	differences []string
	guesses     []string
}

func (t *tally) print(known []string) {
	fmt.Printf("%s %s: written: %d right, %d wrong, %d unknown; derived: %d right, %d wrong, %d unknown\n  rejected by %v, not known of %v\n", t.level, known[:min(len(known), 1)],
		t.written.right, t.written.wrong, t.written.unknown, t.derived.right, t.derived.wrong, t.derived.unknown, t.by, t.unclear)
	for _, text := range t.differences[:min(len(t.differences), 20)] {
		fmt.Println("  written:", text)
	}
	for _, text := range t.guesses[:min(len(t.guesses), 20)] {
		fmt.Println("  derived:", text)
	}
}

// says compares a claim with the actual value.
func (t *tally) says(known trace.Known, d *done, what string, said, was any) {
	s := &t.written
	if known == trace.Derived {
		s = &t.derived
	}
	a, b := fmt.Sprint(said), fmt.Sprint(was)
	if a == b {
		s.right++
		return
	}
	s.wrong++
	text := fmt.Sprintf("%s %s %s of %s (%d %q, %s): %s is %q, and was %q", d.method, d.path, d.body[:min(len(d.body), 300)], d.user, d.code, d.message, got(d), what, a, b)
	if known == trace.Derived {
		t.guesses = append(t.guesses, text)
	} else {
		t.differences = append(t.differences, text)
	}
}

// got lists the actions of the webhooks.
func got(d *done) string {
	var list []string
	for _, c := range d.heard {
		list = append(list, c.configuration+"/"+c.webhook+" "+c.did)
	}
	return strings.Join(list, ", ")
}

// compare compares a record with the actual request.
func (t *tally) compare(d *done, r *trace.Record) {
	if r == nil {
		t.says(trace.Written, d, "the record", "missing", "made")
		return
	}
	t.says(trace.Written, d, "the code", r.Audit.Code, d.code)
	if d.code >= 300 {
		t.says(trace.Written, d, "the message", r.Audit.Message, trace.Cut(d.message, trace.MaxText))
	}
	d.heard = firstAttempt(d.heard)
	t.rejection(d, r)
	t.mutating(d, r)
	t.validating(d, r)
	t.policies(d, r)
}

// firstAttempt returns the calls of the first attempt of a request. The audit event has no data about later attempts.
func firstAttempt(calls []call) []call {
	for i := 1; i < len(calls); i++ {
		if calls[i-1].validating && !calls[i].validating {
			return calls[:i]
		}
	}
	return calls
}

// rejection compares the claims about the part of the server that rejected the request.
func (t *tally) rejection(d *done, r *trace.Record) {
	was, hooks := "", []string{}
	if d.code >= 300 {
		was = d.trouble
		for _, c := range d.heard {
			if c.rejects() {
				was = registration.MutatingPlugin
				if c.validating {
					was = registration.ValidatingPlugin
				}
				hooks = append(hooks, c.configuration+"/"+c.webhook)
			}
		}
	}
	if t.by == nil {
		t.by, t.unclear = map[string]int{}, map[string]int{}
	}
	t.by[was]++
	said := r.Audit.RejectedBy
	if said == string(trace.Unknown) || strings.Contains(said, " or ") && strings.Contains(said, was) {
		t.written.unknown++
		t.unclear[was]++
		return
	}
	known := trace.Written
	var who []string
	for a := range r.Rejections() {
		if a.Step.Known == trace.Derived || a.Kind == trace.ByWebhook && a.Entry.Configuration == "" {
			known = trace.Derived
		}
		if a.Kind == trace.ByWebhook {
			who = append(who, a.By)
		}
	}
	t.says(known, d, "who rejected it", said, was)
	if len(hooks) == 0 {
		return
	}
	if len(who) != 1 {
		t.says(known, d, "the webhook that rejected it", who, "one")
		return
	}
	// Several validating webhooks may have rejected the request; the answer contains one of them. Its configuration
	// may be unknown.
	t.says(known, d, "whether the webhook rejected it: "+who[0], slices.ContainsFunc(hooks, func(h string) bool {
		configuration, name, _ := strings.Cut(h, "/")
		return (who[0] == h || who[0] == name || who[0] == "/"+name || strings.TrimPrefix(who[0], configuration) == "/"+name) && strings.Contains(d.message, name)
	}), true)
}

// mutating compares the calls of mutating webhooks. The log contains all of them.
func (t *tally) mutating(d *done, r *trace.Record) {
	var said, was []string
	var calls []*trace.CallRecord
	for s := range r.Each() {
		// A step without a known pass contains the calls of the mutating pass.
		if s.Plugin != registration.MutatingPlugin && s.Known != trace.Unknown {
			continue
		}
		for p := range s.Parts() {
			c := p.Call
			calls = append(calls, c)
			text := fmt.Sprintf("%s mutated=%t open=%t", c.Webhook.String(), c.Mutated, c.Ignored)
			if t.level != "Metadata" {
				text += " " + patchText(c.Patch)
			}
			said = append(said, text)
		}
	}
	for _, c := range d.heard {
		if c.validating {
			continue
		}
		mutated := c.is("p")
		if n := len(was); c.is("n") && n < len(calls) {
			// The API server also reports a change if the defaults of the object are set with the patch.
			mutated = calls[n].Mutated
		}
		text := fmt.Sprintf("%s/%s mutated=%t open=%t", c.configuration, c.webhook, mutated, c.failedOpen())
		if t.level != "Metadata" {
			text += " " + sentText(&c)
		}
		was = append(was, text)
	}
	t.says(trace.Written, d, "what mutating webhooks did", said, was)
}

// patchText formats the patch of a record.
func patchText(patch []trace.PatchOperation) string {
	var b strings.Builder
	for _, p := range patch {
		fmt.Fprintf(&b, "%s %s %s;", p.Op, p.Path, p.Value)
	}
	return b.String()
}

// sentText formats the patch that a webhook sent, if the patch was applied.
func sentText(c *call) string {
	var list []trace.PatchOperation
	if c.is("pn") {
		if err := json.NewDecoder(bytes.NewReader([]byte(c.patch))).Decode(&list); err != nil {
			return err.Error()
		}
	}
	return patchText(list)
}

// validating compares the calls of validating webhooks. The log contains the calls that failed open, and the one call
// that rejected the request.
func (t *tally) validating(d *done, r *trace.Record) {
	var open, opened, derived, got []string
	for s := range r.Each() {
		if s.Plugin != registration.ValidatingPlugin {
			continue
		}
		for p := range s.Parts() {
			c := p.Call
			if c.Ignored {
				open = append(open, c.Webhook.Name)
			}
			if c.Sent || c.Verdict != trace.Unheard.String() {
				derived = append(derived, c.Webhook.String())
			} else {
				t.derived.unknown++
			}
		}
	}
	rejects := false
	for _, c := range d.heard {
		if !c.validating {
			continue
		}
		if c.failedOpen() {
			opened = append(opened, c.webhook)
		}
		rejects = rejects || c.rejects()
		got = append(got, c.configuration+"/"+c.webhook)
	}
	slices.Sort(open)
	slices.Sort(opened)
	if rejects {
		// A rejection does not wait for calls that fail open.
		open = slices.DeleteFunc(open, func(name string) bool { return slices.Contains(opened, name) })
		opened = nil
	}
	t.says(trace.Written, d, "validating webhooks that failed open", open, opened)
	if !t.known {
		return
	}
	for _, c := range derived {
		t.says(trace.Derived, d, "the call of the validating webhook "+c, true, slices.Contains(got, c))
	}
	for _, c := range got {
		if !slices.Contains(derived, c) {
			t.derived.unknown++
		}
	}
}

// policies compares the findings of validating policies, and the list of evaluated policies.
func (t *tally) policies(d *done, r *trace.Record) {
	var said, asked []string
	for s := range r.Each() {
		if s.Plugin != registration.ValidatingPolicyPlugin {
			continue
		}
		for p := range s.Parts() {
			j := p.Judgement
			name := j.Policy.Configuration
			if j.Known == trace.Derived {
				asked = append(asked, name)
			}
			for k := range j.Consequences {
				c := &j.Consequences[k]
				said = append(said, fmt.Sprintf("%s %s denied=%t", name, c.Binding, c.Denied))
			}
		}
	}
	// The policies match creates and updates of whole objects, if no earlier check rejected the request.
	reached := d.subresource == "" && (d.operation == "CREATE" || d.operation == "UPDATE") && slices.Contains([]string{"", "ValidatingAdmissionPolicy", "ResourceQuota"}, d.trouble) &&
		!slices.ContainsFunc(d.heard, func(c call) bool { return !c.validating && c.rejects() }) || d.trouble == "Storage" && d.operation == "CREATE" && !slices.ContainsFunc(d.heard, func(c call) bool { return !c.validating && c.rejects() })
	var was []string
	if reached {
		switch d.labels["policy"] {
		case "d":
			was = []string{"denies to-denies denied=true"}
		case "r":
			was = []string{"records to-records denied=false"}
		case "w":
			was = []string{"warns to-warns denied=false"}
		case "b":
			was = []string{"both to-both denied=true"}
		case "x":
			was = []string{"breaks to-breaks denied=true"}
		}
	}
	t.says(trace.Written, d, "what policies found", said, was)
	if !t.known {
		return
	}
	for _, name := range asked {
		_, some := d.labels["some"]
		t.says(trace.Derived, d, "that the policy was asked: "+name, true, reached && (name != "some" || some))
	}
	if reached && d.code < 300 && len(asked)+len(said) < len(policies) {
		t.derived.unknown++
	}
}
