package browsertest

import (
	"strings"

	"glasshouse/browser"
)

func init() {
	cases = append(cases,
		testCase{"drop-down lists", lists},
		testCase{"keys", pressKeys},
		testCase{"back", back},
	)
}

func (s *suite) controls() browser.Controls {
	s.Helper()
	c, ok := s.b.(browser.Controls)
	if !ok {
		s.Fatal("the driver has no controls")
	}
	return c
}

func lists(s *suite) {
	c := s.controls()
	s.open("/select.html")
	for _, x := range []struct{ option, shown string }{
		{"Deep Blue", "Deep Blue"}, {"Red", "Red"}, {"g", "Green"}, {"2", "Twin"}, {"Green", "Green"}, {"Green", "Green"},
	} {
		e, err := c.Select(s.ctx(), s.ref(`combobox "Colour"`), x.option)
		if err != nil {
			s.Fatalf("%s: %v", x.option, err)
		}
		l := s.line(s.all(), `combobox "Colour"`)
		s.has(l, `value="`+x.shown+` of:`)
		s.hasNot(e.Diff+s.all(), "change:false", "input:false")
	}
	s.has(s.all(), "change:true:g")
	for option, why := range map[string]string{"Pink": "no option", "Twin": "2 of its options", "Grey": "disabled"} {
		_, err := c.Select(s.ctx(), s.ref(`combobox "Colour"`), option)
		s.refused(err, browser.ErrNotActionable, why)
	}
	_, err := c.Select(s.ctx(), s.ref(`listbox "Many"`), "One")
	s.refused(err, browser.ErrNotActionable, "several")
	_, err = c.Select(s.ctx(), s.ref(`combobox "Off"`), "One")
	s.refused(err, browser.ErrNotActionable, "disabled")
	_, err = c.Select(s.ctx(), s.ref(`textbox "Box"`), "One")
	s.refused(err, browser.ErrNotActionable, "not a drop-down")
	_, err = c.Select(s.ctx(), "e0", "One")
	s.refused(err, browser.ErrStaleRef, "")
	e, err := c.Select(s.ctx(), s.ref(`combobox "Go to"`), "form.html")
	if err != nil || !e.Navigated || e.Page.Title != "Form page" {
		s.Errorf("a list that goes elsewhere: %+v %v", e, err)
	}
}

func pressKeys(s *suite) {
	c := s.controls()
	s.open("/select.html")
	s.typ(s.ref(`textbox "Box"`), "abc", browser.TypeOptions{})
	for _, k := range []string{"Backspace", "Home", "Delete", "Tab", "Escape", "ArrowDown", "Space"} {
		if _, err := c.Press(s.ctx(), k); err != nil {
			s.Fatalf("%s: %v", k, err)
		}
	}
	t := s.all()
	s.has(s.line(t, `textbox "Box"`), `value="b"`)
	s.has(t, "key-Backspace-real", "key-Escape-real")
	s.hasNot(t, "-fake")
	for _, bad := range []string{"", "F13", "enter", "Control+A"} {
		if _, err := c.Press(s.ctx(), bad); err == nil {
			s.Errorf("key %q was pressed", bad)
		}
	}
}

func back(s *suite) {
	c := s.controls()
	s.open("/form.html")
	r := s.ref(`button "Send order"`)
	s.open("/spa.html")
	s.click(s.ref(`link "One"`))
	p, err := c.Back(s.ctx())
	if err != nil || !strings.HasSuffix(p.URL, "/spa.html") {
		s.Errorf("within the document: %+v %v", p, err)
	}
	p, err = c.Back(s.ctx())
	if err != nil || p.Title != "Form page" {
		s.Errorf("back: %+v %v", p, err)
	}
	s.has(s.all(), "Order form")
	if _, err := s.b.Click(s.ctx(), r); err != nil {
		// The very same document may have been kept; otherwise the ref is stale.
		s.refused(err, browser.ErrStaleRef, "")
	}
}
