package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"glasshouse/app/httpapi"
)

func (e *env) serveCmd() *cobra.Command {
	var listen, token string
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve the page and /v1 to a browser on this computer", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.client(cmd.Context())
			if err != nil {
				return err
			}
			if _, _, err := net.SplitHostPort(listen); err != nil {
				return usage("--listen is a loopback address and a port, as in 127.0.0.1:8080, not %q", listen)
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("%w\n  choose another port, or 127.0.0.1:0 for any that is free", err)
			}
			if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
				l.Close()
				return usage("--listen must be a loopback address, not %s: nobody else may reach your agents", ip)
			}
			if token == "" {
				token = httpapi.NewToken()
			}
			assets, err := dist(e.assets)
			if err != nil {
				return err
			}
			front := httpapi.Front(assets, httpapi.Proxy(httpapi.Telling(SocketTransport(c.paths.Socket()), httpapi.ThisProgram(Version))))
			srv := &http.Server{Handler: httpapi.Guard(token, l.Addr(), front), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
			fmt.Fprintf(e.out, "http://%s/?token=%s\n", l.Addr(), token)
			e.note("open this address in a browser; it holds the token, keep it to yourself. Ctrl-C ends it")
			stop := context.AfterFunc(cmd.Context(), func() { srv.Close() })
			defer stop()
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback address and port; 0 = any that is free")
	cmd.Flags().StringVar(&token, "token", "", "token to ask for (default: a new random one)")
	return cmd
}

func dist(assets fs.FS) (fs.FS, error) { return fs.Sub(assets, "dist") }
