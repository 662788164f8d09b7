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

func TestEnglishNeedsNoTranslations(t *testing.T) {
	for language, want := range map[string]bool{
		"": true, "C": true, "C.UTF-8": true, "POSIX": true, "en_US.UTF-8": true, "en_GB": true,
		"de_DE.UTF-8": false, "zh_CN.UTF-8": false, "fr_FR": false,
	} {
		if got := isEnglish(language); got != want {
			t.Errorf("%q: %v, want %v", language, got, want)
		}
	}
}
