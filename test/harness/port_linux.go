package harness

import (
	"net"
	"strconv"
	"syscall"
)

// reservePort returns a port of this machine. Until release is called, the kernel gives it to no other process, even
// while no server listens on it: a bound socket keeps the port. A server may listen on it nevertheless, as both sockets
// allow reuse of the address.
func reservePort() (port string, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	release = func() { _ = syscall.Close(fd) }
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte(net.IPv4(127, 0, 0, 1).To4())})
	}
	var bound syscall.Sockaddr
	if err == nil {
		bound, err = syscall.Getsockname(fd)
	}
	if err != nil {
		release()
		return "", nil, err
	}
	return strconv.Itoa(bound.(*syscall.SockaddrInet4).Port), release, nil
}
