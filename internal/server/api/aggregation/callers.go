package aggregation

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"

	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
)

// authenticationInfo is the ConfigMap in kube-system where servers built on k8s.io/apiserver
// read how to authenticate callers (S22.18).
const authenticationInfo = "extension-apiserver-authentication"

// publishedWithin is how long a start waits for the ConfigMap. A webhook that refuses the
// ConfigMap may need this server to be ready.
const publishedWithin = 2 * time.Second

// Callers are the certificates and proxies with which this server authenticates callers.
type Callers struct {
	// ClientCA verifies the certificates of callers.
	ClientCA dynamiccertificates.CAContentProvider
	// Proxies configures the proxies that may name a caller in headers; nil for none.
	Proxies *authenticatorfactory.RequestHeaderConfig
}

// Publish maintains the ConfigMap until ctx ends, and returns when the ConfigMap exists.
func (c Callers) Publish(ctx context.Context, client kubernetes.Interface) error {
	info := clusterauthenticationtrust.ClusterAuthenticationInfo{ClientCA: c.ClientCA}
	if p := c.Proxies; p != nil {
		info.RequestHeaderCA, info.RequestHeaderAllowedNames = p.CAContentProvider, p.AllowedClientNames
		info.RequestHeaderUsernameHeaders, info.RequestHeaderUIDHeaders = p.UsernameHeaders, p.UIDHeaders
		info.RequestHeaderGroupHeaders, info.RequestHeaderExtraHeaderPrefixes = p.GroupHeaders, p.ExtraHeaderPrefixes
	}
	controller := clusterauthenticationtrust.NewClusterAuthenticationTrustController(info, client)
	c.ClientCA.AddListener(controller)
	if c.Proxies != nil {
		c.Proxies.CAContentProvider.AddListener(controller)
	}
	go survive.Run(ctx, "authentication of callers by aggregated servers", func(ctx context.Context) { controller.Run(ctx, 1) })
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, publishedWithin, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationInfo, metav1.GetOptions{})
		return err == nil, nil
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		klog.InfoS("The ConfigMap by which aggregated servers know callers cannot be written yet; will retry", "configMap", authenticationInfo)
	}
	return nil
}
