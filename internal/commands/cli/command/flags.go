package command

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/disk"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"
)

// KubeconfigFlags select a cluster as the flags of kubectl do. The package of kubectl for them is left out: with it comes
// kustomize, also into gatehouse-agent.
type KubeconfigFlags struct {
	KubeConfig, Context, Namespace string
	// Timeout limits each request of the discovery client; empty means no limit.
	Timeout string
}

// Loader returns the kubeconfig as selected by the flags.
func (f *KubeconfigFlags) Loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.DefaultClientConfig, rules.ExplicitPath = &clientcmd.DefaultClientConfig, f.KubeConfig
	overrides := &clientcmd.ConfigOverrides{ClusterDefaults: clientcmd.ClusterDefaults, CurrentContext: f.Context, Timeout: f.Timeout}
	overrides.Context.Namespace = f.Namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// notInFileName matches the characters of a host that kubectl replaces in the name of a cache.
var notInFileName = regexp.MustCompile(`[^(\w/.)]`)

// Discovery returns a client for discovery that shares its cache with kubectl, for at most six hours.
func (f *KubeconfigFlags) Discovery() (discovery.CachedDiscoveryInterface, error) {
	config, err := f.Loader().ClientConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 300
	cache := os.Getenv("KUBECACHEDIR")
	if cache == "" {
		cache = filepath.Join(homedir.HomeDir(), ".kube", "cache")
	}
	return disk.NewCachedDiscoveryClientForConfig(config, filepath.Join(cache, "discovery", cacheName(config.Host)), filepath.Join(cache, "http"), 6*time.Hour)
}

// cacheName returns kubectl's name of the folder with the discovery of a host.
func cacheName(host string) string {
	return notInFileName.ReplaceAllString(strings.TrimPrefix(strings.TrimPrefix(host, "https://"), "http://"), "_")
}

// Mapper returns the kinds of the cluster by all names that kubectl accepts.
func (f *KubeconfigFlags) Mapper() (meta.RESTMapper, error) {
	client, err := f.Discovery()
	if err != nil {
		return nil, err
	}
	return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(client), client, func(string) {}), nil
}
