package params

import "time"

// WithMaxAge returns options with which a read serves requests until it is older than age.
func WithMaxAge(o Options, age time.Duration) Options {
	o.maxAge = age
	return o
}
