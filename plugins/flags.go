package plugins

import (
	"github.com/spf13/pflag"

	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"
)

// AddFlags adds the flags that kube-apiserver has for single plugins, which are older than
// its configuration file. Upstream keeps their values per process.
func AddFlags(flags *pflag.FlagSet) { defaulttolerationseconds.RegisterFlags(flags) }
