package server

import (
	"crypto"
	"fmt"

	"k8s.io/client-go/util/keyutil"
)

// issuer names this server in the tokens of service accounts, unless the options do.
const issuer = "https://kubernetes.default.svc.cluster.local"

// tokenKeys are what tokens of service accounts are signed and verified with.
type tokenKeys struct {
	// issuers are those of tokens that are accepted; the first one is that of new tokens.
	issuers []string
	signer  any
	public  []any
}

// tokenKeys reads the keys that the options name, or takes the server's own.
func (o *Options) tokenKeys(own crypto.Signer) (*tokenKeys, error) {
	k := &tokenKeys{issuers: o.ServiceAccountIssuers, signer: own}
	if len(k.issuers) == 0 {
		k.issuers = []string{issuer}
	}
	if o.ServiceAccountSigningKeyFile != "" {
		var err error
		if k.signer, err = keyutil.PrivateKeyFromFile(o.ServiceAccountSigningKeyFile); err != nil {
			return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
		}
	}
	signer, ok := k.signer.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("--service-account-signing-key-file: a %T cannot sign tokens", k.signer)
	}
	k.public = []any{signer.Public()}
	for _, file := range o.ServiceAccountKeyFiles {
		keys, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("--service-account-key-file: %w", err)
		}
		k.public = append(k.public, keys...)
	}
	return k, nil
}
