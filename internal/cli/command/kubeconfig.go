package command

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/internal/files"
	"github.com/gatehouse-dev/gatehouse/internal/program"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// defaultDataDir is where serve writes unless told otherwise.
const defaultDataDir = "./gatehouse.data"

// DataDirVariable names the environment variable with another default.
const DataDirVariable = "GATEHOUSE_DATA_DIR"

// DataDir is the data directory when no flag names one.
func DataDir() string {
	if dir := os.Getenv(DataDirVariable); dir != "" {
		return dir
	}
	return defaultDataDir
}

// DefaultKubeconfig makes the server's kubeconfig the default one by setting
// KUBECONFIG, unless it is set. It returns what to say when kubectl is about to
// use a server that no kubeconfig names, nil if it may. A user who calls this program kubectl
// expects what any kubectl does.
//
// A kubeconfig that no flag or variable names, and that lies in the working directory, is used while it is the
// one of a server of this user only. Otherwise no kubeconfig is used, and not that of the home
// directory: its server is another one than the folder names.
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
			// The next call sees that, and says why again.
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
		// Somebody who names a server must not reach another one.
		os.Setenv(clientcmd.RecommendedConfigPathEnvVar, path)
		return fmt.Errorf("no kubeconfig of a running server: %s is %q, and %w", DataDirVariable, os.Getenv(DataDirVariable), err)
	}
	if _, err := os.Stat(clientcmd.RecommendedHomeFile); err == nil {
		return nil
	}
	return fmt.Errorf("no kubeconfig: neither %s nor %s exists. Start a server here with 'gatehouse serve', or name a kubeconfig with --kubeconfig or $KUBECONFIG", path, clientcmd.RecommendedHomeFile)
}

// ownServer says why a kubeconfig next to a data directory is not that of a server of this user which
// runs; nil if it is. A folder from elsewhere may have any file: one that runs a program, reads files or
// sends what commands read to another server.
func ownServer(path string) error {
	url, err := etcd.Serving(filepath.Join(filepath.Dir(path), "etcd"))
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

// UnnamedServer is what kubectl tries when no kubeconfig names a server.
const UnnamedServer = "http://localhost:8080"
