package desktop

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// aDesktop is a notification service on a session bus of the test's own.
type aDesktop struct {
	conn  *dbus.Conn
	can   []string
	calls chan []any
}

func (d *aDesktop) GetCapabilities() ([]string, *dbus.Error) { return d.can, nil }
func (d *aDesktop) Notify(app string, replaces uint32, icon, title, body string, actions []string, hints map[string]dbus.Variant, expire int32) (uint32, *dbus.Error) {
	d.calls <- []any{"notify", replaces, title, body, strings.Join(actions, " ")}
	return 7, nil
}
func (d *aDesktop) CloseNotification(id uint32) *dbus.Error {
	d.calls <- []any{"close", id}
	return nil
}

func aBus(t *testing.T, can ...string) *aDesktop {
	t.Helper()
	path, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("dbus-daemon is not installed: see build/setup/apt.sh test")
	}
	sock := filepath.Join(t.TempDir(), "bus")
	cmd := exec.Command(path, "--session", "--nofork", "--nopidfile", "--print-address=1", "--address=unix:path="+sock)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", strings.TrimSpace(addr))
	d := &aDesktop{can: can, calls: make(chan []any, 16)}
	if d.conn, err = dbus.Connect(strings.TrimSpace(addr)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.conn.Close() })
	if err := d.conn.Export(d, noticesPath, noticesName); err != nil {
		t.Fatal(err)
	}
	if _, err := d.conn.RequestName(noticesName, dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestNoticesOnTheBus(t *testing.T) {
	d := aBus(t, "body", "body-markup", "actions")
	clicked := make(chan [2]string, 4)
	b := newBoard(func(show, token string) { clicked <- [2]string{show, token} })
	if err := b.Post(Notice{Title: "A question waits in <shop>", Body: `“<a href="x">&</a>”`, Show: "a1", Urgent: true}); err != nil {
		t.Fatal(err)
	}
	// A title is plain text by the service's rules; a body is markup here.
	if c := <-d.calls; c[1] != uint32(0) || c[2] != "A question waits in <shop>" || c[3] != "“&lt;a href=&quot;x&quot;&gt;&amp;&lt;/a&gt;”" || c[4] != "default Open" {
		t.Errorf("%q", c)
	}
	_ = b.Post(Notice{Title: "two", Show: "a2"})
	if c := <-d.calls; c[1] != uint32(7) {
		t.Errorf("a second notice beside the first: %v", c)
	}
	send := func(member string, a ...any) { _ = d.conn.Emit(noticesPath, noticesName+"."+member, a...) }
	send("ActionInvoked", uint32(6), "default")     // somebody else's
	send("ActionInvoked", uint32(7), "other-thing") // not ours to know
	send("ActivationToken", uint32(7), "tok-1")
	send("ActionInvoked", uint32(7), "default")
	if got := <-clicked; got != [2]string{"a2", "tok-1"} {
		t.Errorf("%v", got)
	}
	b.Clear()
	if c := <-d.calls; c[0] != "close" || c[1] != uint32(7) {
		t.Errorf("%v", c)
	}
	send("ActionInvoked", uint32(7), "default") // of a notice that is gone
	b.Clear()
	select {
	case got := <-clicked:
		t.Errorf("a click on nothing opened %v", got)
	case c := <-d.calls:
		t.Errorf("closed twice: %v", c)
	case <-time.After(200 * time.Millisecond):
	}
}

func TestNoticesForAPlainService(t *testing.T) {
	d := aBus(t, "body")
	b := newBoard(func(string, string) {})
	if err := b.Post(Notice{Title: "t", Body: "a < b"}); err != nil {
		t.Fatal(err)
	}
	if c := <-d.calls; c[3] != "a < b" {
		t.Errorf("%q", c)
	}
}

func TestNoticesWithoutABus(t *testing.T) {
	for _, addr := range []string{"unix:path=" + filepath.Join(t.TempDir(), "none"), "autolaunch:", "nonsense"} {
		t.Setenv("DBUS_SESSION_BUS_ADDRESS", addr)
		b := newBoard(func(string, string) {})
		if err := b.Post(Notice{Title: "t"}); err == nil {
			t.Errorf("posted over %q", addr)
		}
		b.Clear()
	}
	_ = os.Unsetenv("DBUS_SESSION_BUS_ADDRESS")
}
