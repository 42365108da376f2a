package desktop

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPlaceIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c", "window.json")
	p, err := readPlace(path)
	if err != nil || p != (Place{Width: usualWidth, Height: usualHeight}) {
		t.Fatalf("nothing saved: %+v %v", p, err)
	}
	want := Place{X: 40, Y: -3, Width: 1500, Height: 900, Maximised: true, Placed: true, Told: true, Quiet: true}
	for range 2 { // over an existing file too
		if err := want.save(path); err != nil {
			t.Fatal(err)
		}
	}
	if p, err = readPlace(path); err != nil || p != want {
		t.Errorf("%+v %v", p, err)
	}
	left, _ := os.ReadDir(filepath.Dir(path))
	if len(left) != 1 {
		t.Errorf("left beside it: %v", left)
	}
}

func TestPlaceOfABrokenFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"cut": `{"x":`, "empty": "", "other": `[1]`, "wrong": `{"width":"wide"}`} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := readPlace(path)
		if err == nil || p.Width != usualWidth || p.Height != usualHeight || p.Placed {
			t.Errorf("%s: %+v %v", name, p, err)
		}
	}
	path := filepath.Join(dir, "far")
	_ = os.WriteFile(path, []byte(`{"x":99999999,"y":-99999999,"width":-4,"height":3,"placed":true}`), 0o600)
	p, err := readPlace(path)
	if err != nil || p.Placed || p.Width != usualWidth || p.Height < leastHeight {
		t.Errorf("%+v %v", p, err)
	}
	if _, err := readPlace(dir); err == nil {
		t.Error("a folder was read as a place")
	}
}

func TestPlaceFitsTheScreens(t *testing.T) {
	one := Screen{0, 0, 1920, 1080}
	two := Screen{1920, 0, 2560, 1440}
	at := func(x, y, w, h int) Place { return Place{X: x, Y: y, Width: w, Height: h, Placed: true} }
	for name, c := range map[string]struct {
		p       Place
		screens []Screen
		want    Place
	}{
		"where it was":               {at(100, 100, 1280, 800), []Screen{one, two}, at(100, 100, 1280, 800)},
		"on the second":              {at(2000, 500, 1280, 800), []Screen{one, two}, at(2000, 500, 1280, 800)},
		"the second is gone":         {at(2000, 500, 1280, 800), []Screen{one}, at(320, 140, 1280, 800)},
		"the screen shrank":          {at(0, 0, 2560, 1400), []Screen{one}, at(0, 0, 1920, 1080)},
		"its lower part is outside":  {at(100, 900, 1280, 800), []Screen{one}, at(100, 280, 1280, 800)},
		"its head is above":          {at(100, -700, 1280, 800), []Screen{one}, at(320, 140, 1280, 800)},
		"a screen below the least":   {at(10, 10, 1280, 800), []Screen{{0, 0, 800, 600}}, at(0, 0, 800, 600)},
		"never placed":               {Place{Width: 1280, Height: 800}, []Screen{two}, Place{X: 2560, Y: 320, Width: 1280, Height: 800}},
		"no screens are known":       {at(5000, 5000, 1280, 800), nil, at(5000, 5000, 1280, 800)},
		"a strip too thin to be hit": {at(1900, 100, 1280, 800), []Screen{one}, at(320, 140, 1280, 800)},
	} {
		if got := c.p.fit(c.screens); got != c.want {
			t.Errorf("%s: %+v, not %+v", name, got, c.want)
		}
	}
}
