package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
)

// infoWait is how long a core may take to say which program it runs. One that takes longer
// is busy, and the command's own calls tell of it.
const infoWait = 10 * time.Second

// fits compares the program of the core with this one. A difference is told once per
// command, on the error output alone; programs that would misunderstand each other are
// kept apart.
func (e *env) fits(ctx context.Context, c *Client) error {
	ctx, stop := context.WithTimeout(ctx, infoWait)
	defer stop()
	var core httpapi.Info
	if err := c.info(ctx, &core); err != nil {
		return nil // what is wrong shows in the command's own calls
	}
	text, fits := httpapi.Differ(core, httpapi.ThisProgram(Version))
	switch {
	case !fits:
		return domain.E(domain.CodeConflict, text, "", nil)
	case text != "" && !e.told:
		fmt.Fprintf(e.err, "glasshouse: %s\n", one(text))
	}
	if d := core.Disk; d != nil && d.State != "ok" && d.Text != "" && !e.told {
		fmt.Fprintf(e.err, "glasshouse: %s\n", one(d.Text))
	}
	e.told = true
	return nil
}

// info reads what the core says of itself; what is no such answer is an error.
func (c *Client) info(ctx context.Context, out *httpapi.Info) error {
	b, err := c.open(ctx, http.MethodGet, at{"info"}, nil, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	return json.NewDecoder(io.LimitReader(b, 1<<20)).Decode(out)
}
