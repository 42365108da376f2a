package browsertest

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"
	"time"

	"glasshouse/browser"
)

func init() {
	castCases = append(castCases,
		testCase{"watching an animation", watchAnimation},
		testCase{"watching a page at rest", watchAtRest},
		testCase{"what a page comes to rest at is seen", watchBurst},
		testCase{"a slow viewer has no queue", watchSlowly},
		testCase{"watching follows documents and tabs", watchFollows},
		testCase{"what is known without looking", watchState},
	)
	ownCases = append(ownCases,
		ownCase{"watching a page that crashes", watchCrash},
		ownCase{"nothing is taken while nobody looks", watchNobody},
		ownCase{"hostile frames", watchHostile},
		ownCase{"watching a browser that ends", watchEnd},
	)
}

func (s *suite) cast() browser.Screencast {
	s.Helper()
	c, ok := s.b.(browser.Screencast)
	if !ok {
		s.Fatal("the driver cannot be watched")
	}
	return c
}

func (s *suite) watch() browser.Frames {
	s.Helper()
	f, err := s.cast().Frames()
	if err != nil {
		s.Fatalf("watching: %v", err)
	}
	s.Cleanup(func() { f.Close() })
	return f
}

// frame waits for a frame other than after, and checks what every frame keeps to.
func (s *suite) frame(f browser.Frames, after uint64) browser.Frame {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	fr, err := f.Next(ctx, after)
	if err != nil {
		s.Fatalf("the next frame: %v", err)
	}
	w, h, err := browser.CheckJPEG(fr.JPEG)
	if err != nil || w != fr.Width || h != fr.Height {
		s.Fatalf("a frame of %d x %d says it is %d x %d: %v", w, h, fr.Width, fr.Height, err)
	}
	if fr.Seq <= after {
		s.Fatalf("frame %d after frame %d", fr.Seq, after)
	}
	return fr
}

// shows waits for a frame whose middle has a colour.
func (s *suite) shows(f browser.Frames, want color.RGBA) browser.Frame {
	s.Helper()
	var after uint64
	end := time.Now().Add(hang)
	for {
		fr := s.frame(f, after)
		after = fr.Seq
		got := middle(s.T, fr.JPEG)
		if near(got.R, want.R) && near(got.G, want.G) && near(got.B, want.B) {
			return fr
		}
		if time.Now().After(end) {
			s.Fatalf("the middle of the newest frame is %v, not %v", got, want)
		}
	}
}

func near(a, b uint8) bool { return max(a, b)-min(a, b) < 24 }

func middle(t *testing.T, b []byte) color.RGBA {
	t.Helper()
	img, err := jpeg.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("a frame cannot be decoded: %v", err)
	}
	m := img.Bounds()
	r, g, bl, _ := img.At((m.Min.X+m.Max.X)/2, (m.Min.Y+m.Max.Y)/2).RGBA()
	return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(bl >> 8), 255}
}

var (
	red   = color.RGBA{R: 255, A: 255}
	green = color.RGBA{G: 128, A: 255}
	blue  = color.RGBA{B: 255, A: 255}
)

func watchAnimation(s *suite) {
	s.open("/anim.html")
	f := s.watch()
	seen := map[string]bool{}
	var last browser.Frame
	for len(seen) < 12 {
		last = s.frame(f, last.Seq)
		seen[string(last.JPEG)] = true
		if last.Seq > 600 {
			s.Fatalf("of %d frames only %d differ", last.Seq, len(seen))
		}
	}
	for last.Page.Title != "Busy" { // it is told a moment after the page is there
		if last = s.frame(f, last.Seq); last.Seq > 900 {
			s.Fatalf("the title stays %q", last.Page.Title)
		}
	}
	st, _ := s.cast().State()
	if last.Width != st.Width || last.Height != st.Height || last.View.Width != float64(st.Width) || last.View.Scale != 1 {
		s.Errorf("a frame of %d x %d shows %+v of a page of %d x %d", last.Width, last.Height, last.View, st.Width, st.Height)
	}
	if !strings.HasSuffix(last.Page.URL, "/anim.html") || last.Page.Title != "Busy" || !last.Page.Active {
		s.Errorf("the frame is of %+v", last.Page)
	}
	// Whoever acts is not held up, and what it did is seen.
	s.click(s.ref(`button "Count"`))
	s.frame(f, last.Seq)
}

func watchAtRest(s *suite) {
	s.open("/color/red")
	f := s.watch()
	fr := s.shows(f, red)
	first := fr.Seq
	// It paints nothing more: the viewer waits.
	rest := func() {
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
			next, err := f.Next(ctx, fr.Seq)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				return
			}
			if err != nil || next.Seq > first+400 {
				s.Fatalf("a page at rest gives frame after frame: %d, %v", next.Seq, err)
			}
			fr = next
		}
	}
	// A second viewer gets what there is at once, an old number does not matter. Where the
	// computer stood still, what looked like rest was none.
	var g browser.Frames
	for tries := 0; ; tries++ {
		rest()
		g = s.watch()
		one := s.frame(g, 0)
		two, err := g.Next(s.ctx(), fr.Seq+1_000_000)
		if err == nil && one.Seq == fr.Seq && two.Seq == fr.Seq {
			break
		}
		if err != nil || one.Seq < fr.Seq || two.Seq < fr.Seq || tries == 10 {
			s.Fatalf("a new viewer got frame %d, and with another browser's number %d, not %d: %v", one.Seq, two.Seq, fr.Seq, err)
		}
		g.Close()
	}
	g.Close()
	if _, err := g.Next(s.ctx(), fr.Seq); err == nil {
		s.Error("a closed viewer got a frame")
	}
}

// A page that changes faster than frames are taken, and then rests.
func watchBurst(s *suite) {
	s.open("/burst.html")
	f := s.watch()
	s.frame(f, 0)
	for range 3 {
		s.click(s.ref(`button "Burst"`))
		s.shows(f, green)
		s.click(s.ref(`button "Back"`))
		s.shows(f, blue)
	}
}

func watchSlowly(s *suite) {
	s.open("/anim.html")
	quick, slow := s.watch(), s.watch()
	first := s.frame(slow, 0)
	seq := first.Seq
	for seq < first.Seq+12 {
		seq = s.frame(quick, seq).Seq
	}
	if got := s.frame(slow, first.Seq); got.Seq < seq {
		s.Errorf("a viewer that waited got frame %d of %d", got.Seq, seq)
	}
}

func watchFollows(s *suite) {
	tb := s.tabber()
	s.open("/color/red")
	f := s.watch()
	s.shows(f, red)
	s.open("/color/green")
	s.shows(f, green)
	// Another site: another process draws it.
	if _, err := s.b.Open(s.ctx(), s.env.Site.Cross+"/color/blue"); err != nil {
		s.Fatal(err)
	}
	one := s.shows(f, blue)
	s.open("/popup.html")
	e := s.click(s.ref(`link "Open noopener"`))
	two := s.frame(f, one.Seq)
	for two.Page.ID == one.Page.ID {
		two = s.frame(f, two.Seq)
	}
	if two.Page.ID != e.Page.ID {
		s.Errorf("frames are of tab %s, the action went to %s", two.Page.ID, e.Page.ID)
	}
	if _, err := tb.Activate(s.ctx(), one.Page.ID); err != nil {
		s.Fatal(err)
	}
	back := s.frame(f, two.Seq)
	for back.Page.ID != one.Page.ID {
		back = s.frame(f, back.Seq)
	}
	s.open("/color/red")
	s.shows(f, red)
	// The tab looked at is closed: its neighbour is seen.
	if err := tb.CloseTab(s.ctx(), one.Page.ID); err != nil {
		s.Fatal(err)
	}
	for last := s.frame(f, 0); last.Page.ID != two.Page.ID; {
		last = s.frame(f, last.Seq)
	}
	s.open("/color/green")
	s.shows(f, green)
}

func watchState(s *suite) {
	s.open("/dialog.html")
	c := s.cast()
	st, _ := c.State()
	p, ok := st.Active()
	if !ok || !strings.HasSuffix(p.URL, "/dialog.html") || st.Dialog != "" || st.Crashed || st.Silent {
		s.Fatalf("the state is %+v", st)
	}
	n := 0
	if st.Acted != nil {
		n = st.Acted.N
	}
	_, changed := c.State()
	s.click(s.ref(`button "Confirm"`))
	select {
	case <-changed:
	case <-time.After(hang):
		s.Fatal("a click changed nothing that is told")
	}
	st, _ = c.State()
	if !strings.Contains(st.Dialog, "confirm") {
		s.Errorf("the dialog is %q", st.Dialog)
	}
	if st.Acted == nil || st.Acted.N != n+1 || st.Acted.X <= 0 || st.Acted.Y <= 0 || st.Acted.Tab != p.ID {
		s.Errorf("the press landed at %+v", st.Acted)
	}
}

func watchCrash(t *testing.T, env Env) {
	s, tap := own(t, env)
	s.open("/anim.html")
	f := s.watch()
	fr := s.frame(f, 0)
	tap.Crash()
	end := time.Now().Add(hang)
	for {
		st, changed := s.cast().State()
		if st.Crashed {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the crash is not told")
		}
		select {
		case <-changed:
		case <-time.After(hang):
		}
	}
	s.open("/color/green") // the next action brings the tab back
	if got := s.shows(f, green); got.Seq <= fr.Seq {
		t.Errorf("frame %d came after frame %d", got.Seq, fr.Seq)
	}
	if st, _ := s.cast().State(); st.Crashed {
		t.Error("it still says that the page crashed")
	}
}

func watchNobody(t *testing.T, env Env) {
	s, tap := own(t, env)
	s.open("/anim.html")
	still := func(why string) {
		t.Helper()
		// What is on its way may still come; then nothing does.
		for range 20 {
			n := tap.Frames()
			time.Sleep(700 * time.Millisecond)
			if tap.Frames() == n {
				return
			}
		}
		t.Errorf("frames are taken %s", why)
	}
	still("before anybody looked")
	if n := tap.Frames(); n != 0 {
		t.Errorf("%d frames were taken before anybody looked", n)
	}
	one, two := s.watch(), s.watch()
	seq := s.frame(one, 0).Seq
	one.Close()
	one.Close()
	s.frame(two, seq) // the other still looks
	two.Close()
	still("after the last viewer left")
	three := s.watch()
	seq = s.frame(three, 0).Seq
	s.frame(three, seq)
}

func watchEnd(t *testing.T, env Env) {
	s, tap := own(t, env)
	s.open("/color/red")
	f := s.watch()
	fr := s.shows(f, red)
	time.AfterFunc(300*time.Millisecond, func() { tap.Close() })
	for {
		next, err := f.Next(s.ctx(), fr.Seq)
		if err == nil {
			fr = next
			continue
		}
		if !errors.Is(err, browser.ErrGone) {
			t.Errorf("got %v, want %v", err, browser.ErrGone)
		}
		break
	}
	if _, err := s.cast().Frames(); !errors.Is(err, browser.ErrGone) {
		t.Errorf("watching it again: got %v, want %v", err, browser.ErrGone)
	}
}

func watchHostile(t *testing.T, env Env) {
	s, tap := own(t, env)
	s.open("/color/red")
	f := s.watch()
	s.shows(f, red)
	page := tap.LastPage()
	say := func(data string) {
		tap.Say([]byte(`{"method":"Page.screencastFrame","sessionId":"` + page + `","params":` + data + "}\x00"))
	}
	with := func(b []byte, meta string) string {
		return fmt.Sprintf(`{"data":%q,"metadata":%s,"sessionId":1}`, base64.StdEncoding.EncodeToString(b), meta)
	}
	meta := `{"offsetTop":0,"pageScaleFactor":1,"deviceWidth":1280,"deviceHeight":800,"scrollOffsetX":0,"scrollOffsetY":0}`
	small := image.NewRGBA(image.Rect(0, 0, 40, 40))
	var jpg, pn bytes.Buffer
	_ = jpeg.Encode(&jpg, small, nil)
	_ = png.Encode(&pn, small)
	huge := bytes.Clone(jpg.Bytes())
	at := bytes.Index(huge, []byte{0xff, 0xc0}) // height and width of the frame header
	copy(huge[at+5:], []byte{0xff, 0xff, 0xff, 0xff})
	for _, bad := range []string{
		`{}`, `null`, `[]`, `7`, `{"data":"!!! not base64","sessionId":1}`, `{"data":7}`, `{"data":"","metadata":null}`,
		with([]byte("<script>alert(1)</script>"), meta), with(pn.Bytes(), meta), with(huge, meta), with([]byte("\xff\xd8\xff"), meta),
		with(append(bytes.Clone(jpg.Bytes()), make([]byte, 5<<20)...), meta), // larger than a frame may be
		with(jpg.Bytes(), `"x"`), with(jpg.Bytes(), `{"deviceWidth":"wide"}`),
	} {
		say(bad)
	}
	// A stranger's session, and more frames than were asked for.
	tap.Say([]byte(`{"method":"Page.screencastFrame","sessionId":"nobody","params":` + with(jpg.Bytes(), meta) + "}\x00"))
	for range 2000 {
		say(with([]byte("\xff\xd8\xff no picture"), meta))
	}
	s.open("/color/green")
	fr := s.shows(f, green)
	if fr.Width != 1280 {
		t.Errorf("the frame is %d wide", fr.Width)
	}
	// A picture that is one but lies about what it shows is kept within limits.
	say(with(jpg.Bytes(), `{"offsetTop":1e300,"pageScaleFactor":-5,"deviceWidth":1e300,"deviceHeight":-1,"scrollOffsetX":-1e300,"scrollOffsetY":1e300}`))
	for fr.Width != 40 {
		fr = s.frame(f, fr.Seq)
	}
	v := fr.View
	if v.Width > browser.MaxFrameSide || v.Height < 1 || v.Scale <= 0 || v.ScrollX < -1e9 || v.ScrollY > 1e9 {
		t.Errorf("the frame shows %+v", v)
	}
	s.open("/color/blue")
	s.shows(f, blue)
}
