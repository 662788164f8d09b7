package webhookservices

import (
	"context"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/admission/call"
)

// S8.21: a service resolves to its configured address, whatever endpoints are stored.
func TestServiceAddresses(t *testing.T) {
	addresses, err := ParseAddresses([]string{"shop/check=127.0.0.1:9443", "shop/check:8443=[::1]:9444", "shop/other:443=hooks.example.com:1"})
	if err != nil {
		t.Fatal(err)
	}
	resolver := addresses.Before(call.ResolverFunc(func(context.Context, string, string, int32) ([]string, error) {
		return []string{"stored"}, nil
	}))
	for _, tc := range []struct {
		namespace, name string
		port            int32
		want            string
	}{
		{"shop", "check", 443, "127.0.0.1:9443"},
		{"shop", "check", 0, "127.0.0.1:9443"},
		{"shop", "check", 8443, "[::1]:9444"},
		{"shop", "other", 443, "hooks.example.com:1"},
		{"shop", "other", 0, "hooks.example.com:1"},
		{"shop", "other", 444, "stored"},
		{"other", "check", 443, "stored"},
	} {
		got, err := resolver.Resolve(t.Context(), tc.namespace, tc.name, tc.port)
		if err != nil || len(got) != 1 || got[0] != tc.want {
			t.Errorf("%s/%s:%d: got %v, %v, want %s", tc.namespace, tc.name, tc.port, got, err, tc.want)
		}
	}
}

func TestServiceAddressesThatMeanNothing(t *testing.T) {
	for entry, want := range map[string]string{
		"shop/check":                 "there is no =",
		"check=127.0.0.1:1":          `"check" names no namespace`,
		"Shop/check=127.0.0.1:1":     `namespace "Shop"`,
		"shop/1=127.0.0.1:1":         `service "1"`,
		"shop/check:0=127.0.0.1:1":   `port "0" is not a number from 1 to 65535`,
		"shop/check=127.0.0.1":       "missing port in address",
		"shop/check=:1":              "has no host",
		"shop/check=127.0.0.1:70000": `port "70000" is not a number`,
	} {
		_, err := ParseAddresses([]string{entry})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "--service-address") {
			t.Errorf("%s: got %v, want %s", entry, err, want)
		}
	}
	if _, err := ParseAddresses([]string{"a/b=c:1", "a/b=d:1"}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("twice: %v", err)
	}
}
