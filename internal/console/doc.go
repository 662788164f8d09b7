// Package console is a page in the browser that shows what judges requests, and what happened to
// them.
//
// Files serves the page: static files, which need no credentials and hold no data. The page asks the
// ordinary API for everything that it shows, with the credentials of the viewer. The package adds
// no right, and has no second source of what is true.
//
// Drawing makes HTML of what the page has read, by the templates of package pages, which the commands
// use for their pages, too. It is a function of what it is sent, and reads nothing: a viewer gets
// back, as a picture, only what the viewer sent. Its callers are authenticated, so that no stranger
// has the server work.
//
// # What others wrote
//
// The templates escape it. The Content-Security-Policy of the page forbids all scripts, styles and
// addresses but those of the server, and Trusted Types let one function of the page, and no other,
// add HTML: that which puts a drawing in its place.
//
// # Bounds
//
// A drawing takes at most MaxBody bytes, and its rules of lint a second. Nothing is parsed, allocated
// or started before the first viewer comes.
package console
