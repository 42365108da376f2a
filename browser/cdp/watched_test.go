package cdp_test

import (
	"context"
	"testing"

	"glasshouse/browser"
	"glasshouse/browser/browsertest"
	"glasshouse/browser/cdp"
)

// Every case of the contract but those of watching holds while somebody looks.
func TestContractWatched(t *testing.T) {
	browsertest.RunWatched(t, func(t *testing.T) browsertest.Env {
		return browsertest.Env{
			Site:   site(t),
			Opener: opener(t),
			New: func(ctx context.Context, open browser.Opener) (browser.Browser, error) {
				return cdp.New(ctx, open, limits)
			},
		}
	})
}
