// Package sessions runs scripts of whole sessions with the program: what a user types, and what the terminal shows.
package sessions
