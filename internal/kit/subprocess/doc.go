// Package subprocess runs programs that end together with their descendants: each has a process group of
// its own, and on Linux a supervisor, a process of this program, kills all of them when this process ends. The supervisor
// can also give a program files at paths that this machine does not have (Places).
package subprocess
