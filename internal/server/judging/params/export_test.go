package params

import "time"

// WithMaxAge returns options with which a read serves requests for the time of age.
func WithMaxAge(o Options, age time.Duration) Options {
	o.maxAge = age
	return o
}
