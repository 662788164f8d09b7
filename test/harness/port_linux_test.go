package harness

import (
	"net"
	"testing"
)

// A server can listen on a reserved port, stop, and listen again.
func TestAReservedPort(t *testing.T) {
	port, release, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for _, address := range []string{"127.0.0.1:", ":", "127.0.0.1:"} {
		l, err := net.Listen("tcp", address+port)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		l.Close()
	}
}
