// Package terminal prints for people: text that others wrote is safe, tables fit the terminal, and
// what matters has a colour.
//
// Names of files and objects, answers of webhooks and messages of policies come from people who
// must not move the cursor of a reader, hide or reorder text, or give orders to the program that
// runs a job: code hosts take some lines of a job's output for commands. A Writer shows such
// characters instead of sending them. Output for programs, such as JSON, does not go through it.
package terminal
