// Package problems finds problems of registrations. The writer of a registration gets them as
// warnings, and every reader of its RegistrationState sees them there.
package problems
