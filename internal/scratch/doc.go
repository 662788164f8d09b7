// Package scratch keeps temporary directories that do not outlive their owner.
//
// A directory is locked while the process that has it lives; the kernel gives the lock
// free however the process ends. The next process that makes or takes
// a directory removes the directories of killed processes.
package scratch
