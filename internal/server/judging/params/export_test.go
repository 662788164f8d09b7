package params

import "time"

// WithMaxAge returns options by which a read serves requests for longer, or less long.
func WithMaxAge(o Options, age time.Duration) Options {
	o.maxAge = age
	return o
}
