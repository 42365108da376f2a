//go:build desktop

// Command barewindow is a window of the same toolkit with nothing in it: what
// Glasshouse's window is measured against. It is no part of the product.
package main

import (
	"fmt"
	"net/http"
	"os"

	"github.com/wailsapp/wails/v2"
	"github.com/wailsapp/wails/v2/pkg/options"
	"github.com/wailsapp/wails/v2/pkg/options/assetserver"
	"github.com/wailsapp/wails/v2/pkg/options/linux"
)

const page = `<!doctype html><meta charset="utf-8"><title>Bare</title><body><h1>Bare</h1><p id="said"></p>
<script>
fetch('/v1/hello').then((r) => r.text()).then((t) => {
	document.getElementById('said').textContent = t
	requestAnimationFrame(() => requestAnimationFrame(() => performance.mark('glasshouse-ready')))
})
</script>`

func main() {
	err := wails.Run(&options.App{
		Title: "Bare", Width: 1280, Height: 800,
		AssetServer: &assetserver.Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/hello" {
				fmt.Fprint(w, "hello")
				return
			}
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, page)
		})},
		Linux: &linux.Options{ProgramName: "barewindow"},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
