package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery"
	galleryv1 "github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery/v1"
	"github.com/gatehouse-dev/gatehouse/initialization"
)

// Options are the flags of the program.
type Options struct {
	// MainKubeconfig is a kubeconfig of the main server, which has the webhooks, policies and namespaces, and
	// authenticates and authorizes callers.
	MainKubeconfig string
	// Strict makes each request use the webhooks and policies that the main server has when the request
	// arrives. Without it they may be up to a second old.
	Strict bool
	// BindAddress and SecurePort are the address to listen on; port 0 means any free port.
	BindAddress string
	SecurePort  int
	// DataDir has the serving certificate and, unless EtcdServers are given, the data of an etcd.
	DataDir     string
	EtcdServers []string
}

// shutdownTimeout limits the time for the last requests during a shutdown.
const shutdownTimeout = 2 * time.Second

// Run serves until ctx ends. It calls ready with its URL once it can admit requests. Until the main server
// accepts the announcement of this server, /readyz fails and requests that need admission get 503.
func Run(ctx context.Context, o Options, ready func(url string)) error {
	if o.MainKubeconfig == "" {
		return errors.New("--main-kubeconfig must not be empty")
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	mainConfig, err := clientcmd.BuildConfigFromFlags("", o.MainKubeconfig)
	if err != nil {
		return fmt.Errorf("--main-kubeconfig: %w", err)
	}
	main, err := kubernetes.NewForConfig(mainConfig)
	if err != nil {
		return fmt.Errorf("--main-kubeconfig: %w", err)
	}
	watched := informers.NewSharedInformerFactory(main, 0)
	if len(o.EtcdServers) == 0 {
		endpoint, closeEtcd, err := startEtcd(ctx, filepath.Join(o.DataDir, "etcd"))
		if err != nil {
			return err
		}
		defer closeEtcd()
		o.EtcdServers = []string{endpoint}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(o.BindAddress, strconv.Itoa(o.SecurePort)))
	if err != nil {
		return err
	}
	defer listener.Close()

	config, err := o.config(listener)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(mainConfig)
	if err != nil {
		return fmt.Errorf("--main-kubeconfig: %w", err)
	}
	schemas, err := newSchemas(config.OpenAPIV3Config)
	if err != nil {
		return fmt.Errorf("schemas: %w", err)
	}
	judge, err := newJudge(judgeParts{
		main: main, watched: watched, authorize: config.Authorization.Authorizer,
		params:  params{client: objects, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(main.Discovery()))},
		schemas: schemas,
		name:    "gallery-" + strings.ToLower(rand.Text()[:8]), address: "https://" + listener.Addr().String(),
		strict: o.Strict,
	})
	if err != nil {
		return err
	}
	defer judge.engine.Close()
	config.AdmissionControl = judge.chain
	judge.initialize(config)
	context.AfterFunc(ctx, judge.initialization.Release)
	config.AddReadyzChecks(judge.ready())
	server, err := config.Complete(watched).New("gallery", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return err
	}
	// Watches do not end by themselves, and the garbage collector of the main server keeps some open.
	server.ShutdownTimeout = shutdownTimeout
	if err := install(server, config); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- judge.run(ctx) }()
	defer func() { stop(); <-ended; watched.Shutdown() }()
	err = server.AddPostStartHook("ready", func(hook genericapiserver.PostStartHookContext) error {
		// The hook returns at once, so that a server that waits for the main server is alive.
		go func() {
			if judge.awaitReady(hook) == nil {
				ready("https://" + listener.Addr().String())
			}
		}()
		return nil
	})
	if err != nil {
		return err
	}
	return server.PrepareRun().RunWithContext(ctx)
}

// config returns the configuration of k8s.io/apiserver.
func (o *Options) config(listener net.Listener) (*genericapiserver.Config, error) {
	config := genericapiserver.NewConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	namer := openapi.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	config.OpenAPIConfig.Info.Title, config.OpenAPIV3Config.Info.Title = "Gallery", "Gallery"

	serving := genericoptions.NewSecureServingOptions()
	serving.Listener, serving.BindPort = listener, listener.Addr().(*net.TCPAddr).Port
	serving.ServerCert.CertDirectory, serving.ServerCert.PairName = o.DataDir, "serving"
	if err := serving.MaybeDefaultWithSelfSignedCerts("localhost", []string{"api.gallery.svc"}, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	if err := serving.WithLoopback().ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return nil, fmt.Errorf("serving: %w", err)
	}

	// The main server authenticates and authorizes callers. A ConfigMap there has the CAs of its own
	// certificate and of client certificates.
	authentication := genericoptions.NewDelegatingAuthenticationOptions()
	authentication.RemoteKubeConfigFile = o.MainKubeconfig
	if err := authentication.ApplyTo(&config.Authentication, config.SecureServing, config.OpenAPIConfig); err != nil {
		return nil, fmt.Errorf("authentication: %w", err)
	}
	authorization := genericoptions.NewDelegatingAuthorizationOptions()
	authorization.RemoteKubeConfigFile = o.MainKubeconfig
	if err := authorization.ApplyTo(&config.Authorization); err != nil {
		return nil, fmt.Errorf("authorization: %w", err)
	}

	etcd := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry/"+gallery.GroupName, codecs.LegacyCodec(galleryv1.SchemeGroupVersion)))
	etcd.StorageConfig.EncodeVersioner = runtime.NewMultiGroupVersioner(galleryv1.SchemeGroupVersion, schema.GroupKind{Group: gallery.GroupName})
	etcd.StorageConfig.Transport.ServerList = o.EtcdServers
	if err := etcd.ApplyTo(config); err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return config, nil
}

// install serves the group in both versions, which share one store.
func install(server *genericapiserver.GenericAPIServer, config *genericapiserver.Config) error {
	paintings, err := newPaintings(config.RESTOptionsGetter)
	if err != nil {
		return err
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(gallery.GroupName, scheme, metav1.ParameterCodec, codecs)
	group.NegotiatedSerializer = initialization.NewCodec(codecs)
	for _, version := range []string{"v1", "v1beta1"} {
		group.VersionedResourcesStorageMap[version] = map[string]rest.Storage{"paintings": paintings}
	}
	return server.InstallAPIGroup(&group)
}
