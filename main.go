// Glasshouse: agents work inside machines of glass; you keep the only door.
package main

import (
	"os"

	"glasshouse/app"
	"glasshouse/frontend"
)

func main() { os.Exit(app.Main(frontend.Assets, os.Args[1:])) }
