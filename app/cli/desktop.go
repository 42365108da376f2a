//go:build desktop

package cli

import (
	"github.com/spf13/cobra"

	"glasshouse/app/desktop"
	"glasshouse/app/httpapi"
)

// desktopCmd opens the window. Only builds with the desktop tag have it, for it
// needs the system's web view.
func (e *env) desktopCmd() *cobra.Command {
	return &cobra.Command{
		Use: "desktop", Short: "Open the window", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			assets, err := dist(e.assets)
			if err != nil {
				return err
			}
			return desktop.Run(desktop.Options{Version: Version, Handler: httpapi.Front(assets, httpapi.Proxy(SocketTransport(c.paths.Socket())))})
		},
	}
}
