package command

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/internal/kit/datalock"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/program"
)

// defaultDataDir is the default data directory of serve.
const defaultDataDir = "./gatehouse.data"

// DataDirVariable is the environment variable that changes the default data directory.
const DataDirVariable = "GATEHOUSE_DATA_DIR"

// DataDir is the data directory without a flag.
func DataDir() string {
	if dir := os.Getenv(DataDirVariable); dir != "" {
		return dir
	}
	return defaultDataDir
}

// DefaultKubeconfig makes the server's kubeconfig the default by setting KUBECONFIG, unless KUBECONFIG is set.
// It returns an error for kubectl to print if no kubeconfig names a server; nil otherwise. A program that is
// started as kubectl keeps the behavior of kubectl.
//
// A kubeconfig from the default data directory in the working directory is used only while it belongs to a
// running server of this user. Otherwise no kubeconfig is used, not even the one in the home directory, since
// its server is not the server of this folder.
func DefaultKubeconfig() error {
	chosen := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	if chosen != "" && chosen != os.DevNull || IsPlugin() || ProgramName == program.Kubectl {
		return nil
	}
	path := filepath.Join(DataDir(), "admin.kubeconfig")
	named := os.Getenv(DataDirVariable) != ""
	_, err := os.Stat(path)
	if err == nil && !named {
		if strange := ownServer(path); strange != nil {
			// A later call sees the empty kubeconfig and returns the reason again.
			os.Setenv(clientcmd.RecommendedConfigPathEnvVar, os.DevNull)
			return fmt.Errorf("%s is not used: %w. Start a server here with 'gatehouse serve', or name a kubeconfig with --kubeconfig or $KUBECONFIG", path, strange)
		}
	}
	if chosen != "" {
		return nil
	}
	if err == nil {
		os.Setenv(clientcmd.RecommendedConfigPathEnvVar, path)
		return nil
	}
	if named {
		// A user who names a server must not reach another one.
		os.Setenv(clientcmd.RecommendedConfigPathEnvVar, path)
		return fmt.Errorf("no kubeconfig of a running server: %s is %q, and %w", DataDirVariable, os.Getenv(DataDirVariable), err)
	}
	if _, err := os.Stat(clientcmd.RecommendedHomeFile); err == nil {
		return nil
	}
	return fmt.Errorf("no kubeconfig: neither %s nor %s exists. Start a server here with 'gatehouse serve', or name a kubeconfig with --kubeconfig or $KUBECONFIG", path, clientcmd.RecommendedHomeFile)
}

// ownServer returns an error unless the kubeconfig next to a data directory belongs to a running server of this
// user. A folder from elsewhere may contain a kubeconfig that runs a program, reads files or sends the data of
// commands to another server.
func ownServer(path string) error {
	url, err := datalock.Serving(filepath.Join(filepath.Dir(path), "etcd"))
	if err != nil {
		return err
	}
	data, err := files.ReadFound(path, files.Configuration)
	if err != nil {
		return err
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return err
	}
	for name, c := range config.Clusters {
		embedded := &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: c.CertificateAuthorityData, Extensions: c.Extensions}
		if len(c.CertificateAuthorityData) == 0 || !reflect.DeepEqual(c, embedded) {
			return fmt.Errorf("the cluster %q in it is more than the address of the server that runs, %s, and an embedded certificate", name, url)
		}
	}
	for name, u := range config.AuthInfos {
		embedded := &clientcmdapi.AuthInfo{ClientCertificateData: u.ClientCertificateData, ClientKeyData: u.ClientKeyData, Extensions: u.Extensions}
		if !reflect.DeepEqual(u, embedded) {
			return fmt.Errorf("the user %q in it has more than an embedded certificate", name)
		}
	}
	return nil
}

// UnnamedServer is kubectl's default server without a kubeconfig.
const UnnamedServer = "http://localhost:8080"
