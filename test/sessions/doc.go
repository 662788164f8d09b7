// Package sessions runs scripts of whole sessions with the program: commands, their output and their exit codes.
package sessions
