package browsertest

import (
	"strings"
	"time"

	"glasshouse/browser"
)

func init() {
	cases = append(cases,
		testCase{"typing", typing},
		testCase{"fields that refuse", refusingFields},
		testCase{"typing and submitting", submit},
		testCase{"typing in frames and shadow roots", typingElsewhere},
	)
}

func typing(s *suite) {
	s.open("/edit.html")
	for _, c := range []struct {
		field, text string
		add         bool
		want        string
	}{
		{"Plain", "after", false, "after"},
		{"Plain", " more", true, "after more"},
		{"Plain", "", false, ""},
		{"Plain", "grüße 世界 🎉 \"quoted\"", false, `grüße 世界 🎉 \"quoted\"`},
		{"Amount", "34", false, "34"},
		{"Amount", "5", true, "345"},
		{"Mail", ".org", true, "a@b.example.org"},
		{"Area", "one\ntwo", false, "one two"},
		{"Area", " three", true, "one two three"},
		{"Rich text", "new text", false, "new text"},
		{"Rich text", " and more", true, "new text and more"},
		{"Short", "12345", false, "12345"},
	} {
		s.typ(s.ref(`"`+c.field+`"`), c.text, browser.TypeOptions{Append: c.add})
		l := s.line(s.all(), `"`+c.field+`"`)
		if c.want == "" {
			s.hasNot(l, "value=")
		} else {
			s.has(l, `value="`+c.want+`"`)
		}
	}
	s.has(s.log(), "input:true")
	s.hasNot(s.log(), "input:false", "change:false")
}

func refusingFields(s *suite) {
	s.open("/edit.html")
	for field, why := range map[string]string{"Fixed": "read-only", "Dead": "disabled", "Date": "type date", "Thief": "focus"} {
		_, err := s.b.Type(s.ctx(), s.ref(`"`+field+`"`), "text", browser.TypeOptions{})
		s.refused(err, browser.ErrNotActionable, why)
	}
	_, err := s.b.Type(s.ctx(), s.ref(`"Short"`), "123456", browser.TypeOptions{})
	s.refused(err, browser.ErrNotActionable, "at most 5")
	_, err = s.b.Type(s.ctx(), s.ref(`"Plain"`), "a\nb", browser.TypeOptions{})
	s.refused(err, browser.ErrNotActionable, "one line")
	s.has(s.line(s.all(), `"Plain"`), `value="before"`)
	if _, err = s.b.Type(s.ctx(), s.ref(`"Upper"`), "small", browser.TypeOptions{}); err == nil || !strings.Contains(err.Error(), "SMALL") {
		s.Errorf("a field that changes what is typed: %v", err)
	}
	s.open("/form.html")
	_, err = s.b.Type(s.ctx(), s.ref(`button "Send order"`), "x", browser.TypeOptions{})
	s.refused(err, browser.ErrNotActionable, "not a field")
	_, err = s.b.Type(s.ctx(), s.ref(`combobox "Colour"`), "Red", browser.TypeOptions{})
	s.refused(err, browser.ErrNotActionable, "drop-down")
}

func submit(s *suite) {
	s.open("/edit.html")
	e := s.typ(s.ref(`"Search"`), "glass & <house>", browser.TypeOptions{Submit: true})
	if !e.Navigated || e.Page.Title != "Results" {
		s.Errorf("effect: %+v", e)
	}
	s.has(s.all(), "Results for glass & <house>")
}

func typingElsewhere(s *suite) {
	s.open("/frames.html")
	deadline := time.Now().Add(30 * time.Second)
	for !strings.Contains(s.all(), "I am nested") && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
	}
	t := s.all()
	var refs []string
	for l := range strings.Lines(t) {
		if strings.Contains(l, `"Inner field"`) {
			refs = append(refs, refIn(l))
		}
	}
	if len(refs) != 6 {
		s.Fatalf("%d fields in:\n%s", len(refs), t)
	}
	for i, who := range []string{"same", "other", "nested"} {
		s.typ(refs[i], "in "+who, browser.TypeOptions{})
		s.has(s.log(), "from "+who+"=in "+who)
	}
	var lists []string
	for l := range strings.Lines(t) {
		if strings.Contains(l, `"Inner list"`) {
			lists = append(lists, refIn(l))
		}
	}
	for _, i := range []int{2, 0, 1} {
		who := []string{"same", "other", "nested"}[i]
		if _, err := s.controls().Select(s.ctx(), lists[i], "two"); err != nil {
			s.Fatalf("list in %s: %v", who, err)
		}
		s.has(s.log(), "from "+who+"-list=two:real")
	}
}
