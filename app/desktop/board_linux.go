package desktop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
)

// The desktop's own notification service, org.freedesktop.Notifications.
const (
	noticesName = "org.freedesktop.Notifications"
	noticesPath = "/org/freedesktop/Notifications"
	noticeCall  = 5 * time.Second
)

// busBoard posts notices over the session bus. A computer without one has none, and
// what comes up there later is found by the next notice.
type busBoard struct {
	clicked func(show, token string)

	mu     sync.Mutex
	conn   *dbus.Conn
	markup bool   // the service takes a body for markup
	last   uint32 // the notice that is shown; 0: none
	show   string
	token  string
}

func newBoard(clicked func(show, token string)) board { return &busBoard{clicked: clicked} }

// busAddress is where the session's bus is. It is never started from here: a bus of
// the window's own would have nobody on it.
func busAddress() string {
	if a := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); a != "" {
		return a
	}
	p := fmt.Sprintf("/run/user/%d/bus", os.Getuid())
	if st, err := os.Stat(p); err == nil && st.Mode()&os.ModeSocket != 0 {
		return "unix:path=" + p
	}
	return ""
}

// connect is called with mu held.
func (b *busBoard) connect() error {
	if b.conn != nil && b.conn.Connected() {
		return nil
	}
	b.last = 0
	addr := busAddress()
	if addr == "" || strings.HasPrefix(addr, "autolaunch:") {
		return errors.New("there is no session bus")
	}
	c, err := dbus.Connect(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), noticeCall)
	defer cancel()
	var can []string
	err = c.Object(noticesName, noticesPath).CallWithContext(ctx, noticesName+".GetCapabilities", 0).Store(&can)
	if err == nil {
		err = c.AddMatchSignalContext(ctx, dbus.WithMatchSender(noticesName), dbus.WithMatchObjectPath(noticesPath), dbus.WithMatchInterface(noticesName))
	}
	if err != nil {
		c.Close()
		return err
	}
	b.markup = false
	for _, s := range can {
		b.markup = b.markup || s == "body-markup"
	}
	b.conn = c
	got := make(chan *dbus.Signal, 16)
	c.Signal(got) // closed with the connection
	go b.listen(got)
	return nil
}

func (b *busBoard) listen(got <-chan *dbus.Signal) {
	for s := range got {
		if len(s.Body) < 2 {
			continue
		}
		id, _ := s.Body[0].(uint32)
		b.mu.Lock()
		mine := id != 0 && id == b.last
		show, token := b.show, b.token
		switch {
		case !mine:
		case strings.HasSuffix(s.Name, ".ActivationToken"):
			if t, _ := s.Body[1].(string); tokens.MatchString(t) {
				b.token = t
			}
		case strings.HasSuffix(s.Name, ".NotificationClosed"):
			b.last = 0
		}
		b.mu.Unlock()
		if key, _ := s.Body[1].(string); mine && strings.HasSuffix(s.Name, ".ActionInvoked") && key == "default" {
			b.clicked(show, token)
		}
	}
}

// escaped is a plain text for a service that reads markup.
var escaped = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

func (b *busBoard) Post(n Notice) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.connect(); err != nil {
		return err
	}
	body, urgency := n.Body, byte(1)
	if b.markup {
		body = escaped.Replace(body)
	}
	if !n.Urgent {
		urgency = 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), noticeCall)
	defer cancel()
	hints := map[string]dbus.Variant{"urgency": dbus.MakeVariant(urgency), "desktop-entry": dbus.MakeVariant("glasshouse")}
	b.show, b.token = n.Show, ""
	return b.conn.Object(noticesName, noticesPath).CallWithContext(ctx, noticesName+".Notify", 0,
		"Glasshouse", b.last, "glasshouse", n.Title, body, []string{"default", "Open"}, hints, int32(-1)).Store(&b.last)
}

func (b *busBoard) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == 0 || b.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), noticeCall)
	defer cancel()
	_ = b.conn.Object(noticesName, noticesPath).CallWithContext(ctx, noticesName+".CloseNotification", 0, b.last).Err
	b.last = 0
}
