//go:build desktop && linux

package desktop

/*
#cgo pkg-config: gtk+-3.0
#cgo !webkit2_41 pkg-config: webkit2gtk-4.0
#cgo webkit2_41 pkg-config: webkit2gtk-4.1

#include <stdlib.h>
#include "view_linux.h"
*/
import "C"

import (
	"os"
	"path/filepath"
	"sync"
	"unsafe"
)

// view is the system's side of the window.
var view struct {
	sync.Mutex
	place  Place
	looked func()
}

// openView begins to watch the window that is about to open and puts it where it was.
func openView(p Place, looked func()) {
	view.Lock()
	view.place, view.looked = p, looked
	view.Unlock()
	C.gh_guard()
	C.gh_settle()
}

// viewPlace is where the window is now; false: it was not on a screen yet.
func viewPlace() (Place, bool) {
	n := C.gh_now()
	return Place{X: int(n.x), Y: int(n.y), Width: int(n.width), Height: int(n.height), Maximised: n.maximised != 0, Placed: true}, n.seen != 0
}

func viewActive() bool { return C.gh_now().active != 0 }

//export ghFit
func ghFit(screens *C.gh_place, n C.int, to *C.gh_place) {
	var all []Screen
	for _, s := range unsafe.Slice(screens, int(n)) {
		all = append(all, Screen{int(s.x), int(s.y), int(s.width), int(s.height)})
	}
	view.Lock()
	p := view.place.fit(all)
	view.Unlock()
	to.x, to.y, to.width, to.height = C.int(p.X), C.int(p.Y), C.int(p.Width), C.int(p.Height)
	if p.Maximised {
		to.maximised = 1
	}
}

//export ghLooked
func ghLooked() {
	view.Lock()
	f := view.looked
	view.Unlock()
	if f != nil {
		go f() // the main thread draws
	}
}

func presentView(token string) {
	c := C.CString(token)
	defer C.free(unsafe.Pointer(c))
	C.gh_present(c)
}

func editView(command string) {
	c := C.CString(command)
	defer C.free(unsafe.Pointer(c))
	C.gh_edit(c)
}

func zoomView(steps int) { C.gh_zoom(C.int(steps)) }

func fullscreenView() { C.gh_fullscreen() }

func hintView(label string, k stroke) {
	if k.code == 0 {
		return
	}
	c := C.CString(label)
	defer C.free(unsafe.Pointer(c))
	b := func(v bool) C.int {
		if v {
			return 1
		}
		return 0
	}
	C.gh_hint(c, C.uint(k.code), b(k.control), b(k.shift))
}

// prepareView sets what the web view reads from the environment before it starts.
// With NVIDIA's own driver its fast path for handing over frames shows a blank window
// on many computers, so there it is left out, unless the person decided otherwise.
//
// Where there is no graphics card, layers that a card would join cost memory and time
// of the processor, so the view paints without them.
func prepareView() (software bool) {
	if _, err := os.Stat("/proc/driver/nvidia/version"); err != nil {
		cards, err := filepath.Glob("/dev/dri/renderD*")
		return err == nil && len(cards) == 0
	}
	if _, set := os.LookupEnv("WEBKIT_DISABLE_DMABUF_RENDERER"); !set {
		_ = os.Setenv("WEBKIT_DISABLE_DMABUF_RENDERER", "1")
	}
	return true
}
