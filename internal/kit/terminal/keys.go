package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// Keys reads keys from the controlling terminal of this process, whatever its standard input is. Keys
// arrive one by one, without an end of line, and are not echoed.
type Keys struct {
	file *os.File
	was  unix.Termios
	// C receives the keys. It is closed by End.
	C             chan byte
	stop, stopped chan struct{}
}

// keysEvery bounds one wait for a key, in milliseconds.
const keysEvery = 200

// NewKeys begins to read keys. It returns nil if there is no terminal, or if another process group is in
// the foreground.
func NewKeys() *Keys {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	fd := int(f.Fd())
	front, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	was, failure := unix.IoctlGetTermios(fd, getTermios)
	if err != nil || failure != nil || front != unix.Getpgrp() {
		f.Close()
		return nil
	}
	now := *was
	now.Lflag &^= unix.ICANON | unix.ECHO
	if unix.IoctlSetTermios(fd, setTermios, &now) != nil {
		f.Close()
		return nil
	}
	k := &Keys{file: f, was: *was, C: make(chan byte), stop: make(chan struct{}), stopped: make(chan struct{})}
	go k.read(fd)
	return k
}

// File returns the terminal.
func (k *Keys) File() *os.File { return k.file }

func (k *Keys) read(fd int) {
	defer close(k.stopped)
	defer close(k.C)
	key := make([]byte, 1)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, keysEvery)
		select {
		case <-k.stop:
			return
		default:
		}
		if err != nil || n == 0 {
			// A timeout, or a signal.
			continue
		}
		if n, err = unix.Read(fd, key); err != nil || n == 0 {
			return
		}
		select {
		case <-k.stop:
			return
		case k.C <- key[0]:
		}
	}
}

// End restores the terminal.
func (k *Keys) End() {
	if k == nil {
		return
	}
	close(k.stop)
	<-k.stopped
	_ = unix.IoctlSetTermios(int(k.file.Fd()), setTermios, &k.was)
	k.file.Close()
}
