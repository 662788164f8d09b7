package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Token is the bearer token of the administrator, a member of system:masters.
const Token = "bench-admin-token"

// credentials are files that both servers use.
type credentials struct {
	ca                     []byte
	cert, key              string
	tokens, serviceAccount string
}

// newCredentials creates the files in dir, or uses the files of an earlier start.
func newCredentials(dir string) (*credentials, error) {
	c := &credentials{
		cert:           filepath.Join(dir, "tls.crt"),
		key:            filepath.Join(dir, "tls.key"),
		tokens:         filepath.Join(dir, "tokens.csv"),
		serviceAccount: filepath.Join(dir, "sa.key"),
	}
	if data, err := os.ReadFile(c.cert); err == nil {
		c.ca = data
		return c, nil
	}
	serving, servingKey, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	accounts, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	c.ca = serving
	for path, data := range map[string][]byte{
		c.key: servingKey, c.tokens: []byte(Token + `,admin,uid-admin,"system:masters"` + "\n"), c.serviceAccount: accounts, c.cert: serving,
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return nil, err
		}
	}
	return c, nil
}
