//go:build desktop

// Package desktop is the window: the only importer of Wails. The page inside
// speaks to the core through the asset handler, with the same calls as a browser;
// what only a window can do (dialogs, menus, notices, its place) is here.
package desktop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/wailsapp/wails/v2"
	"github.com/wailsapp/wails/v2/pkg/options"
	"github.com/wailsapp/wails/v2/pkg/options/assetserver"
	"github.com/wailsapp/wails/v2/pkg/options/linux"
)

// Options of the window.
type Options struct {
	// Handler serves the page and passes its calls on to the core.
	Handler http.Handler
	// Link is the way to the core.
	Link *Link
	// Instance makes it the one window of its data folder.
	Instance *Instance
	// State is the file in which the window remembers its place.
	State string
}

// ErrNoDisplay: there is no screen to show a window on.
var ErrNoDisplay = errors.New("the window finds no display")

// Run opens the window and returns when it closes. The core goes on. ctx is the
// program's, which a signal ends.
func Run(ctx context.Context, o Options) (err error) {
	// The toolkit panics where it finds no display.
	defer func() {
		if v := recover(); v != nil {
			if !strings.Contains(fmt.Sprint(v), "init GTK") {
				panic(v)
			}
			err = ErrNoDisplay
		}
	}()
	native := newNative(o)
	gpu := linux.WebviewGpuPolicyAlways
	if prepareView() {
		gpu = linux.WebviewGpuPolicyNever
	}
	return wails.Run(&options.App{
		Title: "Glasshouse", Width: native.place.Width, Height: native.place.Height, MinWidth: leastWidth, MinHeight: leastHeight,
		BackgroundColour: &options.RGBA{R: 246, G: 246, B: 243, A: 255},
		AssetServer:      &assetserver.Options{Handler: recovered(o.Handler)},
		Menu:             native.menu(),
		OnStartup:        func(app context.Context) { native.start(ctx, app) },
		OnDomReady:       func(context.Context) { repairSignals() },
		OnBeforeClose:    native.beforeClose,
		OnShutdown:       func(context.Context) { native.stop() },
		Bind:             []any{native},
		// A file that is dropped on the window is nobody's order to open it.
		DragAndDrop: &options.DragAndDrop{DisableWebViewDrop: true},
		Linux:       &linux.Options{ProgramName: "glasshouse", WebviewGpuPolicy: gpu},
	})
}

// inWindow stands for the server that a handler runs in.
var inWindow = &http.Server{}

// recovered keeps a fault in a handler from ending the window: the web view's
// runtime would turn a panic into a crash of the whole process. Its JavaScript
// engine may install its signal handlers at any time, so they are looked at before
// anything of ours runs.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		repairSignals()
		defer func() {
			v := recover()
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				return
			}
			if v != nil {
				fmt.Fprintf(os.Stderr, "fault in %s %s: %v\n", r.Method, r.URL.Path, v)
				// Without an answer the page would wait for ever.
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = w.Write([]byte(`{"code":"internal","what":"a fault inside the window","hint":"please report it with what the terminal shows"}`))
			}
		}()
		// A page that goes away cuts its streams. As in any server the handler ends then
		// by a panic of its own, which is no fault and is caught above.
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, inWindow)))
	})
}
