package serving

import (
	"testing"
)

func TestClientVersionIsWhatKubectlIsStampedWith(t *testing.T) {
	v := clientVersion("v1.37.2")
	if v.GitVersion != "v1.37.2" || v.Major != "1" || v.Minor != "37" {
		t.Errorf("got %s, %s.%s", v.GitVersion, v.Major, v.Minor)
	}
}
