package builtin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"glasshouse/backend/domain"
	"glasshouse/backend/tool"
)

// fileGuard is how long a guest may take over a call about files. A search through
// a large workspace of an emulated machine fits in.
var fileGuard = 5 * time.Minute

var errNoAnswer = errors.New("the machine does not answer")

// answering bounds a call about files: a guest that says nothing must not hold a
// step, and what waits behind it, for ever.
func answering(h tool.Handler, changes bool) tool.Handler {
	return func(ctx context.Context, c tool.Call) (tool.Result, error) {
		limit := fileGuard
		if c.Timeout > 0 {
			limit = min(limit, c.Timeout)
		}
		gctx, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
		defer cancel()
		res, err := h(gctx, c)
		if err == nil || ctx.Err() != nil || !errors.Is(context.Cause(gctx), errNoAnswer) {
			return res, err
		}
		if changes {
			return lost(fmt.Sprintf("The machine did not answer within %v; whether the file was written is not known", limit)), nil
		}
		return tool.Result{}, domain.E(domain.CodeUnavailable, fmt.Sprintf("The machine did not answer within %v", limit), "try again, or stop and start the machine", err)
	}
}
