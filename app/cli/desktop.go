//go:build desktop

package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"glasshouse/app/config"
	"glasshouse/app/desktop"
	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
)

// desktopCmd opens the window. Only builds with the desktop tag have it, for it
// needs the system's web view.
func (e *env) desktopCmd() *cobra.Command {
	return &cobra.Command{
		Use: "desktop", Short: "Open the window, or bring it to the front", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			paths, err := config.Default()
			if err != nil {
				return err
			}
			if err := paths.Prepare(); err != nil {
				return err
			}
			one, err := desktop.Claim(paths.WindowLock(), paths.WindowSocket())
			if errors.Is(err, desktop.ErrRaised) {
				e.note("%s", err)
				return nil
			}
			if err != nil {
				return err
			}
			defer one.Close()
			if _, err := e.client(cmd.Context()); err != nil {
				return err
			}
			assets, err := dist(e.assets)
			if err != nil {
				return err
			}
			link := desktop.NewLink(paths.Socket(), func(ctx context.Context) error { return startAgain(ctx, paths) },
				domain.E(domain.CodeUnavailable, "Glasshouse was quit; its machines are off", "choose Session, Start the core again, or do anything that needs it", nil))
			err = desktop.Run(cmd.Context(), desktop.Options{
				Handler: httpapi.Front(assets, httpapi.Proxy(httpapi.Telling(link.Transport(), httpapi.ThisProgram(Version)))), Link: link, Instance: one, State: paths.WindowState(),
			})
			if errors.Is(err, desktop.ErrNoDisplay) {
				return domain.E(domain.CodeUnavailable, err.Error(), "start it in a desktop session (DISPLAY or WAYLAND_DISPLAY is set there), or use 'glasshouse serve' and a browser", nil)
			}
			return err
		},
	}
}

// startAgain starts the core for an open window, and says in the door's words why
// none starts.
func startAgain(ctx context.Context, paths config.Paths) error {
	err := startCore(ctx, paths)
	if de := (*domain.Error)(nil); err == nil || errors.As(err, &de) {
		return err
	}
	return domain.E(domain.CodeUnavailable, "the core did not start: "+err.Error(), "see the log in the data folder's logs/", err)
}
