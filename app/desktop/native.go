//go:build desktop

package desktop

import (
	"context"
	"sync/atomic"

	"github.com/wailsapp/wails/v2/pkg/runtime"
)

// Native is all that the page can do beyond HTTP. Every exported method can be
// called by the page's scripts, so there are few, and none changes anything.
type Native struct {
	ctx atomic.Pointer[context.Context]
}

func (n *Native) start(ctx context.Context) { n.ctx.Store(&ctx) }

// PickFolder lets the person choose a folder by the system's dialog and returns
// its path; empty when none was chosen.
func (n *Native) PickFolder() (string, error) {
	ctx := n.ctx.Load()
	if ctx == nil {
		return "", nil
	}
	return runtime.OpenDirectoryDialog(*ctx, runtime.OpenDialogOptions{Title: "Choose a folder or repository"})
}
