package encryption

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/datadir"
)

// OwnFile is the EncryptionConfiguration in a data directory, which AddKey writes. A server with
// an embedded etcd uses it unless a flag names another file.
func OwnFile(dataDir string) string { return filepath.Join(dataDir, "encryption", "config.yaml") }

// OwnProvider is the provider of the keys in a data directory.
const OwnProvider = "secretbox"

// keyBytes is the length of a key of secretbox.
const keyBytes = 32

// ownKeys reads the keys of the configuration in a data directory, the encrypting key first. It
// returns nil when there is no file.
func ownKeys(dataDir string) ([]apiserverv1.Key, error) {
	file := OwnFile(dataDir)
	data, err := files.Read(file, files.Configuration)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := &apiserverv1.EncryptionConfiguration{}
	if err := yaml.UnmarshalStrict(data, c); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(c.Resources) != 1 || !slices.Equal(c.Resources[0].Resources, []string{Secrets.String()}) || len(c.Resources[0].Providers) != 2 ||
		c.Resources[0].Providers[0].Secretbox == nil || c.Resources[0].Providers[1].Identity == nil {
		return nil, fmt.Errorf("%s is not as 'gatehouse secrets-encryption' writes it: move it elsewhere, and name it by --encryption-provider-config", file)
	}
	return c.Resources[0].Providers[0].Secretbox.Keys, nil
}

// KeyNames lists the names of the keys in a data directory, the encrypting key first.
func KeyNames(dataDir string) ([]string, error) {
	own, err := ownKeys(dataDir)
	var names []string
	for _, key := range own {
		names = append(names, key.Name)
	}
	return names, err
}

// AddKey makes a new key in a data directory, which encrypts from the next Reload on, and returns
// its name. The previous key and the needed keys stay, to read the values that they encrypted.
func AddKey(dataDir string, now time.Time, needed func(name string) bool) (string, error) {
	before, err := ownKeys(dataDir)
	if err != nil {
		return "", err
	}
	secret := make([]byte, keyBytes)
	rand.Read(secret)
	own := []apiserverv1.Key{{Name: "key-" + now.UTC().Format("20060102T150405.000Z"), Secret: base64.StdEncoding.EncodeToString(secret)}}
	for i, key := range before {
		if i == 0 || needed(key.Name) {
			own = append(own, key)
		}
	}
	text, err := yaml.Marshal(&apiserverv1.EncryptionConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: apiserverv1.SchemeGroupVersion.String(), Kind: "EncryptionConfiguration"},
		Resources: []apiserverv1.ResourceConfiguration{{
			Resources: []string{Secrets.String()},
			Providers: []apiserverv1.ProviderConfiguration{{Secretbox: &apiserverv1.SecretboxConfiguration{Keys: own}}, {Identity: &apiserverv1.IdentityConfiguration{}}},
		}},
	})
	if err != nil {
		return "", err
	}
	file := OwnFile(dataDir)
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := datadir.MarkEncrypted(keys.Files{}, dataDir); err != nil {
		return "", err
	}
	if err := files.Replace(file, text, 0o600, true); err != nil {
		return "", err
	}
	// If a crash of the machine lost the key, all Secrets would be lost.
	if err := errors.Join(datadir.Own(dataDir, dir, filepath.Join(dataDir, "FORMAT")), datadir.Sync(dir), datadir.Sync(dataDir)); err != nil {
		return "", err
	}
	return own[0].Name, nil
}

// Lock keeps other processes from changing the keys in a data directory until unlock is called.
func Lock(dataDir string) (unlock func(), err error) {
	dir, err := os.Open(dataDir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		dir.Close()
		return nil, fmt.Errorf("another process changes the keys in %s: wait for its end", dataDir)
	}
	return func() { dir.Close() }, nil
}
