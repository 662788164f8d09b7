package crdschema

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"
)

// The limits of schemas that are fetched.
const (
	maxSchema    = 8 << 20
	maxFetches   = 300
	maxRedirects = 5
	fetchTimeout = 15 * time.Second
	// fetchesTimeout bounds all fetches of a command together.
	fetchesTimeout = 90 * time.Second
)

// fetcher fetches schemas by HTTP.
type fetcher struct {
	// named connects to the hosts of the command line, and redirected to hosts that an answer names.
	named, redirected *http.Client
	fetched           int
	until             time.Time
}

func newFetcher() *fetcher {
	client := func(control func(network, address string, c syscall.RawConn) error, proxy func(*http.Request) (*url.URL, error)) *http.Client {
		return &http.Client{
			Timeout:       fetchTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				Proxy:                  proxy,
				DialContext:            (&net.Dialer{Timeout: fetchTimeout, Control: control}).DialContext,
				TLSHandshakeTimeout:    fetchTimeout,
				ResponseHeaderTimeout:  fetchTimeout,
				MaxResponseHeaderBytes: 64 << 10,
				ForceAttemptHTTP2:      true,
			},
		}
	}
	return &fetcher{named: client(nil, http.ProxyFromEnvironment), redirected: client(onlyPublic, nil)}
}

// errPrivate is the error of a redirect to an address that is not public.
var errPrivate = errors.New("a redirect to an address that is not public is not followed")

// onlyPublic is the Control of a dialer that connects to public addresses only. It sees the address after its name has
// been resolved.
func onlyPublic(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !public(at.Addr()) {
		return errPrivate
	}
	return nil
}

// reserved are the ranges that netip.Addr has no method for: shared, for protocols, for tests, and for later use; and the
// IPv6 ranges that embed IPv4 addresses.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("fec0::/10"),
}

// public reports whether an address belongs to the public internet.
func public(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsGlobalUnicast() && !a.IsPrivate() && !slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(a) })
}

// get fetches a document. The error is fs.ErrNotExist if the server does not have it.
func (f *fetcher) get(ctx context.Context, address string) ([]byte, error) {
	if f.until.IsZero() {
		f.until = time.Now().Add(fetchesTimeout)
	}
	ctx, cancel := context.WithDeadlineCause(ctx, f.until, fmt.Errorf("the schemas took more than %s", fetchesTimeout))
	defer cancel()
	at, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the address of a schema is not a URL")
	}
	first := at
	for range maxRedirects + 1 {
		if f.fetched++; f.fetched > maxFetches {
			return nil, fmt.Errorf("more than %d fetches of schemas", maxFetches)
		}
		if at.Scheme != "https" && at.Scheme != "http" || at.Host == "" || first.Scheme == "https" && at.Scheme != "https" {
			return nil, fmt.Errorf("%s: a schema is fetched by https, or by http if the location says so", at.Redacted())
		}
		data, next, err := f.request(ctx, at, at.Host == first.Host)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at.Redacted(), plainError(ctx, err))
		}
		if next == nil {
			return data, nil
		}
		at = next
	}
	return nil, fmt.Errorf("%s: more than %d redirects", first.Redacted(), maxRedirects)
}

// plainError returns an error without the URL, which may have a password.
func plainError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

// request makes one request. next is the target of a redirect.
func (f *fetcher) request(ctx context.Context, at *url.URL, named bool) (data []byte, next *url.URL, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("User-Agent", "gatehouse")
	client := f.redirected
	if named {
		client = f.named
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotFound:
		return nil, nil, fs.ErrNotExist
	case response.StatusCode >= 300 && response.StatusCode < 400 && response.Header.Get("Location") != "":
		next, err := at.Parse(response.Header.Get("Location"))
		if err == nil && next.User != nil {
			err = errors.New("a redirect with credentials is not followed")
		}
		return nil, next, err
	case response.StatusCode != http.StatusOK:
		return nil, nil, fmt.Errorf("the server answered %d", response.StatusCode)
	}
	data, err = io.ReadAll(io.LimitReader(response.Body, maxSchema+1))
	if err == nil && len(data) > maxSchema {
		err = fmt.Errorf("more than %d MiB", maxSchema>>20)
	}
	return data, nil, err
}
