// Package subprocess runs programs that end together with their descendants: each has a process group of
// its own, and on Linux the kernel ends the program when this process is killed.
package subprocess
