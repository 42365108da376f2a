//go:build desktop

// Package desktop is the window: the only importer of Wails. The page inside
// speaks to the core through the asset handler, with the same calls as a browser.
package desktop

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/wailsapp/wails/v2"
	"github.com/wailsapp/wails/v2/pkg/options"
	"github.com/wailsapp/wails/v2/pkg/options/assetserver"
	"github.com/wailsapp/wails/v2/pkg/options/linux"
)

// Options of the window.
type Options struct {
	Version string
	Handler http.Handler
}

// Run opens the window and returns when it closes. The core goes on.
func Run(o Options) error {
	native := &Native{}
	return wails.Run(&options.App{
		Title: "Glasshouse", Width: 1280, Height: 800, MinWidth: 960, MinHeight: 560,
		BackgroundColour: &options.RGBA{R: 246, G: 246, B: 243, A: 255},
		AssetServer:      &assetserver.Options{Handler: recovered(o.Handler)},
		OnStartup:        native.start,
		OnDomReady:       func(context.Context) { repairSignals() },
		Bind:             []any{native},
		Linux:            &linux.Options{ProgramName: "glasshouse"},
	})
}

// recovered keeps a fault in a handler from ending the window: the web view's
// runtime would turn a panic into a crash of the whole process.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				fmt.Fprintf(os.Stderr, "fault in %s %s: %v\n", r.Method, r.URL.Path, v)
				// Without an answer the page would wait for ever.
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = w.Write([]byte(`{"code":"internal","what":"a fault inside the window","hint":"please report it with what the terminal shows"}`))
			}
		}()
		next.ServeHTTP(w, r)
	})
}
