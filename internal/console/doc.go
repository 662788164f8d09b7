// Package console is a page in the browser that shows what judges requests, and what happened to
// them.
//
// Handler serves the page: static files, which need no credentials and hold no data, and views. The
// page names what it wants to see, and a view reads that from the ordinary API, with the credentials of
// the request that asks for it. The package adds no right, and has no second source of what is true. It
// draws what the API answers by the templates of package view, which the commands use for their pages,
// too. The list of requests is live: the page reads it from the API itself, and writes it as text.
// Gate serves the page on the machine of a viewer, in front of any cluster.
//
// # What others wrote
//
// The templates escape it. The Content-Security-Policy of the page forbids all scripts, styles and
// addresses but those of the server, and Trusted Types let one function of the page, and no other,
// add HTML: that which puts a drawing in its place.
//
// # Bounds
//
// What is asked, what is read for it, the drawing and the time are bounded, and so is how many views
// are drawn at once. Nothing is read or drawn for a client before the API has answered that client.
// Nothing is parsed, allocated or started before the first viewer comes.
package console
