package browsertest

import (
	"strings"
	"time"

	"glasshouse/browser"
)

func init() {
	cases = append(cases,
		testCase{"page facts", pageFacts},
		testCase{"names and states", namesAndStates},
		testCase{"hidden elements are left out", hiddenLeftOut},
		testCase{"passwords are never shown", passwords},
		testCase{"a page cannot fake lines", markup},
		testCase{"viewport by default", viewport},
		testCase{"cap", capped},
		testCase{"big page", bigPageCase},
		testCase{"screenshots", screenshots},
		testCase{"addresses", addresses},
		testCase{"failed navigations", failedNavigations},
	)
}

func pageFacts(s *suite) {
	p := s.open("/form.html")
	if p.Title != "Form page" || p.Status != 200 || !strings.HasSuffix(p.URL, "/form.html") || !p.Active || p.ID == "" {
		s.Errorf("page: %+v", p)
	}
	p = s.open("/status/404")
	if p.Status != 404 {
		s.Errorf("status of a 404: %+v", p)
	}
}

func namesAndStates(s *suite) {
	s.open("/form.html")
	t := s.all()
	for _, w := range []string{
		`heading "Order form" level=1`, `textbox "Your name"`, `textbox "Email"`, `textbox "Nick name"`, `textbox "City of birth"`,
		`textbox "Post code"`, `textbox "Phone number"`, `textbox "Password"`, `checkbox "I agree"`, `radio "Small"`, `textbox "Notes"`,
		`button "Upload"`, `button "Send order"`, `button "Send too"`, `button "Picture send"`,
	} {
		s.line(t, w)
	}
	s.has(s.line(t, `textbox "Your name"`), "required")
	s.has(s.line(t, `radio "Large"`), "checked")
	s.hasNot(s.line(t, `radio "Small"`), "checked")
	s.has(s.line(t, `button "Not yet"`), "disabled")
	s.has(s.line(t, `combobox "Colour"`), `value="Green of: Red | Green | Blue"`)
	s.has(s.line(t, `button "Upload"`), "file")

	s.open("/names.html")
	t = s.all()
	for _, w := range []string{
		`button "Picture name"`, `button "Aria name"`, `button "Svg name"`, `button "Nested bold text"`, `button "Title name"`,
		`link "Link name"`, `button "Div button"`, `clickable "Div onclick"`, `clickable "Pointer span"`, `button "More"`,
		`group "Group name"`, `checkbox "In group"`, `checkbox "Custom box"`, `tab "Tab two"`, `button "Pick a file"`, `switch "Night mode"`, `navigation "Main menu"`,
		`heading "Heading two" level=2`, `text "Plain paragraph text."`, `text "No link"`,
	} {
		s.line(t, w)
	}
	s.has(s.line(t, `tab "Tab one"`), "selected")
	s.has(s.line(t, `switch "Night mode"`), "checked")
	s.has(s.line(t, `button "More"`), "collapsed")
	s.hasNot(t, "gone", `link "No link"`)
}

func hiddenLeftOut(s *suite) {
	s.open("/names.html")
	s.hasNot(s.all(), "Hidden one", "Hidden two", "Hidden three", "Hidden four", "Hidden five", "Hidden six")
}

func passwords(s *suite) {
	s.open("/form.html")
	t := s.all()
	s.hasNot(t, "hunter2")
	s.has(s.line(t, `"Password"`), `value="(hidden)"`)
	// A button that turns the field into plain text does not give it away.
	e := s.click(s.ref(`"Show password"`))
	s.hasNot(e.Diff, "hunter2")
	s.hasNot(s.all(), "hunter2")
	e = s.typ(s.ref(`"Password"`), "new-s3cret", browser.TypeOptions{})
	s.hasNot(e.Diff, "s3cret")
	s.open("/edit.html")
	e = s.typ(s.ref(`"Code"`), "918273", browser.TypeOptions{})
	s.hasNot(e.Diff+s.all(), "918273")
}

func markup(s *suite) {
	s.open("/markup.html")
	v, err := s.b.Snapshot(s.ctx(), browser.SnapshotOptions{WholePage: true, MaxChars: 100_000})
	if err != nil {
		s.Fatal(err)
	}
	if strings.ContainsAny(v.Text+v.Page.Title, "\u202e\u200b\u0007") {
		s.Errorf("control characters got through: %q", v.Text)
	}
	links, refs := 0, 0
	for l := range strings.Lines(v.Text) {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "[+") {
			continue
		}
		if !strings.HasPrefix(l, "- ") {
			s.Errorf("a line that is no line: %q", l)
		}
		// Outside its quotes a line has only our own words.
		out, in := "", false
		for i := 0; i < len(l); i++ {
			switch {
			case in && l[i] == '\\':
				i++
			case l[i] == '"':
				in = !in
			case !in:
				out += l[i : i+1]
			}
		}
		if in {
			s.Errorf("unbalanced quotes: %q", l)
		}
		if strings.Contains(out, "[e97]") || strings.Contains(out, "[e98]") || strings.Contains(out, "[e99]") || strings.Contains(out, "Fake") {
			s.Errorf("faked structure: %q", l)
		}
		if strings.HasPrefix(l, "- link") {
			links++
		}
		refs += strings.Count(out, "[e")
		if len(l) > 800 {
			s.Errorf("a line of %d bytes", len(l))
		}
	}
	if links != 6 || refs != 7 || v.Refs != refs {
		s.Errorf("%d links, %d refs (says %d), want 6 and 7:\n%s", links, refs, v.Refs, v.Text)
	}
}

func viewport(s *suite) {
	s.open("/names.html")
	v, err := s.b.Snapshot(s.ctx(), browser.SnapshotOptions{})
	if err != nil {
		s.Fatal(err)
	}
	s.hasNot(v.Text, "Far below", "Scrolled away")
	s.has(v.Text, "Heading two")
	if v.More < 2 || !strings.Contains(v.Text, "[+") {
		s.Errorf("more = %d:\n%s", v.More, v.Text)
	}
	s.has(s.all(), "Far below", "Scrolled away")
}

func capped(s *suite) {
	s.open("/big.html")
	v, err := s.b.Snapshot(s.ctx(), browser.SnapshotOptions{WholePage: true})
	if err != nil {
		s.Fatal(err)
	}
	if len(v.Text) > 8000 || len(v.Text) < 7000 {
		s.Errorf("%d characters", len(v.Text))
	}
	if v.More < 3000 || !strings.Contains(v.Text, "more]") {
		s.Errorf("more = %d", v.More)
	}
	v, err = s.b.Snapshot(s.ctx(), browser.SnapshotOptions{WholePage: true, MaxChars: 500})
	if err != nil || len(v.Text) > 500 {
		s.Errorf("%d characters, %v", len(v.Text), err)
	}
}

func bigPageCase(s *suite) {
	start := time.Now()
	s.open("/big.html")
	nav := time.Since(start)
	median := func(n int, f func()) time.Duration {
		var all []time.Duration
		for range n {
			t0 := time.Now()
			f()
			all = append(all, time.Since(t0))
		}
		for i := range all {
			for j := i; j > 0 && all[j] < all[j-1]; j-- {
				all[j], all[j-1] = all[j-1], all[j]
			}
		}
		return all[n/2]
	}
	view := median(9, func() {
		if _, err := s.b.Snapshot(s.ctx(), browser.SnapshotOptions{}); err != nil {
			s.Fatal(err)
		}
	})
	whole := median(5, func() { s.all() })
	r := s.ref(`button "Press 900"`)
	s.click(r)
	click := median(5, func() { s.click(r) })
	l := s.all()
	s.has(l, "click:b900:real")
	s.open("/spa.html")
	r = s.ref(`button "Nothing"`)
	small := median(5, func() { s.click(r) })
	s.Logf("%d elements: open %v, snapshot %v in view, %v whole page, click %v; click without effect on a small page %v", BigElements, nav, view, whole, click, small)
}

func screenshots(s *suite) {
	s.open("/big.html")
	png, err := s.b.Screenshot(s.ctx(), browser.ScreenshotOptions{})
	if err != nil || png.Mime != "image/png" || !strings.HasPrefix(string(png.Data), "\x89PNG") || png.Width < 300 || png.Height < 200 {
		s.Errorf("png: %v %s %dx%d", err, png.Mime, png.Width, png.Height)
	}
	jpg, err := s.b.Screenshot(s.ctx(), browser.ScreenshotOptions{JPEG: true, Quality: 30})
	if err != nil || jpg.Mime != "image/jpeg" || !strings.HasPrefix(string(jpg.Data), "\xff\xd8") || jpg.Width != png.Width || jpg.Height != png.Height {
		s.Errorf("jpeg: %v %s %dx%d", err, jpg.Mime, jpg.Width, jpg.Height)
	}
	full, err := s.b.Screenshot(s.ctx(), browser.ScreenshotOptions{FullPage: true, JPEG: true, Quality: 10})
	if err != nil || full.Height <= png.Height || full.Width*full.Height > 32<<20 {
		s.Errorf("full page: %v %dx%d", err, full.Width, full.Height)
	}
	// The page is as it was.
	again, err := s.b.Screenshot(s.ctx(), browser.ScreenshotOptions{})
	if err != nil || again.Width != png.Width || again.Height != png.Height {
		s.Errorf("after the full page: %v %dx%d", err, again.Width, again.Height)
	}
}

func addresses(s *suite) {
	for _, bad := range []string{"javascript:alert(1)", "chrome://crash", "example.org", "127.0.0.1:80/x", "localhost:8080", "", "http://", "devtools://x", "view-source:http://x", "ht tp://x", strings.Repeat("http://x/", 10_000)} {
		if _, err := s.b.Open(s.ctx(), bad); err == nil {
			s.Errorf("%.40q was opened", bad)
		}
	}
}

func failedNavigations(s *suite) {
	ctx := s.ctx()
	p, err := s.b.Open(ctx, "http://127.0.0.1:1/")
	if err != nil || p.Error == "" {
		s.Errorf("a refused connection: %+v, %v", p, err)
	}
	p, err = s.b.Open(ctx, s.env.Site.Base+"/file.bin")
	if err != nil || !strings.Contains(p.Error, "download") {
		s.Errorf("a download: %+v, %v", p, err)
	}
	t0 := time.Now()
	p, err = s.b.Open(ctx, s.env.Site.Base+"/hang")
	if err != nil || !strings.Contains(p.Error, "did not load") {
		s.Errorf("a server that never answers: %+v, %v", p, err)
	}
	if time.Since(t0) > hang/2 {
		s.Errorf("it took %v", time.Since(t0))
	}
	// The tab still works.
	s.open("/form.html")
	s.has(s.all(), "Order form")
	p = s.open("/onload-dialog.html")
	s.has(p.Dialog, "welcome")
	s.has(s.all(), "Below the greeting")
}
