package desktop

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

type wall struct {
	posted  []Notice
	cleared int
}

func (w *wall) Post(n Notice) error { w.posted = append(w.posted, n); return nil }
func (w *wall) Clear()              { w.cleared++ }

func TestNoticesComeTogetherAndNotOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wall{}
		var away atomic.Bool
		away.Store(true)
		n := newNotices(w, away.Load)
		defer n.Close()
		n.Question("a1", "shop", "Run curl")
		n.Question("a2", "site", "Push main")
		time.Sleep(time.Second)
		if len(w.posted) != 1 || w.posted[0] != (Notice{Title: "2 questions wait", Body: "In shop, site.", Show: "a1", Urgent: true}) {
			t.Fatalf("%+v", w.posted)
		}
		// A flood: as few as there are rests in its time.
		for i := range 300 {
			n.Question(string(rune('b'+i)), "shop", "again")
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(noticeRest)
		if got := len(w.posted); got < 5 || got > 8 {
			t.Errorf("%d notices in 35 seconds", got)
		}
	})
}

func TestNoticesOfWhatIsSeenOrOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wall{}
		var away atomic.Bool
		n := newNotices(w, away.Load)
		defer n.Close()
		step := func(name string, want int, f func()) {
			t.Helper()
			f()
			time.Sleep(2 * noticeRest)
			if len(w.posted) != want {
				t.Fatalf("%s: %+v", name, w.posted)
			}
		}
		step("the window is looked at", 0, func() { n.Question("a1", "p", "x") })
		away.Store(true)
		step("answered before it was told", 0, func() { n.Question("a2", "p", "x"); n.Answered("a2") })
		step("quiet", 0, func() { n.Quiet(true); n.Question("a3", "p", "x"); n.Ended("s", "p", "done") })
		n.Quiet(false)
		step("looked at before it was told", 0, func() { n.Question("a4", "p", "x"); n.Looked() })
		step("work that ended", 1, func() { n.Ended("s1", "shop", "ok") })
		if w.posted[0] != (Notice{Title: "Work is done, checks passed", Body: "In shop.", Show: "s1"}) {
			t.Errorf("%+v", w.posted[0])
		}
		step("one question", 2, func() { n.Question("a5", "shop", "Run it") })
		if w.posted[1] != (Notice{Title: "A question waits in shop", Body: "“Run it”", Show: "a5", Urgent: true}) || w.cleared != 0 {
			t.Errorf("%+v, cleared %d times", w.posted[1], w.cleared)
		}
		n.Answered("a5")
		if w.cleared != 1 {
			t.Errorf("its notice stays after the answer: %d", w.cleared)
		}
	})
}

func TestNoticesQuoteHostileTextPlainly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wall{}
		n := newNotices(w, func() bool { return true })
		defer n.Close()
		hostile := "\x1b]0;x\x07<b>Glasshouse</b>\r\nAllow\u202egnp.exe\u202c\u200b\u2066x\u2069\x00\u00ad\ufeff \U000e0041" + strings.Repeat("long ", 500)
		n.Question("a1", hostile, hostile)
		time.Sleep(noticeRest)
		got := w.posted[0]
		for _, s := range []string{got.Title, got.Body} {
			if strings.ContainsAny(s, "\x00\x07\x1b\r\n\u202e\u202c\u200b\u2066\u2069\u00ad\ufeff") || utf8.RuneCountInString(s) > noticeBody+2 || strings.ContainsRune(s, 0xe0041) {
				t.Errorf("%q", s)
			}
		}
		if !strings.HasPrefix(got.Title, "A question waits in ") || !strings.HasPrefix(got.Body, "“") || !strings.HasSuffix(got.Body, "”") {
			t.Errorf("%+v", got)
		}
	})
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{"": "", "  a\tb\n\nc ": "a b c", "\u202e": "", "héllo 日本": "héllo 日本", "0123456789abc": "012345678…", "01234567 9abc": "01234567…"} {
		if got := plain(in, 10); got != want {
			t.Errorf("%q: %q, not %q", in, got, want)
		}
	}
}
