package vmtest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"glasshouse/vm/guest"
)

// door records what reaches it and answers by a function.
type door struct {
	answer func(claim guest.EgressClaim, conn io.ReadWriteCloser)

	mu     sync.Mutex
	claims []guest.EgressClaim
}

func (d *door) ServeEgress(_ context.Context, claim guest.EgressClaim, conn io.ReadWriteCloser) {
	defer closeQuietly(conn)
	d.mu.Lock()
	d.claims = append(d.claims, claim)
	d.mu.Unlock()
	d.answer(claim, conn)
}

func (d *door) seen() []guest.EgressClaim {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]guest.EgressClaim(nil), d.claims...)
}

// net: the door is the only way out, and what goes through it is not changed.
func (s *suite) net(t *testing.T) {
	s.sub(t, "raw", func(t *testing.T) {
		var got []byte
		d := &door{}
		d.answer = func(_ guest.EgressClaim, conn io.ReadWriteCloser) {
			b := make([]byte, 8)
			n, _ := io.ReadFull(conn, b)
			d.mu.Lock()
			got = append(got, b[:n]...)
			d.mu.Unlock()
			_, _ = conn.Write([]byte("\x00\xffanswer"))
		}
		g := s.openTo(t, s.work, d)
		id := unique("x")
		r := s.run(t, g, guest.ExecSpec{ID: id, Session: "s-raw", Step: "st-raw", Argv: []string{"python3", "-c",
			"import socket,sys\nc=socket.create_connection(('127.0.0.1',3128))\nc.sendall(b'\\xff\\x00\\n\\x80raw!')\nwhile True:\n  b=c.recv(100)\n  if not b: break\n  sys.stdout.buffer.write(b)"}})
		if r.out() != "\x00\xffanswer" || r.exit.Code != 0 {
			t.Errorf("inside: %v", r)
		}
		d.mu.Lock()
		if !bytes.Equal(got, []byte("\xff\x00\n\x80raw!")) {
			t.Errorf("outside: %q", got)
		}
		d.mu.Unlock()
		claims := d.seen()
		if len(claims) != 1 {
			t.Fatalf("claims: %+v", claims)
		}
		c := claims[0]
		if c.Exec != id || c.Session != "s-raw" || c.Step != "st-raw" || len(c.Argv) == 0 || !strings.Contains(c.Argv[0], "python3") || c.Browser {
			t.Errorf("claim: %+v", c)
		}
	})
	s.sub(t, "http", func(t *testing.T) {
		d := &door{}
		d.answer = func(_ guest.EgressClaim, conn io.ReadWriteCloser) {
			req, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				return
			}
			body := req.Method + " " + req.RequestURI
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: "+itoa(len(body))+"\r\n\r\n"+body)
		}
		g := s.openTo(t, s.work, d)
		// The environment points there already.
		if r := s.sh(t, g, "curl -sS http://example.test/path"); r.out() != "GET http://example.test/path" {
			t.Errorf("curl: %v", r)
		}
	})
	s.sub(t, "big", func(t *testing.T) {
		const size = 8 << 20
		d := &door{answer: func(_ guest.EgressClaim, conn io.ReadWriteCloser) {
			line := make([]byte, 4)
			if _, err := io.ReadFull(conn, line); err != nil {
				return
			}
			chunk := bytes.Repeat([]byte("0123456789abcdef"), 4096)
			for n := 0; n < size; n += len(chunk) {
				if _, err := conn.Write(chunk); err != nil {
					return
				}
			}
		}}
		g := s.openTo(t, s.work, d)
		r := s.sh(t, g, "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'go!\\n' >&3; cat <&3 | sha256sum")
		if want := sum(bytes.Repeat([]byte("0123456789abcdef"), size/16)); !strings.HasPrefix(r.out(), want) {
			t.Errorf("8 MiB through the door: %v", r)
		}
	})
	s.sub(t, "shut", func(t *testing.T) {
		g := s.open(t) // no handler
		if r := s.sh(t, g, "curl -sSf -m 20 http://example.test/ && echo got it"); strings.Contains(r.out(), "got it") || r.exit.Code == 0 {
			t.Errorf("without a gate: %v", r)
		}
	})
	s.sub(t, "outside", func(t *testing.T) {
		g := s.open(t)
		for _, to := range []string{"192.0.2.1/80", "1.1.1.1/53", "10.0.2.2/22", "192.168.5.2/22", "169.254.169.254/80"} {
			r := s.sh(t, g, "timeout 3 bash -c 'exec 3<>/dev/tcp/"+to+"' 2>&1 && echo connected")
			if strings.Contains(r.out(), "connected") {
				t.Errorf("%s: %v", to, r)
			}
		}
		r := s.run(t, g, guest.ExecSpec{Argv: []string{"python3", "-c", `
import socket
for fam, to in ((socket.AF_INET, ('192.0.2.1', 53)), (socket.AF_INET6, ('2001:db8::1', 53))):
    try:
        s = socket.socket(fam, socket.SOCK_DGRAM); s.connect(to); s.send(b'x'); print('sent', to)
    except OSError as e:
        print('no')
try:
    print('resolved', socket.getaddrinfo('example.com', 80))
except OSError as e:
    print('no')
`}})
		if strings.Contains(r.out(), "resolved") {
			t.Errorf("a name was resolved: %v", r)
		}
	})
	s.sub(t, "loopback", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer l.Close()
		hits := make(chan string, 10)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				hits <- c.RemoteAddr().String()
				_ = c.Close()
			}
		}()
		port := itoa(l.Addr().(*net.TCPAddr).Port)
		// The control: from outside it is reachable.
		c, err := net.Dial("tcp", l.Addr().String())
		must(t, err)
		_ = c.Close()
		<-hits
		g := s.open(t)
		for _, host := range []string{"127.0.0.1", "10.0.2.2", "192.168.5.2", "192.168.5.1", "192.168.104.2"} {
			s.sh(t, g, "timeout 2 bash -c 'exec 3<>/dev/tcp/"+host+"/"+port+"'")
		}
		select {
		case from := <-hits:
			t.Fatalf("the machine reached the host's loopback from %s", from)
		default:
		}
	})
}
