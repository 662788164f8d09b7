package agreement

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/davecgh/go-spew/spew"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// translation is a decided difference of this form: Gatehouse treats one answer of a webhook as upstream treats
// another answer. Upstream's webhooks give that other answer, and then both sides must agree in everything.
type translation struct {
	rule, title string
	// applies reports whether the translation applies to an answer to a review, and replace changes the answer.
	applies func(*answer, *reviewed) bool
	replace func(*answer)
}

var translations = []translation{
	{
		rule: "S8.9", title: "redirects are not followed: they are as good as one to nowhere",
		applies: func(a *answer, _ *reviewed) bool { return a.Header["Location"] != "" },
		replace: func(a *answer) { delete(a.Header, "Location") },
	},
	{
		rule: "S7.13", title: "reviews are sent once: Retry-After makes no difference",
		applies: func(a *answer, _ *reviewed) bool { return a.Header["Retry-After"] != "" },
		replace: func(a *answer) { delete(a.Header, "Retry-After") },
	},
	{
		rule: "S5.6", title: "a patch that cannot be applied is a failed call, like one that cannot be decoded",
		applies: func(a *answer, in *reviewed) bool {
			// v1 rejects a patch of another type before it applies the patch.
			tried := in.APIVersion == "admission.k8s.io/v1beta1" || a.PatchType != nil && *a.PatchType == "JSONPatch"
			return in.mutating && tried && unusable(a, in.Request.Object)
		},
		replace: func(a *answer) { a.Patch = []string{undecodable} },
	},
}

func (t *translation) name() string { return t.rule + ": " + t.title }

// unusable reports whether the patch of an answer cannot be applied to an object, or its result cannot be decoded.
func unusable(a *answer, object map[string]any) bool {
	if len(a.Patch) == 0 || object == nil {
		return false
	}
	p, err := jsonpatch.DecodePatch(patch(a.Patch, object))
	if err != nil || len(p) == 0 {
		return false
	}
	_, err = p.Apply(must(json.Marshal(object)))
	return err != nil || slices.ContainsFunc(a.Patch, func(name string) bool { return recipeOf[name].fails })
}

func translate(a answer, in *reviewed) answer {
	for i := range translations {
		if t := &translations[i]; t.applies(&a, in) {
			a.Header = maps.Clone(a.Header)
			t.replace(&a)
			tally.count(t.name())
		}
	}
	return a
}

// difference is one difference between the two sides.
type difference struct {
	// at is the place of the difference, such as "mutating: error: message".
	at string
	// hook is the ID of the hook whose review differs.
	hook                int
	upstream, gatehouse string
}

// comparison is a request with the results of both sides.
type comparison struct {
	world               *world
	request             *request
	upstream, gatehouse []pass
}

// decision is a decided difference: a rule requires it.
type decision struct {
	rule, title string
	// explains reports whether the rule requires a difference in a pass.
	explains func(c *comparison, pass int, d *difference) bool
}

func (d *decision) name() string { return d.rule + ": " + d.title }

var decided = []decision{
	{
		rule: "S7.5", title: "a failed call is described in other words, after those that name the webhook and how it failed",
		explains: func(_ *comparison, _ int, d *difference) bool {
			return d.what() == "error: message" && callError(d.upstream) != "" && wordsOf(d.upstream) == wordsOf(d.gatehouse) &&
				failure(d.upstream) == failure(d.gatehouse)
		},
	},
	{
		rule: "S7.5", title: "a Status of success in place of a review is reported as an absent response",
		explains: func(_ *comparison, _ int, d *difference) bool {
			return d.what() == "error: message" && callError(d.upstream) != "" && wordsOf(d.upstream) == wordsOf(d.gatehouse) &&
				strings.Contains(d.upstream, "converting (v1.Status) to (") && strings.Contains(d.gatehouse, ": webhook response was absent")
		},
	},
	{
		rule: "S6.4", title: "of several rejections the first in order is returned, not the first in time",
		explains: func(_ *comparison, _ int, d *difference) bool { return d.what() == "error: which" },
	},
	{
		rule: "S6.4", title: "the other rejections are causes of the one that is returned",
		explains: func(_ *comparison, pass int, d *difference) bool {
			return d.what() == "error: further" && pass == validatingPass && d.upstream == "[]"
		},
	},
	{
		rule: "S4.14", title: "a denial's code that HTTP does not have becomes 500",
		explains: func(_ *comparison, _ int, d *difference) bool {
			code, err := strconv.Atoi(d.upstream)
			return d.what() == "error: code" && err == nil && code >= 1000 && d.gatehouse == "500"
		},
	},
	{
		rule: "S5.8", title: "a patch that changes the kind is refused at once, in the name of the webhook",
		explains: func(c *comparison, pass int, d *difference) bool {
			return pass == mutatingPass && c.refusedKind() && (d.what() != "reviews" || c.stopsEarlier())
		},
	},
	{
		rule: "S7.8", title: "a call that may fail is cut short enough for the request to go on",
		explains: func(c *comparison, pass int, d *difference) bool {
			return c.request.timeout > 0 && strings.HasSuffix(d.what(), "url") && c.mayFail(d.hook) &&
				withoutTimeout(d.upstream) == withoutTimeout(d.gatehouse) && timeout(d.gatehouse) < timeout(d.upstream)
		},
	},
	{
		rule: "S7.8", title: "a hook that may fail cannot use up the time of the request",
		explains: func(c *comparison, pass int, d *difference) bool {
			return c.gaveUp() && (d.what() == "happens" || pass == mutatingPass && (d.what() != "reviews" || c.goesOn()))
		},
	},
	{
		rule: "S7.8", title: "a hook that may not fail and uses up the time of the request is a time-out of the request, as kube-apiserver's handler answers",
		explains: func(c *comparison, pass int, d *difference) bool {
			if c.request.timeout == 0 || !apierrors.IsTimeout(c.gatehouse[pass].err) || !apierrors.IsInternalError(c.upstream[pass].err) {
				return false
			}
			switch d.what() {
			case "error: code", "error: reason", "error: details":
				return true
			case "error: message":
				opening, upstream := "Timeout: request did not complete within the allotted timeout: ", strings.TrimPrefix(d.upstream, internalError)
				return strings.HasSuffix(upstream, ": context deadline exceeded") && strings.HasPrefix(d.gatehouse, opening+upstream)
			}
			return false
		},
	},
	{
		rule: "S7.15", title: "the error for an object that does not convert names the webhook it is converted for",
		explains: func(_ *comparison, _ int, d *difference) bool {
			return d.what() == "error: message" &&
				conversion.ReplaceAllString(d.gatehouse, "$1") == strings.ReplaceAll(d.upstream, internalError+internalError, internalError)
		},
	},
	{
		rule: "S2.2", title: "the error of a selector says which selector it is",
		explains: func(_ *comparison, _ int, d *difference) bool {
			return d.what() == "error: message" && d.upstream == selector.ReplaceAllString(d.gatehouse, "")
		},
	},
}

// The passes of a request.
const (
	mutatingPass = iota
	validatingPass
)

const internalError = "Internal error occurred: "

// conversion matches the text that Gatehouse puts before the reason why an object does not convert.
var conversion = regexp.MustCompile(`^(Internal error occurred: )converting to [^:]* for admission webhook "[^"]*": `)

// selector matches the text that Gatehouse puts before the reason why a selector is invalid.
var selector = regexp.MustCompile(`(namespace|object)Selector: `)

// refusedKind reports whether Gatehouse refused a patch that changes the kind, and upstream rejected the request,
// too.
func (c *comparison) refusedKind() bool {
	err := c.gatehouse[0].err
	if err == nil || c.upstream[0].err == nil || !strings.Contains(err.Error(), "returned a patch that is not allowed: it changes the object from") {
		return false
	}
	reviews := c.gatehouse[0].received
	return len(reviews) > 0 && slices.Contains(c.world.answers[reviews[len(reviews)-1].hook].Patch, rename)
}

// stopsEarlier reports whether Gatehouse called only the first of the hooks that upstream called in the mutating
// pass. goesOn reports whether Gatehouse called the same hooks, and then more.
func (c *comparison) stopsEarlier() bool {
	return begins(c.upstream[0].received, c.gatehouse[0].received)
}
func (c *comparison) goesOn() bool { return begins(c.gatehouse[0].received, c.upstream[0].received) }

// begins reports whether the list of calls all begins with the list with.
func begins(all, with []received) bool {
	return len(with) <= len(all) && order(all[:len(with)], false) == order(with, false)
}

// gaveUp reports whether upstream gave up the request in the mutating pass, because a hook with failurePolicy Ignore
// used up the time of the request.
func (c *comparison) gaveUp() bool {
	reviews := c.upstream[0].received
	if c.request.timeout == 0 || !apierrors.IsTimeout(c.upstream[0].err) || len(reviews) == 0 {
		return false
	}
	last := reviews[len(reviews)-1].hook
	return c.mayFail(last) && c.world.answers[last].Wire == "hang"
}

// mayFail reports whether the failurePolicy of a hook is Ignore.
func (c *comparison) mayFail(hook int) bool {
	for _, configuration := range c.world.configurations {
		for _, h := range configuration.webhooks {
			if idOf(&h.ClientConfig) != hook {
				continue
			}
			if h.FailurePolicy == nil {
				return configuration.version == "v1beta1"
			}
			return *h.FailurePolicy == registrationv1.Ignore
		}
	}
	return false
}

var timeoutParameter = regexp.MustCompile(`timeout=(\d+)s$`)

// timeout returns the timeout parameter of the URL of a call, in seconds, or -1 if the URL has none.
func timeout(url string) int {
	m := timeoutParameter.FindStringSubmatch(url)
	if m == nil {
		return -1
	}
	return must(strconv.Atoi(m[1]))
}

func withoutTimeout(url string) string { return timeoutParameter.ReplaceAllString(url, "") }

// what returns the place of the difference without the name of the pass.
func (d *difference) what() string {
	_, what, _ := strings.Cut(d.at, ": ")
	return what
}

var failedCall = regexp.MustCompile(`^Internal error occurred: (?:failed calling webhook "([^"]*)": |admission webhook "([^"]*)" returned a patch that could not be applied: )`)

// callError returns the name of the webhook whose call failed according to a message. It is empty for any other
// message.
func callError(message string) string {
	m := failedCall.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	return m[1] + m[2]
}

// failures are the descriptions of failed calls, in the words of S7.4.
var failures = []string{
	"could not create admission objects: ", "could not get REST client: ", "failed to call webhook: ",
	"received invalid webhook response: ", "received undecodable patch in webhook response: ", "unsupported patch type ",
	"Webhook SideEffects is nil",
}

// failure returns the element of failures that a message contains. A patch that cannot be applied counts as a patch
// that cannot be decoded (S5.6).
func failure(message string) string {
	rest := failedCall.ReplaceAllString(message, "")
	for _, f := range failures {
		if strings.HasPrefix(rest, f) {
			return f
		}
	}
	if strings.Contains(message, "returned a patch that could not be applied: ") {
		return "received undecodable patch in webhook response: "
	}
	return message
}

// differences returns the differences between the sides, without the decided ones.
func (c *comparison) differences() (all []difference) {
	for i, name := range []string{mutatingPass: "mutating", validatingPass: "validating"} {
		switch {
		case i >= len(c.upstream) && i >= len(c.gatehouse):
			continue
		case i >= len(c.upstream) || i >= len(c.gatehouse):
			d := difference{name + ": happens", 0, fmt.Sprint(i < len(c.upstream)), fmt.Sprint(i < len(c.gatehouse))}
			if !c.isDecided(i, &d) {
				all = append(all, d)
			}
			continue
		}
		for _, d := range c.compare(&c.upstream[i], &c.gatehouse[i], i == 1) {
			d.at = name + ": " + d.at
			if !c.isDecided(i, &d) {
				all = append(all, d)
			}
		}
	}
	return all
}

func (c *comparison) isDecided(pass int, d *difference) bool {
	for i := range decided {
		if decided[i].explains(c, pass, d) {
			tally.count(decided[i].name())
			return true
		}
	}
	return false
}

func (c *comparison) compare(u, g *pass, anyOrder bool) (all []difference) {
	hook := 0
	note := func(at, upstream, gatehouse string) {
		if upstream != gatehouse {
			all = append(all, difference{at, hook, upstream, gatehouse})
		}
	}
	us, gs := c.status(u.err, true), c.status(g.err, false)
	if anyOrder && slices.Contains(gs.further, us.words()) {
		// Any of the rejections may be returned, so only the words can be compared.
		note("error: which", us.words(), gs.words())
	} else {
		note("error: type", us.kind, gs.kind)
		note("error: code", fmt.Sprint(us.Code), fmt.Sprint(gs.Code))
		note("error: reason", string(us.Reason), string(gs.Reason))
		note("error: status", us.Status.Status, gs.Status.Status)
		note("error: message", us.Message, gs.Message)
		note("error: details", jsonOf(us.Details), jsonOf(gs.Details))
	}
	note("error: further", fmt.Sprintf("%q", us.further), fmt.Sprintf("%q", gs.further))
	if u.err == nil && g.err == nil {
		if !equality.Semantic.DeepEqual(u.object, g.object) {
			note("object", printer.Sdump(u.object), printer.Sdump(g.object))
		}
	}
	note("reviews", order(u.received, anyOrder), order(g.received, anyOrder))
	if order(u.received, anyOrder) == order(g.received, anyOrder) {
		for i := range u.received {
			a, b := c.review(&u.received[i], true), c.review(&g.received[i], false)
			hook = u.received[i].hook
			at := fmt.Sprintf("review %d of hook %d: ", i, hook)
			note(at+"url", a.url, b.url)
			note(at+"headers", jsonOf(a.header), jsonOf(b.header))
			note(at+"body", a.body, b.body)
		}
	}
	note("annotations", c.annotations(u.annotations), c.annotations(g.annotations))
	note("warnings", list(u.warnings, anyOrder), list(g.warnings, anyOrder))
	return all
}

// status is an error as the client would see it.
type status struct {
	metav1.Status
	kind string
	// further are the words of the rejections after the returned one.
	further []string
}

// words returns the message, or for a failed call only that the call failed.
func (s *status) words() string { return wordsOf(s.Message) }

func wordsOf(message string) string {
	if hook := callError(message); hook != "" {
		return "the call of " + hook + " failed"
	}
	return message
}

func (c *comparison) status(err error, upstream bool) status {
	s := status{kind: "none"}
	if err == nil {
		return s
	}
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		s.Status, s.kind = api.Status(), "status"
	} else {
		s.Message, s.kind = err.Error(), "other"
	}
	s.Message = c.text(s.Message, upstream)
	if s.Details == nil {
		return s
	}
	details := s.Details.DeepCopy()
	details.Kind = c.text(details.Kind, upstream)
	details.Causes = nil
	for _, cause := range s.Details.Causes {
		cause.Message = c.text(cause.Message, upstream)
		if cause.Type == "AdmissionWebhookDenied" {
			s.further = append(s.further, wordsOf(cause.Message))
			continue
		}
		if internalError+cause.Message == s.Message {
			cause.Message = "what the message says"
		}
		details.Causes = append(details.Causes, cause)
	}
	if s.Details = details; reflect.DeepEqual(*details, metav1.StatusDetails{}) {
		s.Details = nil
	}
	return s
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)

// text replaces the random parts of a text.
func (c *comparison) text(s string, upstream bool) string {
	s = uuids.ReplaceAllString(s, "UID")
	if upstream && renamed(c.request.resource) != c.request.resource {
		s = strings.ReplaceAll(s, realms, namespaces)
	}
	return s
}

func (c *comparison) review(r *received, upstream bool) received {
	var body bytes.Buffer
	var content any
	d := json.NewDecoder(strings.NewReader(r.body))
	d.UseNumber()
	if err := d.Decode(&content); err != nil {
		body.WriteString(r.body)
	} else {
		body.WriteString(jsonOf(content))
	}
	header := r.header.Clone()
	header.Del("Content-Length")
	return received{r.hook, r.method, r.method + " " + r.url, header, c.text(body.String(), upstream)}
}

func (c *comparison) annotations(notes map[string]annotation) string {
	shown := map[string]any{}
	for key, a := range notes {
		var value any = a.value
		if strings.HasPrefix(key, "patch.webhook.admission.k8s.io/") {
			value = json.RawMessage(a.value)
			d := json.NewDecoder(strings.NewReader(a.value))
			d.UseNumber()
			d.Decode(&value)
		}
		shown[key] = map[string]any{"level": a.level, "value": value}
	}
	return jsonOf(shown)
}

// order returns the IDs of the called hooks. If the order does not matter, it first sorts the reviews by hook.
func order(reviews []received, any bool) string {
	if any {
		slices.SortStableFunc(reviews, func(a, b received) int { return a.hook - b.hook })
	}
	hooks := make([]int, len(reviews))
	for i := range reviews {
		hooks[i] = reviews[i].hook
	}
	return fmt.Sprint(hooks)
}

func list(texts []string, any bool) string {
	if any {
		texts = slices.Sorted(slices.Values(texts))
	}
	return fmt.Sprintf("%q", texts)
}

// printer prints objects with the types of their parts.
var printer = spew.ConfigState{Indent: "  ", DisableMethods: true, DisablePointerAddresses: true, DisableCapacities: true, SortKeys: true}
