package openapi

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/munnerz/goautoneg"
)

// document is one OpenAPI document, built once, on the first request.
type document struct {
	// build returns its JSON.
	build func() ([]byte, error)

	mu struct {
		sync.Mutex
		content
		// packed is the JSON, compressed, once the document is built: all documents
		// together have more than 10 MB, which few clients ask for twice.
		packed []byte
		// readers counts the requests that have the JSON in memory now, and share it.
		readers int
	}
}

// content is the content of a document.
type content struct {
	// json is nil while no request reads it.
	json []byte
	// etag is the hash of the JSON, size its length in bytes.
	etag string
	size int
	// since is when the document was built.
	since time.Time
}

// load returns the document's content until release is called. It builds the document
// the first time.
func (d *document) load() (c content, release func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.mu.packed == nil:
		err = d.first()
	case d.mu.readers == 0:
		err = d.unpack()
	}
	if err != nil {
		return content{}, nil, err
	}
	d.mu.readers++
	return d.mu.content, sync.OnceFunc(d.release), nil
}

func (d *document) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.readers--; d.mu.readers == 0 {
		d.mu.json = nil
	}
}

// unpack decompresses the JSON; mu is held.
func (d *document) unpack() error {
	text := bytes.NewBuffer(make([]byte, 0, d.mu.size+bytes.MinRead))
	if _, err := text.ReadFrom(flate.NewReader(bytes.NewReader(d.mu.packed))); err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	d.mu.json = text.Bytes()
	return nil
}

// first builds the document for the first time; mu is held.
func (d *document) first() error {
	text, err := d.build()
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	d.mu.content = content{json: text, etag: hex.EncodeToString(sum[:]), size: len(text), since: time.Now()}
	d.mu.packed = bytes.Clone(packed.Bytes())
	return nil
}

// hash returns the document's ETag, and builds the document only if it was never built.
func (d *document) hash() (string, error) {
	if etag := d.etag(); etag != "" {
		return etag, nil
	}
	c, release, err := d.load()
	if err != nil {
		return "", err
	}
	release()
	return c.etag, nil
}

// etag returns the document's ETag, empty if it was never built.
func (d *document) etag() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.etag
}

// protobuf configures how a version of OpenAPI is written in protobuf.
type protobuf struct {
	// mediaType is the media type of answers; clients may also ask for old.
	mediaType, old string
	// only means that JSON is not offered, and that the Accept header of the client is ignored.
	only   bool
	encode func(json []byte) ([]byte, error)
}

const typeJSON = "application/json"

// negotiate returns the media type of the response, empty if the client accepts none of the offered
// types.
func (p protobuf) negotiate(accept string) string {
	if p.only {
		return p.mediaType
	}
	if accept == "" {
		return typeJSON
	}
	switch goautoneg.Negotiate(accept, []string{typeJSON, p.mediaType, p.old}) {
	case typeJSON:
		return typeJSON
	case p.mediaType, p.old:
		return p.mediaType
	}
	return ""
}

// serve writes the document in a form that the client accepts, or 304 if the client has it already.
// A request for a document with another hash is redirected to the current document: location
// returns its URL for an ETag, and is nil for documents whose URLs have no hash.
func (d *document) serve(w http.ResponseWriter, req *http.Request, p protobuf, location func(string) string) error {
	mediaType := p.negotiate(req.Header.Get("Accept"))
	header := w.Header()
	header.Add("Vary", "Accept")
	if mediaType == "" {
		w.WriteHeader(http.StatusNotAcceptable)
		return nil
	}
	wanted := ""
	if location != nil {
		wanted = req.URL.Query().Get("hash")
	}
	etag, err := d.hash()
	if err != nil {
		return err
	}
	if wanted == "" || wanted == etag {
		if quoted := strconv.Quote(etag); req.Header.Get("If-None-Match") == quoted {
			header.Set("ETag", quoted)
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
		c, release, err := d.load()
		if err != nil {
			return err
		}
		defer release()
		return c.write(w, req, p, mediaType, wanted != "")
	}
	// A permanent redirect could be followed in circles when a document changes
	// back.
	header.Set("Cache-Control", "no-store")
	http.Redirect(w, req, location(etag), http.StatusFound)
	return nil
}

// write sends the content, which never changes at a permanent URL.
func (c content) write(w http.ResponseWriter, req *http.Request, p protobuf, mediaType string, permanent bool) error {
	data := c.json
	if mediaType == p.mediaType {
		var err error
		if data, err = p.encode(data); err != nil {
			return err
		}
	}
	header := w.Header()
	header.Set("ETag", strconv.Quote(c.etag))
	header.Set("Content-Type", mediaType)
	if permanent {
		header.Set("Cache-Control", "public, immutable")
		header.Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	http.ServeContent(w, req, "", c.since, bytes.NewReader(data))
	return nil
}
