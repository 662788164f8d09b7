package command

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVersionIsReadFromTheBuild(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	kubernetes := []*debug.Module{{Path: "k8s.io/api", Version: "v0.37.2"}, {Path: "k8s.io/kubernetes", Version: "v1.37.2"}}
	for _, tc := range []struct {
		name string
		info debug.BuildInfo
		want Version
		text string
	}{
		{
			name: "a release",
			info: debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"}, Deps: kubernetes},
			want: Version{Version: "v1.2.3", Kubernetes: "v1.37.2", Go: "go1.26.0", Platform: platform},
			text: "gatehouse v1.2.3\nkubernetes v1.37.2\ngo1.26.0 " + platform + "\n",
		},
		{
			name: "a commit",
			info: debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "(devel)"}, Deps: kubernetes,
				Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}}},
			want: Version{Version: "(devel)", Commit: "abc", Kubernetes: "v1.37.2", Go: "go1.26.0", Platform: platform},
			text: "gatehouse (devel) (commit abc)\nkubernetes v1.37.2\ngo1.26.0 " + platform + "\n",
		},
		{
			name: "a work tree with changes",
			info: debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "(devel)"}, Deps: kubernetes,
				Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}},
			want: Version{Version: "(devel)", Commit: "abc", Modified: true, Kubernetes: "v1.37.2", Go: "go1.26.0", Platform: platform},
			text: "gatehouse (devel) (commit abc, with changes)\nkubernetes v1.37.2\ngo1.26.0 " + platform + "\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := readVersion(&tc.info)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			var out strings.Builder
			if err := PrintVersion(&out, got, "text"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.text, out.String()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestClientVersionIsWhatKubectlIsStampedWith(t *testing.T) {
	v := ClientVersion("v1.37.2")
	if v.GitVersion != "v1.37.2" || v.Major != "1" || v.Minor != "37" {
		t.Errorf("got %s, %s.%s", v.GitVersion, v.Major, v.Minor)
	}
}
