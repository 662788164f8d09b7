package expression

import (
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/authentication/user"
)

// A trial has an outcome only if it is the outcome of every request of the setting, with the
// conditions that it names (S16.25).
func TestTrials(t *testing.T) {
	pods := "pods"
	create := Setting{Known: Known{Operation: "CREATE", Namespace: true}}
	with := func(s Setting, change func(*Setting)) Setting {
		change(&s)
		return s
	}
	without := func(path ...string) Setting {
		return with(create, func(s *Setting) { s.Object, s.Missing = Without(path...), path })
	}
	labels := without("metadata", "labels")
	minimal := with(create, func(s *Setting) {
		s.Object = &Partial{Closed: true, Fields: map[string]any{
			"metadata": &Partial{Fields: map[string]any{"labels": Absent}},
			"spec": &Partial{Closed: true, Fields: map[string]any{
				"containers": []any{Unknown}, "replicas": int64(1), "securityContext": &Partial{Closed: true},
			}},
		}}
		s.Missing = []string{}
	})
	nodes := with(create, func(s *Setting) {
		s.User = &user.DefaultInfo{Name: "system:node:a", Groups: []string{"system:nodes"}}
		s.Resource = &pods
		s.Present = map[string]bool{"metadata.namespace": true}
	})
	old := with(Setting{Known: Known{Operation: "UPDATE"}}, func(s *Setting) {
		s.Old, s.Missing, s.OfOld = Without("metadata", "annotations"), []string{"metadata", "annotations"}, true
	})
	for _, tc := range []struct {
		expression string
		setting    Setting
		// want is true, false, unknown, or a part of an error, with the conditions after " if ".
		want string
	}{
		{"object.metadata.labels['app'] != ''", labels, "no such key: labels"},
		{"has(object.metadata.labels) && object.metadata.labels['app'] != ''", labels, "false"},
		{"!has(object.metadata.labels) || object.metadata.labels['app'] != ''", labels, "true"},
		{"object.metadata.?labels['app'].orValue('') != ''", labels, "false"},
		{"'app' in object.metadata.labels", labels, "no such key: labels"},
		{"request.namespace == 'x' && object.metadata.labels['app'] != ''", labels, `no such key: labels if request.namespace == "x"`},
		{"request.namespace == 'x' || object.metadata.labels['app'] != ''", labels, `no such key: labels if !(request.namespace == "x")`},
		{"request.namespace == 'x' ? true : object.metadata.labels.app == 'a'", labels, `no such key: labels if !(request.namespace == "x")`},
		// The other fields of an object may decide whether a field is there.
		{"object.spec.type == 'a' && object.metadata.labels['app'] != ''", labels, "unknown"},
		{"object.metadata.name == 'a' && object.metadata.labels['app'] != ''", labels, `no such key: labels if object.metadata.name == "a"`},
		{"variables.named && variables.labels.size() > 0", labels, "no such key: labels if variables.named"},
		{"variables.guarded && object.metadata.labels.app == ''", labels, "false"},
		{"variables.about && object.metadata.labels.app == ''", labels, "unknown"},
		{"params.list.all(l, l in object.metadata.labels)", labels, "no such key: labels if size(params.list) > 0"},
		{"params.list.all(l, has(object.metadata.labels) && l in object.metadata.labels)", labels, "unknown"},
		{"object.spec.containers.all(c, c.image.startsWith('a'))", labels, "unknown"},
		{"[object.metadata.labels] == []", labels, "no such key: labels"},
		{"{} == object.metadata", labels, "unknown"},
		{"object.metadata == oldObject", labels, "false"},
		{"object == null || object.metadata.labels.app == 'a'", labels, "no such key: labels"},
		// Both operands fail, under conditions that exclude each other.
		{"'x' in params.list && 'x' in object.metadata.labels || !('x' in params.list) && !('x' in object.metadata.labels)", labels,
			`no such key: labels if "x" in params.list`},
		// One of several keys of a map.
		{"object.metadata.annotations['a'] == 'b'", without("metadata", "annotations", "a"), "no such key: a"},
		{"has(object.metadata.annotations) && object.metadata.annotations['a'] == 'b'", without("metadata", "annotations", "a"), "no such key: a"},
		{"'a' in object.metadata.annotations && object.metadata.annotations['a'] == 'b'", without("metadata", "annotations", "a"), "false"},
		{"object.metadata.annotations.exists(k, k == 'a') && object.metadata.annotations['a'] == 'b'", without("metadata", "annotations", "a"), "unknown"},
		{"size(object.metadata.annotations) > 0 && object.metadata.annotations['a'] == 'b'", without("metadata", "annotations", "a"), "unknown"},
		// The old object is null.
		{"oldObject != null || !has(oldObject.metadata.annotations)", create, "no such key: metadata"},
		{"object.metadata.annotations.exists(k, k.startsWith('a') && (oldObject != null || !(k in oldObject.metadata.annotations)))", create, "no such key: metadata if k.startsWith(\"a\"), size(object.metadata.annotations) > 0"},
		{"oldObject == null || oldObject.spec.replicas == 1", create, "true"},
		{"object.spec.replicas > 3 && oldObject.spec.replicas < 3", create, "no such key: spec if object.spec.replicas > 3"},
		{"oldObject.metadata.annotations['a'] == object.metadata.name", old, "no such key: annotations"},
		// The smallest object, with its defaults.
		{"object.spec.replicas > 1 && object.metadata.labels.a == 'b'", minimal, "false"},
		{"object.spec.containers.all(c, has(c.securityContext) && c.securityContext.privileged)", minimal, "unknown"},
		{"object.spec.securityContext.runAsNonRoot == true", minimal, "no such key: runAsNonRoot"},
		{"object.spec.initContainers.all(c, c.image != '')", minimal, "no such key: initContainers"},
		{"has(object.spec.hostNetwork) && object.spec.hostNetwork", minimal, "false"},
		// Requests of the cluster.
		{"'system:nodes' in request.userInfo.groups || object.metadata.name == 'a'", nodes, "true"},
		{"request.userInfo.username == 'bot'", nodes, "false"},
		{"request.resource.resource == 'pods' && !request.userInfo.username.startsWith('system:')", nodes, "false"},
		{"authorizer.group('').resource('pods').check('get').allowed()", nodes, "unknown"},
		{"authorizer.requestResource.check('get').allowed() || request.userInfo.username == 'bot'", nodes, "unknown"},
		{"has(object.metadata.namespace)", nodes, "true"},
		{"has(object.metadata.labels)", nodes, "unknown"},
		{"namespaceObject.metadata.name == 'a'", nodes, "unknown"},
	} {
		variables := NewVariables([]Variable{
			{"named", "object.metadata.name == 'a'"}, {"labels", "object.metadata.labels"},
			{"guarded", "has(object.metadata.labels)"}, {"about", "variables.named && object.spec.paused"},
		}, Scope{Params: true, Authorizer: true})
		trials, ok := Analyze(New(tc.expression, Scope{Params: true, Authorizer: true}, variables, Bool)).Trials()
		if !ok {
			t.Errorf("%s does not compile", tc.expression)
			continue
		}
		trial := trials.Of(t.Context(), &tc.setting)
		got := "unknown"
		switch {
		case trial.Err != nil:
			if got = trial.Err.Error(); len(trial.If) > 0 {
				got += " if " + strings.Join(trial.If, ", ")
			}
		case trial.Value == types.True:
			got = "true"
		case trial.Value == types.False:
			got = "false"
		}
		if got != tc.want {
			t.Errorf("%s without %q: %s, want %s", tc.expression, tc.setting.Missing, got, tc.want)
		}
	}
}
