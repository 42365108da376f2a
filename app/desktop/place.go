package desktop

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Size of a window that was never opened before, and the smallest one.
const (
	usualWidth, usualHeight = 1280, 800
	leastWidth, leastHeight = 960, 560
)

// Place is what the window remembers from one start to the next.
type Place struct {
	X         int  `json:"x"`
	Y         int  `json:"y"`
	Width     int  `json:"width"`
	Height    int  `json:"height"`
	Maximised bool `json:"maximised"`
	// Placed: X and Y are a place the window had, not the zero value.
	Placed bool `json:"placed"`
	// Told: the person knows that closing the window ends nothing.
	Told bool `json:"told"`
	// Quiet: no notifications.
	Quiet bool `json:"quiet"`
}

// Screen is the usable part of one monitor.
type Screen struct{ X, Y, Width, Height int }

// readPlace reads what was saved. Nothing saved is no error; a file that cannot be
// used is one, and the usual place comes with it: the window opens all the same.
func readPlace(path string) (Place, error) {
	usual := Place{Width: usualWidth, Height: usualHeight}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return usual, nil
	}
	if err != nil {
		return usual, fmt.Errorf("the window's last place cannot be read, it opens at the usual one: %w", err)
	}
	defer f.Close()
	var p Place
	b := make([]byte, 4096)
	n, _ := f.Read(b)
	if err := json.Unmarshal(b[:n], &p); err != nil {
		return usual, fmt.Errorf("%s is not what a window saved, it opens at the usual place: %w", path, err)
	}
	const far = 1 << 20
	if p.X < -far || p.X > far || p.Y < -far || p.Y > far {
		p.X, p.Y, p.Placed = 0, 0, false
	}
	if p.Width <= 0 || p.Width > far || p.Height <= 0 || p.Height > far {
		p.Width, p.Height = usualWidth, usualHeight
	}
	p.Width, p.Height = max(p.Width, leastWidth), max(p.Height, leastHeight)
	return p, nil
}

// save writes the place so that a crash leaves the old file or the new one.
func (p Place) save(path string) error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".window-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// How much of the window's upper edge must be on a screen for a hand to reach it.
const reachWidth, reachHeight = 120, 24

// fit moves a saved place onto the screens there are now: a monitor may be gone or
// smaller. Without screens it is as it was.
func (p Place) fit(screens []Screen) Place {
	if len(screens) == 0 {
		return p
	}
	on := -1
	for i, s := range screens {
		w := min(p.X+p.Width, s.X+s.Width) - max(p.X, s.X)
		if p.Placed && w >= reachWidth && p.Y >= s.Y && p.Y <= s.Y+s.Height-reachHeight {
			on = i
			break
		}
	}
	s := screens[max(on, 0)]
	// The least size yields to a screen that is smaller still.
	p.Width, p.Height = min(p.Width, s.Width), min(p.Height, s.Height)
	if on < 0 {
		p.X, p.Y = s.X+(s.Width-p.Width)/2, s.Y+(s.Height-p.Height)/2
		return p
	}
	// Wholly in view where it fits, for its lower edge holds the composer.
	p.X = max(s.X, min(p.X, s.X+s.Width-p.Width))
	p.Y = max(s.Y, min(p.Y, s.Y+s.Height-p.Height))
	return p
}
