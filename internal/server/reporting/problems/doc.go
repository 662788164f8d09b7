// Package problems says what is wrong with a registration: to its writer as warnings, and to
// everybody in its RegistrationState.
package problems
