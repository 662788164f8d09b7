package openapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"sync"
	"time"
	"weak"

	"github.com/munnerz/goautoneg"
)

// document is one OpenAPI document, built when it is asked for.
type document struct {
	// build returns its JSON.
	build func() ([]byte, error)

	mu struct {
		sync.Mutex
		content
		// text is the JSON for as long as it is in memory.
		text weak.Pointer[[]byte]
	}
}

// content is what a document says.
type content struct {
	json []byte
	// etag is the hash of the JSON.
	etag string
	// since is when the document was first built with this etag.
	since time.Time
}

// load returns the document's content, and builds it if it is not in memory.
func (d *document) load() (content, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.mu.content
	if text := d.mu.text.Value(); text != nil {
		c.json = *text
		return c, nil
	}
	text, err := d.build()
	if err != nil {
		return content{}, err
	}
	sum := sha256.Sum256(text)
	if etag := hex.EncodeToString(sum[:]); etag != c.etag {
		c = content{etag: etag, since: time.Now()}
	}
	d.mu.content, d.mu.text = c, weak.Make(&text)
	c.json = text
	return c, nil
}

// hash returns the document's ETag, and builds the document only if that was
// never done.
func (d *document) hash() (string, error) {
	if etag := d.known(); etag != "" {
		return etag, nil
	}
	c, err := d.load()
	return c.etag, err
}

// known returns the document's ETag, empty if it was never built.
func (d *document) known() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.etag
}

// protobuf is how a version of OpenAPI is written in protobuf.
type protobuf struct {
	// mediaType is what answers are labelled with; old is accepted as well.
	mediaType, old string
	// only says that JSON is not offered, and that what the client accepts does
	// not matter.
	only   bool
	encode func(json []byte) ([]byte, error)
}

const typeJSON = "application/json"

// negotiate returns the media type to answer with, empty if none of those that
// the client accepts is offered.
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

// serve writes the document in a form that the client accepts, or says that the
// client has it already. If the client wants one with another hash it is sent to
// where the current one is: location says so for an ETag, and is nil for
// documents whose URLs have no hash.
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
		c, err := d.load()
		if err != nil {
			return err
		}
		// What was built now may be newer than what the hash was of.
		if etag = c.etag; wanted == "" || wanted == etag {
			return c.write(w, req, p, mediaType, wanted != "")
		}
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
