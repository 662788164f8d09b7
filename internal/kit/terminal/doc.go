// Package terminal prints for people: text of other authors is safe, tables fit the terminal, and
// important parts have a colour.
//
// Names of files and objects, responses of webhooks and messages of policies come from authors who
// must not move the cursor of a reader, hide or reorder text, or send commands to the program that
// runs a job: code hosts treat some lines of a job's output as commands. A Writer makes such
// characters visible. Output for programs, such as JSON, bypasses it.
package terminal
