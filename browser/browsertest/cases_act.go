package browsertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"glasshouse/browser"
)

func init() {
	cases = append(cases,
		testCase{"click and its effect", clickEffect},
		testCase{"a button covered for a while is waited for", coveredForAWhile},
		testCase{"a button covered for ever is not pressed", coveredForEver},
		testCase{"a cover that comes at the last moment gets no press", trap},
		testCase{"a moving button is waited for", moving},
		testCase{"disabled and hidden", disabled},
		testCase{"sticky bars", sticky},
		testCase{"shadow roots", shadow},
		testCase{"frames", frames},
		testCase{"drawn labels", drawnLabels},
		testCase{"controls within controls", nested},
		testCase{"calls wait their turn", turns},
		testCase{"stale refs", stale},
		testCase{"refs die with their document", staleDocument},
		testCase{"refs are never reused", neverReused},
		testCase{"dialogs", dialogs},
		testCase{"a page cannot keep its tab", leaving},
		testCase{"navigation within the document", spa},
		testCase{"navigations by a click", clickNavigations},
		testCase{"pop-ups", popups},
		testCase{"downloads, permissions and uploads", denied},
		testCase{"a page that never rests", restless},
	)
}

func (s *suite) log() string {
	s.Helper()
	// The log of a fixture page is a line of its own.
	return s.all()
}

func clickEffect(s *suite) {
	s.open("/form.html")
	e := s.click(s.ref(`checkbox "I agree"`))
	s.has(e.Diff, `+ checkbox "I agree"`, "checked")
	if e.Navigated || e.None || e.Dialog != "" {
		s.Errorf("effect: %+v", e)
	}
	e = s.click(s.ref(`button "Send order"`))
	s.hasNot(e.Diff, "sent name") // the required name is missing
	s.typ(s.ref(`"Your name"`), "Ada", browser.TypeOptions{})
	e = s.click(s.ref(`button "Send order"`))
	s.has(e.Diff, "sent name=Ada", "agree=true")
	s.has(s.log(), "click:agree:real")
	s.hasNot(s.log(), "fake")

	s.open("/spa.html")
	if e = s.click(s.ref(`button "Nothing"`)); !e.None || e.Diff != "" {
		s.Errorf("a button that does nothing: %+v", e)
	}
	e = s.click(s.ref(`button "Load more"`))
	s.has(e.Diff, "Fetched slow")
	e = s.click(s.ref(`button "Later"`))
	s.has(e.Diff, "Late text")
}

func coveredForAWhile(s *suite) {
	s.env.Site.Set("covered", "")
	s.open("/covered.html")
	r := s.ref(`button "Press me"`)
	go func() {
		time.Sleep(700 * time.Millisecond)
		s.env.Site.Set("covered", "open")
	}()
	t0 := time.Now()
	s.click(r)
	if d := time.Since(t0); d < 600*time.Millisecond {
		s.Errorf("pressed after %v, while it was covered", d)
	}
	t := s.log()
	s.has(t, "click:target:real")
	s.hasNot(t, "veil")
}

func coveredForEver(s *suite) {
	s.env.Site.Set("covered", "")
	s.open("/covered.html")
	_, err := s.b.Click(s.ctx(), s.ref(`button "Press me"`))
	s.refused(err, browser.ErrNotActionable, `covered by div#veil.modal "Please wait"`)
	s.hasNot(s.log(), "veil:", "target:")
}

func trap(s *suite) {
	s.open("/trap.html?on=move")
	_, err := s.b.Click(s.ctx(), s.ref(`button "Press me"`))
	s.refused(err, browser.ErrNotActionable, "covered by div#veil")
	s.hasNot(s.log(), "veil:real", "target:real")
	hit, refused := 0, 0
	for _, ms := range []int{0, 5, 10, 15, 20, 30, 60} {
		s.open(fmt.Sprintf("/trap.html?on=late&ms=%d", ms))
		_, err := s.b.Click(s.ctx(), s.ref(`button "Press me"`))
		t := s.log()
		s.hasNot(t, "veil:real")
		switch {
		case err == nil:
			hit++
			s.has(t, "click:target:real")
		case errors.Is(err, browser.ErrNotActionable):
			refused++
			s.hasNot(t, "click:target")
		default:
			s.Errorf("after %d ms: %v", ms, err)
		}
	}
	s.Logf("a cover that came 0 to 60 ms after the pointer: %d hits, %d refusals, no wrong press", hit, refused)
}

func moving(s *suite) {
	s.env.Site.Set("moving", "")
	s.open("/moving.html")
	r := s.ref(`button "Catch me"`)
	_, err := s.b.Click(s.ctx(), r)
	s.refused(err, browser.ErrNotActionable, "moving")
	s.hasNot(s.log(), ":real")
	go func() {
		time.Sleep(500 * time.Millisecond)
		s.env.Site.Set("moving", "stop")
	}()
	s.click(r)
	s.has(s.log(), "click:target:real")
}

func disabled(s *suite) {
	s.open("/form.html")
	_, err := s.b.Click(s.ctx(), s.ref(`button "Not yet"`))
	s.refused(err, browser.ErrNotActionable, "disabled")
	s.hasNot(s.log(), ":off:")
}

func sticky(s *suite) {
	s.open("/sticky.html")
	s.click(s.ref(`button "Between bars"`))
	s.has(s.log(), "click:target:real")
	s.open("/names.html")
	s.click(s.ref(`"Far below"`))
	s.has(s.log(), "click:far:real")
	s.click(s.ref(`"Scrolled away"`))
	s.has(s.log(), "click:button:real")
}

func shadow(s *suite) {
	s.open("/shadow.html")
	t := s.all()
	s.line(t, `heading "Slotted title" level=2`)
	s.hasNot(t, "Closed button")
	s.click(s.ref(`button "Deep button"`))
	s.typ(s.ref(`"Deep field"`), "down here", browser.TypeOptions{})
	s.has(s.log(), "deepin=down here")
}

func frames(s *suite) {
	s.open("/frames.html")
	deadline := time.Now().Add(30 * time.Second)
	for {
		t := s.all()
		if strings.Contains(t, "I am nested") && strings.Contains(t, "I am other") {
			break
		}
		if time.Now().After(deadline) {
			s.Fatalf("the frames did not load:\n%s", t)
		}
		time.Sleep(50 * time.Millisecond)
	}
	seen := map[string]bool{}
	for _, who := range []string{"same", "other", "nested", "scaled"} {
		r := s.ref(`button "Inner ` + who + `"`)
		if !strings.HasPrefix(r, "f") || seen[r] {
			s.Errorf("ref %s in frame %s", r, who)
		}
		seen[r] = true
		s.click(r)
		s.has(s.log(), "from "+who+":real")
	}
	_, err := s.b.Click(s.ctx(), s.ref(`button "Inner veiled"`))
	s.refused(err, browser.ErrNotActionable, "frame is covered by div#fveil")
	_, err = s.b.Click(s.ctx(), s.ref(`button "Inner rotated"`))
	s.refused(err, browser.ErrNotActionable, "rotated")
	s.hasNot(s.log(), "fveil:real", "from veiled", "from rotated", "fake")
	// Every frame again, so that a wrong mapping would show as a wrong message.
	for _, who := range []string{"nested", "same"} {
		s.click(s.ref(`button "Inner ` + who + `"`))
	}
}

func nested(s *suite) {
	s.open("/nested.html")
	s.click(s.ref(`button "Whole card"`)) // beside the button in its middle
	s.has(s.log(), "click:card:real")
	s.hasNot(s.log(), ":inner:", ":whole:")
	_, err := s.b.Click(s.ctx(), s.ref(`clickable "Fills it"`)) // nothing but the button could be hit
	s.refused(err, browser.ErrNotActionable, "button#whole")
	s.hasNot(s.log(), ":whole:")
	s.click(s.ref(`button "Fills it"`))
	s.has(s.log(), "click:whole:real", "wrapper")
	s.typ(s.ref(`textbox "Label with button`), "x", browser.TypeOptions{})
	s.has(s.log(), "click:boxed:real")
	s.hasNot(s.log(), ":inlab:")
}

func turns(s *suite) {
	s.env.Site.Set("covered", "")
	s.open("/covered.html")
	r := s.ref(`button "Press me"`)
	ctx, cancel := context.WithCancel(s.ctx())
	first := make(chan error, 1)
	go func() {
		_, err := s.b.Click(ctx, r) // waits for the cover
		first <- err
	}()
	time.Sleep(100 * time.Millisecond)
	short, stop := context.WithTimeout(s.ctx(), 100*time.Millisecond)
	defer stop()
	if _, err := s.b.Snapshot(short, browser.SnapshotOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("a call beside a running one, with a deadline: %v", err)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		s.Errorf("a cancelled click: %v", err)
	}
	s.hasNot(s.log(), "target:real", "veil:real")
	s.env.Site.Set("covered", "open")
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			var err error
			switch i % 3 {
			case 0:
				_, err = s.b.Click(s.ctx(), r)
			case 1:
				_, err = s.b.Snapshot(s.ctx(), browser.SnapshotOptions{})
			case 2:
				_, err = s.b.Tabs(s.ctx())
			}
			if err != nil {
				s.Error(err)
			}
		})
	}
	wg.Wait()
	if n := strings.Count(s.log(), "click:target:real"); n != 2 {
		s.Errorf("%d clicks of 2", n)
	}
}

func drawnLabels(s *suite) {
	s.open("/names.html")
	e := s.click(s.ref(`checkbox "Custom box"`))
	s.has(e.Diff, "custom=true", "checked")
}

func stale(s *suite) {
	s.open("/stale.html")
	_, err := s.b.Click(s.ctx(), "e999999")
	s.refused(err, browser.ErrStaleRef, "no element was ever shown")
	_, err = s.b.Click(s.ctx(), "'; drop")
	s.refused(err, browser.ErrStaleRef, "")

	// The nodes are new, although they look the same.
	alpha := s.ref(`"Delete Alpha"`)
	s.click(s.ref(`"Render again"`))
	_, err = s.b.Click(s.ctx(), alpha)
	re := s.refused(err, browser.ErrStaleRef, "no longer in the page")
	if len(re.Candidates) == 0 || !strings.Contains(re.Candidates[0], `"Delete Alpha"`) {
		s.Fatalf("candidates: %q", re.Candidates)
	}
	if refIn(re.Candidates[0]) == alpha {
		s.Errorf("a candidate has the stale ref")
	}
	s.click(refIn(re.Candidates[0]))
	s.has(s.log(), "deleted-Delete Alpha")

	// The nodes are the same, but stand for other things now.
	beta := s.ref(`"Delete Beta"`)
	s.click(s.ref(`"Rotate"`))
	_, err = s.b.Click(s.ctx(), beta)
	// The effect of the rotation showed the new names, so the ref may follow; it
	// must never press another thing than was shown last.
	if err != nil {
		s.refused(err, browser.ErrStaleRef, "name was")
	}
	s.hasNot(s.log(), "deleted-Delete Beta")

	first := s.ref(`"Delete Beta"`)
	s.click(s.ref(`"Remove first"`))
	_, err = s.b.Click(s.ctx(), first)
	s.refused(err, browser.ErrStaleRef, "no longer in the page")
	s.hasNot(s.log(), "deleted-Delete Beta")
}

func staleDocument(s *suite) {
	s.open("/stale.html")
	r := s.ref(`"Delete Alpha"`)
	s.open("/stale.html")
	_, err := s.b.Click(s.ctx(), r)
	re := s.refused(err, browser.ErrStaleRef, "another document")
	if len(re.Candidates) == 0 {
		s.Error("no candidates")
	}
	_, err = s.b.Type(s.ctx(), r, "x", browser.TypeOptions{})
	s.refused(err, browser.ErrStaleRef, "another document")
	s.hasNot(s.log(), ":real")
}

func neverReused(s *suite) {
	seen := map[string]string{}
	for range 3 {
		s.open("/stale.html")
		for l := range strings.Lines(s.all()) {
			if r := refIn(l); r != "" {
				if old, ok := seen[r]; ok {
					s.Errorf("%s was %q and is now %q", r, old, l)
				}
				seen[r] = l
			}
		}
	}
	a, b := s.all(), s.all()
	if a != b {
		s.Errorf("two looks at one page differ:\n%s\n%s", a, b)
	}
}

func dialogs(s *suite) {
	s.open("/dialog.html")
	for _, c := range []struct{ button, dialog, after string }{
		{"Alert", `alert "hello <b>there</b>"`, "after-alert"},
		{"Confirm", `confirm "sure?"`, "confirm=false"},
		{"Prompt", `prompt "name?"`, "prompt=null"},
		{"On press", `alert "down"`, ""},
	} {
		e := s.click(s.ref(`button "` + c.button + `"`))
		if e.Dialog != c.dialog {
			s.Errorf("%s: dialog %q", c.button, e.Dialog)
		}
		s.has(s.log(), c.after)
	}
}

func leaving(s *suite) {
	s.open("/dialog.html")
	s.click(s.ref(`"Guard leaving"`))
	e := s.click(s.ref(`link "Leave"`))
	s.has(e.Dialog, "beforeunload")
	if e.Navigated {
		s.Errorf("effect: %+v", e)
	}
	s.has(s.all(), "guarding")
	s.open("/form.html") // an explicit address wins
	s.has(s.all(), "Order form")
}

func spa(s *suite) {
	s.open("/spa.html")
	again := s.ref(`button "Nothing"`)
	e := s.click(s.ref(`link "One"`))
	if !e.Navigated || !strings.HasSuffix(e.Page.URL, "/spa/one") || e.Page.Title != "View one" {
		s.Errorf("effect: %+v", e)
	}
	s.has(e.Diff, `+ heading "View one"`, `- heading "Start view"`, `"Only in one"`)
	s.click(again) // the same document: its refs live on
	e = s.click(s.ref(`link "Fragment"`))
	if !e.Navigated || !strings.HasSuffix(e.Page.URL, "#frag") {
		s.Errorf("effect: %+v", e)
	}
}

func clickNavigations(s *suite) {
	s.open("/misc.html")
	e := s.click(s.ref(`link "Slow page"`))
	if !e.Navigated || e.Page.Title != "Slow" || e.Page.Status != 200 {
		s.Errorf("a slow page: %+v", e)
	}
	s.has(s.all(), "Slow page")
	s.open("/hanging.html") // a picture that never comes holds nothing up for long
	e = s.click(s.ref(`link "Again"`))
	if !e.Navigated || e.Page.Title != "Hanging picture" || e.Page.Error != "" {
		s.Errorf("a page with a picture that never comes: %+v", e)
	}
	s.open("/misc.html")
	e = s.click(s.ref(`link "Missing"`))
	if !e.Navigated || e.Page.Status != 404 {
		s.Errorf("a missing page: %+v", e)
	}
	s.open("/misc.html")
	e = s.click(s.ref(`link "No content"`))
	if e.Navigated {
		s.Errorf("no content: %+v", e)
	}
	e = s.click(s.ref(`link "Dead link"`))
	if !e.Navigated || e.Page.Error == "" {
		s.Errorf("a dead link: %+v", e)
	}
}

func popups(s *suite) {
	for _, name := range []string{`link "Open noopener"`, `button "Open window"`} {
		s.open("/popup.html")
		e := s.click(s.ref(name))
		if !e.Navigated || (e.Page.Title != "Form page" && e.Page.Title != "Start") {
			s.Errorf("%s: %+v", name, e)
		}
		tabs, err := s.b.Tabs(s.ctx())
		if err != nil || len(tabs) != 2 || tabs[0].Active || !tabs[1].Active {
			s.Fatalf("tabs: %+v %v", tabs, err)
		}
		if !strings.Contains(s.all(), "Order form") && !strings.Contains(s.all(), "Start view") {
			s.Errorf("the pop-up is not what is seen:\n%s", s.all())
		}
		// Its opener can be returned to, and its own refs do not work there.
		r := refIn(s.line(s.all(), "button", "[e", map[bool]string{true: "Send order", false: "Nothing"}[e.Page.Title == "Form page"]))
		if p, err := s.tabber().Activate(s.ctx(), tabs[0].ID); err != nil || p.Title != "Opener" {
			s.Fatalf("activate: %+v %v", p, err)
		}
		_, err = s.b.Click(s.ctx(), r)
		s.refused(err, browser.ErrStaleRef, "another tab")
		if err := s.tabber().CloseTab(s.ctx(), tabs[1].ID); err != nil {
			s.Fatal(err)
		}
		s.has(s.all(), "Open window")
	}
	s.click(s.ref(`button "Open many"`))
	tabs, _ := s.b.Tabs(s.ctx())
	if len(tabs) < 2 {
		s.Errorf("tabs: %+v", tabs)
	}
	s.oneTab()
	if _, err := s.tabber().Activate(s.ctx(), "t9999"); err == nil {
		s.Error("an unknown tab was activated")
	}
	// A window that closes itself leaves the others.
	s.open("/popup.html")
	s.click(s.ref(`button "Open window"`))
	s.open("/misc.html")
	e := s.click(s.ref(`button "Close me"`))
	if tabs, _ := s.b.Tabs(s.ctx()); len(tabs) == 1 && e.Page.Title != "Opener" {
		s.Errorf("after closing itself: %+v", e)
	}
}

func denied(s *suite) {
	s.open("/misc.html")
	e := s.click(s.ref(`link "Get file"`))
	s.has(e.Diff, "download", "refused", "report", ".bin")
	e = s.click(s.ref(`button "Where am I"`))
	s.has(e.Diff, "geo=1")
	s.open("/form.html")
	e = s.click(s.ref(`button "Upload"`))
	s.has(e.Diff, "asked for a file")
}

func restless(s *suite) {
	s.open("/anim.html")
	t0 := time.Now()
	s.click(s.ref(`button "Count"`))
	if d := time.Since(t0); d > hang/4 {
		s.Errorf("the click took %v", d)
	}
	s.has(s.log(), "counted")
}
