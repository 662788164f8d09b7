package prelude

import "testing"

func TestTextsOfKubectlAreTranslatedWhereTheyMayBeShown(t *testing.T) {
	for _, c := range []struct {
		program string
		args    []string
		want    bool
	}{
		{program: "kubectl", args: []string{"get", "pods"}, want: true},
		{program: "gatehouse", args: []string{"kubectl", "get", "pods"}, want: true},
		{program: "gatehouse", args: []string{"--v=2", "kubectl"}, want: true},
		{program: "gatehouse", args: []string{"help", "kubectl"}, want: true},
		{program: "gatehouse", args: []string{"serve", "--test"}},
		{program: "kube-apiserver", args: []string{"--secure-port", "0"}},
		{program: "etcd"},
	} {
		if got := isKubectl(c.program, c.args); got != c.want {
			t.Errorf("%s %v: %v, want %v", c.program, c.args, got, c.want)
		}
	}
}
