package userpatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// upstream applies a patch as k8s.io/apiserver does. comparable is false if that panics.
func upstream(p *Patch, object []byte) (patched []byte, err error, comparable bool) {
	defer func() {
		if recover() != nil {
			comparable = false
		}
	}()
	if p.Type == types.MergePatchType {
		if patched, err = jsonpatch.MergePatch(object, p.Body); errors.Is(err, jsonpatch.ErrBadJSONPatch) {
			err = apierrors.NewBadRequest(err.Error())
		}
		return patched, err, true
	}
	operations, err := jsonpatch.DecodePatch(p.Body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error()), true
	}
	if len(operations) > 10000 {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is 10000, got %d", len(operations))), true
	}
	if patched, err = operations.Apply(object); err != nil {
		err = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return patched, err, true
}

// compareWithUpstream fails a test unless a patch has the result and the error of upstream.
func compareWithUpstream(t *testing.T, p *Patch, object string) {
	t.Helper()
	want, wantErr, comparable := upstream(p, []byte(object))
	got, _, err := p.Apply(t.Context(), []byte(object))
	if !comparable {
		return
	}
	if response(t, err) != response(t, wantErr) {
		t.Fatalf("%s\n%s\non %s\ngot error  %s\nwant error %s", p.Type, p.Body, object, response(t, err), response(t, wantErr))
	}
	if err == nil && !bytes.Equal(got, want) {
		t.Fatalf("%s\n%s\non %s\ngot  %s\nwant %s", p.Type, p.Body, object, got, want)
	}
}

// response returns the response of the server to an error, without the repetitions of an error at each level.
func response(t *testing.T, err error) string {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return fmt.Sprint(err)
	}
	text, failed := json.Marshal(status.Status())
	if failed != nil {
		t.Fatal(failed)
	}
	if strings.Contains(string(text), "exceeded max depth") || strings.Contains(string(text), errDeep.Error()) {
		return fmt.Sprint(status.Status().Code, " too deep")
	}
	return string(text)
}

// limitCopies gives upstream the limit that kube-apiserver sets.
func limitCopies(t testing.TB) {
	before := atomic.SwapInt64(&jsonpatch.AccumulatedCopySizeLimit, maxCopied)
	t.Cleanup(func() { atomic.StoreInt64(&jsonpatch.AccumulatedCopySizeLimit, before) })
}

const object = `{"a":{"b":[1,2,{"c":"x"}],"n":null},"l":[],"k/~":"odd","f":1.50,"s":"\u003c\u0026\u003e"}
`

var mergePatches = []string{
	`{}`, `{"a":{"b":null}}`, `{"a":{"n":{"x":null,"y":[null,{"z":null}]}}}`, `{"l":[{"z":null , "y":1,"y":2}]}`, `{"new":[ {"z":null , "y":1,"y":2} ]}`,
	`{"a":[{"b":null}]}`, `{"a":null,"a":1}`, `{"a":1,"a":null}`, `{"\u0061":{"n":1}}`, `{"f":2.0e0,"s":"<>&\u2028 é 😀"}`, ` { "x" : { } , "y" : [ ] } `,
	`null`, `[]`, `[1,null,{"a":null}]`, `1`, `"x"`, `true`, `{"f":{"q":{"r":null}}}`, `{"a":{"b":{"0":1}}}`, "{\"\xff\":1,\"\u2028\":2}", `{"s":"` + "\xff\xe2\x80\xa8" + `"}`,
}

var jsonPatches = []string{
	`[]`, `null`, `{}`, `"x"`, `1`, `true`, `[1]`, `[null]`, `[[]]`, `["x"]`, `[{}]`, `[{"op":null}]`, `[{"op":1}]`, `[{"op":"merge"}]`,
	`[{"op":"add","path":"/a/b/-1","value":[null,{"x":{}}]},{"op":"test","path":"/a/b/3","value":[1]}]`,
	`[{"op":"add","path":"/a/b/-","value":{"y":1, "x":2,"x":3}},{"op":"test","path":"/a/b/3","value":{"x":3,"y":1}}]`,
	`[{"op":"add","path":"/a/b/-4","value":1}]`, `[{"op":"add","path":"/a/b/-5","value":1}]`, `[{"op":"add","path":"/a/b/4","value":1}]`,
	`[{"op":"add","path":"/a/b/x","value":1}]`, `[{"op":"add","path":"/a/b/+1","value":1}]`, `[{"op":"add","path":"/a/b/01","value":1}]`, `[{"op":"add","path":"/a/b/99999999999999999999","value":1}]`,
	`[{"op":"move","from":"/a/b","path":"/l/0"},{"op":"remove","path":"/l/0/-1"}]`,
	`[{"op":"copy","from":"/zz","path":"/l/-"},{"op":"replace","path":"/l/0","value":{"q":1}},{"op":"add","path":"/l/0/r","value":"s"}]`,
	`[{"op":"copy","from":"/a","path":"/a/b/0"},{"op":"test","path":"/s","value":"<&>"},{"op":"remove","path":"/k~1~0"}]`,
	`[{"op":"copy","from":"/a","path":"/a/b/0"},{"op":"test","path":"/s","value":"\u003c\u0026\u003e"},{"op":"remove","path":"/k~1~0"}]`,
	`[{"op":"replace","path":"","value":[1]},{"op":"add","path":"/0","value":2}]`, `[{"op":"replace","path":"","value":1}]`, `[{"op":"replace","path":"","value":null}]`,
	`[{"op":"add","path":"x/y","value":2},{"op":"add","path":"","value":2}]`, `[{"op":"remove","path":""}]`, `[{"op":"move","from":"","path":"/a"}]`,
	`[{"op":"test","path":"","value":{"a":1}}]`, `[{"op":"test","path":"","value":null}]`, `[{"op":"test","path":"/f","value":1.5}]`, `[{"op":"test","path":"/f","value":1.50}]`,
	`[{"op":"add","path":"/z","value":null},{"op":"test","path":"/z"}]`, `[{"op":"add","path":"/z","value":null},{"op":"test","path":"/z","value":null},{"op":"add","path":"/z/y","value":1}]`,
	`[{"op":"add","path":"/z","value":null},{"op":"copy","from":"/z","path":"/y"},{"op":"test","path":"/y/q"},{"op":"test","path":"/y","value":{}},{"op":"remove","path":"/y/q"}]`,
	`[{"op":"add","path":"/z","value":null},{"op":"test","path":"","value":{"a":{"b":[1,2,{"c":"x"}],"n":null},"l":[],"k/~":"odd","f":1.50,"s":"\u003c\u0026\u003e","z":null}}]`,
	`[{"op":"test","path":"/nope","value":null},{"op":"test","path":"/nope"},{"op":"test","path":"/a/n"},{"op":"test","path":"/a/n","value":1}]`,
	`[{"op":"test","path":"/a/b/7","value":1}]`, `[{"op":"test","path":"/q/r","value":1}]`, `[{"op":"test","value":1}]`, `[{"op":"test","path":2,"value":1}]`,
	`[{"op":"replace","path":"/a/b/3","value":1}]`, `[{"op":"replace","path":"/a/b/-3","value":1}]`, `[{"op":"replace","path":"/q/r","value":1}]`, `[{"op":"replace","path":[]}]`, `[{"op":"replace","path":"/new"}]`,
	`[{"op":"remove","path":"/a/b/3"}]`, `[{"op":"remove","path":"/a/b/x"}]`, `[{"op":"remove","path":"/q"}]`, `[{"op":"remove","path":"/q/r"}]`, `[{"op":"remove"}]`, `[{"op":"add"}]`, `[{"op":"copy"}]`, `[{"op":"move"}]`, `[{"op":"replace"}]`,
	`[{"op":"move","from":"/a","path":"/a/b"}]`, `[{"op":"move","from":"/f"}]`, `[{"op":"move","from":"/a/b/9","path":"/x"}]`, `[{"op":"move","from":"/q/r","path":"/x"}]`, `[{"op":"move","from":"/f","path":"/l/x"}]`, `[{"op":"move","from":{},"path":"/l"}]`,
	`[{"op":"copy","from":"/a/b/9","path":"/x"}]`, `[{"op":"copy","from":"/q/r","path":"/x"}]`, `[{"op":"copy","from":"/f","path":"/l/x"}]`, `[{"op":"copy","from":"/f"}]`, `[{"op":"copy","from":"/f","path":"/q/r"}]`,
	`[{"\u006fp":"remove","path":"/f","path":"/a"},null]`, `[{"op":"add","path":"/f/x","value":1}]`, `[{"op":"add","path":"/a/n/x","value":1}]`, ` [ { "op" : "add" , "path" : "/l/0" , "value" : [ 1 , 2 ] } ] `,
}

// Results and errors of patches equal upstream's (S27.11).
func TestPatchesAreAppliedAsUpstreamDoes(t *testing.T) {
	limitCopies(t)
	for _, body := range mergePatches {
		compareWithUpstream(t, &Patch{Type: types.MergePatchType, Body: []byte(body)}, object)
	}
	for _, body := range jsonPatches {
		compareWithUpstream(t, &Patch{Type: types.JSONPatchType, Body: []byte(body)}, object)
	}
	var many strings.Builder
	for i := range maxOperations {
		fmt.Fprintf(&many, `,{"op":"add","path":"/l/%d","value":%d},{"op":"remove","path":"/l/%d"}`, i/3, i, i/7)
	}
	for _, body := range []string{many.String(), many.String()[:strings.Index(many.String(), `,{"op":"add","path":"/l/1666"`)]} {
		compareWithUpstream(t, &Patch{Type: types.JSONPatchType, Body: []byte("[" + body[1:] + "]")}, object)
	}
	for _, most := range []int{maxCopied/2 - 2, maxCopied/2 - 1} {
		body := fmt.Sprintf(`[{"op":"add","path":"/x","value":"%s"},{"op":"copy","from":"/x","path":"/y"},{"op":"copy","from":"/y","path":"/z"}]`, strings.Repeat("x", most))
		compareWithUpstream(t, &Patch{Type: types.JSONPatchType, Body: []byte(body)}, object)
	}
}

// The same for random patches, most of which change an existing value.
func TestRandomPatchesAreAppliedAsUpstreamDoes(t *testing.T) {
	limitCopies(t)
	random := &generator{rand.New(rand.NewPCG(1, 2))}
	for range 20_000 {
		object := random.object(3)
		compareWithUpstream(t, &Patch{Type: types.MergePatchType, Body: []byte(random.object(3))}, object)
		compareWithUpstream(t, &Patch{Type: types.JSONPatchType, Body: []byte(random.operations())}, object)
	}
}

func FuzzMergePatch(f *testing.F) {
	for _, body := range mergePatches {
		f.Add(object, body)
	}
	fuzz(f, types.MergePatchType)
}

func FuzzJSONPatch(f *testing.F) {
	for _, body := range jsonPatches {
		f.Add(object, body)
	}
	fuzz(f, types.JSONPatchType)
}

// fuzz compares patches with upstream.
func fuzz(f *testing.F, patch types.PatchType) {
	limitCopies(f)
	f.Fuzz(func(t *testing.T, object, body string) {
		if !json.Valid([]byte(body)) || !json.Valid([]byte(object)) || !strings.HasPrefix(object, "{") {
			t.Skip()
		}
		compareWithUpstream(t, &Patch{Type: patch, Body: []byte(body)}, object)
	})
}

// generator makes JSON with few names, so that patches match fields of objects.
type generator struct{ *rand.Rand }

func (g *generator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g *generator) space() string { return g.pick("", "", "", " ", "\n\t") }

func (g *generator) name() string { return g.pick("a", "b", `\u0061`, "<", "~", "/", "é", "0", "1") }

func (g *generator) object(depth int) string {
	var members []string
	for range g.IntN(4) {
		members = append(members, g.space()+`"`+g.name()+`"`+g.space()+":"+g.space()+g.value(depth-1)+g.space())
	}
	return "{" + strings.Join(members, ",") + "}"
}

func (g *generator) value(depth int) string {
	kind := g.IntN(10)
	switch {
	case depth > 0 && kind < 4:
		return g.object(depth)
	case depth > 0 && kind < 6:
		var elements []string
		for range g.IntN(4) {
			elements = append(elements, g.space()+g.value(depth-1)+g.space())
		}
		return "[" + strings.Join(elements, ",") + "]"
	}
	return g.pick("null", "null", "1", "1.0", "-2e3", "true", `"x"`, `"\u0078"`, `"<\u2028>"`, `""`, "{}", "[]")
}

func (g *generator) pointer() string {
	var p strings.Builder
	for range g.IntN(4) {
		p.WriteString("/" + g.pick("a", "b", "<", "~0", "~1", "é", "0", "1", "-", "-1", "2"))
	}
	return p.String()
}

func (g *generator) operations() string {
	var list []string
	for range 1 + g.IntN(5) {
		members := []string{`"op":"` + g.pick("add", "add", "add", "remove", "replace", "move", "copy", "copy", "test") + `"`}
		if g.IntN(20) > 0 {
			members = append(members, `"path":"`+g.pointer()+`"`)
		}
		if g.IntN(20) > 0 {
			members = append(members, `"from":"`+g.pointer()+`"`)
		}
		if g.IntN(20) > 0 {
			members = append(members, `"value":`+g.value(3))
		}
		list = append(list, "{"+strings.Join(members, ",")+"}")
	}
	return "[" + strings.Join(list, ",") + "]"
}

// A patch ends with the context of its request.
func TestPatchesEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the time is over"))
	for kind, body := range map[types.PatchType]string{
		types.MergePatchType: `{"list":["` + strings.Repeat(`x","`, lookEvery) + `"]}`,
		types.JSONPatchType:  `[{"op":"add","path":"/a","value":1}]`,
	} {
		_, _, err := (&Patch{Type: kind, Body: []byte(body)}).Apply(ctx, []byte(`{}`))
		if err == nil || !strings.Contains(err.Error(), "the time is over") {
			t.Errorf("%s: got %v", kind, err)
		}
	}
}
