package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// Keys are the keys of the terminal that this process runs in, whatever its standard input is. They come
// one by one, without an end of a line, and are not shown.
type Keys struct {
	file *os.File
	was  unix.Termios
	// C has the keys. It is closed by End.
	C             chan byte
	stop, stopped chan struct{}
}

// keysEvery is how long one wait for a key takes at most, in milliseconds.
const keysEvery = 200

// NewKeys begins to read keys. It returns nil if there is no terminal, or if another process group has it.
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

// File is the terminal.
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
			// The time is over, or a signal came.
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

// End gives the terminal back as it was.
func (k *Keys) End() {
	if k == nil {
		return
	}
	close(k.stop)
	<-k.stopped
	_ = unix.IoctlSetTermios(int(k.file.Fd()), setTermios, &k.was)
	k.file.Close()
}
