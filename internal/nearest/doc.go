// Package nearest finds the name that somebody meant who made a typing error.
package nearest
