package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"glasshouse/backend/domain"
	"glasshouse/backend/event"
	"glasshouse/backend/policy"
	"glasshouse/backend/tool"
	"glasshouse/browser"
)

const (
	maxSnapshot = 20000
	maxImage    = 32 << 20
)

func theBrowser(ctx context.Context, c *tool.Call) (browser.Browser, error) {
	if c.Browser == nil {
		return nil, domain.E(domain.CodeUnavailable, "This session has no browser", "", nil)
	}
	b, err := c.Browser.Browser(ctx)
	if err != nil {
		return nil, browserError(err)
	}
	return b, nil
}

// browserError says what to do about a failed action.
func browserError(err error) error {
	var ref *browser.RefError
	switch {
	case errors.As(err, &ref):
		hint := "take a new snapshot and use a ref from it"
		if errors.Is(err, browser.ErrNotActionable) {
			hint = "see in a new snapshot or a screenshot what is in the way"
		}
		if len(ref.Candidates) > 0 {
			var lines []string
			for _, l := range ref.Candidates[:min(len(ref.Candidates), 5)] {
				lines = append(lines, headOf(clean(l), 300))
			}
			hint += "; near to it: " + strings.Join(lines, " | ")
		}
		safe := &browser.RefError{Ref: show(ref.Ref), Why: headOf(clean(ref.Why), 500), Err: ref.Err}
		e := domain.E(domain.CodeConflict, "The element cannot be used", hint, safe)
		e.Pointer = "/ref"
		return e
	case errors.Is(err, browser.ErrGone):
		return domain.E(domain.CodeUnavailable, "The browser ended", "the next call starts a new one, without its pages", err)
	}
	var known *domain.Error
	if errors.As(err, &known) {
		return err
	}
	return fmt.Errorf("browser: %w", err)
}

// page is one tab with everything the page says of itself made valid and short.
func page(p browser.Page) browser.Page {
	p.ID, p.URL, p.Title, p.Error = headOf(clean(p.ID), 100), headOf(clean(p.URL), 2000), headOf(clean(p.Title), 500), headOf(clean(p.Error), 500)
	return p
}

func browserOpen() tool.Tool {
	return tool.Tool{
		Name: "browser_open",
		Description: "Open a page in the machine's browser and wait until it is loaded. Servers that run in the machine are reached at http://localhost:PORT. " +
			"Other hosts may need the person's permission. Afterwards take a browser_snapshot to see the page.",
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {"url": {"type": "string", "minLength": 1, "maxLength": 8000, "description": "http or https address, a file:///workspace/… page, or about:blank"}},
			"required": ["url"],
			"additionalProperties": false
		}`),
		Reach: domain.ReachNetwork,
		Title: func(raw json.RawMessage) string { return "Open " + args[struct{ URL string }](raw).URL },
		Action: func(raw json.RawMessage) policy.Action {
			u, err := url.Parse(args[struct{ URL string }](raw).URL)
			if err != nil {
				return policy.Action{}
			}
			port, _ := strconv.Atoi(u.Port())
			if port == 0 {
				port = map[string]int{"http": 80, "https": 443}[u.Scheme]
			}
			return policy.Action{Host: u.Hostname(), Port: port}
		},
		Handler: func(ctx context.Context, c tool.Call) (tool.Result, error) {
			raw := args[struct{ URL string }](c.Args).URL
			if err := checkURL(raw); err != nil {
				return tool.Result{}, err
			}
			b, err := theBrowser(ctx, &c)
			if err != nil {
				return tool.Result{}, err
			}
			p, err := b.Open(ctx, raw)
			if err != nil {
				return tool.Result{}, browserError(err)
			}
			p = page(p)
			res, err := answer(p)
			if p.Error != "" {
				res.Outcome, res.Error = domain.OutcomeFailed, "The page could not be opened: "+p.Error
			}
			res.Text = fmt.Sprintf("%s %q", p.URL, p.Title)
			if p.Status > 0 {
				res.Text += fmt.Sprintf(" (status %d)", p.Status)
			}
			return res, err
		},
	}
}

func checkURL(raw string) error {
	bad := func(what string) error {
		e := domain.E(domain.CodeInvalid, what, "give a whole address like http://localhost:8080/", nil)
		e.Pointer = "/url"
		return e
	}
	u, err := url.Parse(raw)
	if err != nil {
		return bad("The address cannot be read")
	}
	switch u.Scheme {
	case "http", "https":
		if u.Hostname() == "" {
			return bad("The address has no host")
		}
		if u.User != nil {
			return bad("An address with a user or a password in it is not opened")
		}
	case "file":
		if u.Host != "" || !strings.HasPrefix(abs(u.Path)+"/", "/workspace/") {
			return bad("Only files below /workspace can be opened as pages")
		}
	case "about":
		if raw != "about:blank" {
			return bad("Of the about: pages only about:blank can be opened")
		}
	default:
		return bad(fmt.Sprintf("Addresses that begin with %q cannot be opened", show(u.Scheme)))
	}
	return nil
}

func browserSnapshot() tool.Tool {
	return tool.Tool{
		Name: "browser_snapshot",
		Description: "Describe the page as text, one element a line: - button \"Save\" [e12]. The refs in brackets are what browser_click and browser_type take; they are good until the page changes. " +
			"Only what is in view is described unless whole_page is true.",
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"whole_page": {"type": "boolean", "description": "also what is scrolled out of view"},
				"max_chars": {"type": "integer", "minimum": 200, "maximum": 20000, "description": "default 8000"}
			},
			"additionalProperties": false
		}`),
		Reach: domain.ReachRead,
		Title: func(json.RawMessage) string { return "Look at the page" },
		Handler: func(ctx context.Context, c tool.Call) (tool.Result, error) {
			a := args[struct {
				WholePage bool `json:"whole_page"`
				MaxChars  int  `json:"max_chars"`
			}](c.Args)
			b, err := theBrowser(ctx, &c)
			if err != nil {
				return tool.Result{}, err
			}
			s, err := b.Snapshot(ctx, browser.SnapshotOptions{WholePage: a.WholePage, MaxChars: a.MaxChars})
			if err != nil {
				return tool.Result{}, browserError(err)
			}
			s.Page = page(s.Page)
			if text := headOf(clean(s.Text), fileText-4000); text != s.Text {
				s.Text = text
				s.More = max(s.More, 1)
			}
			res, err := answer(s)
			res.Text = s.Text
			return res, err
		},
	}
}

func effect(e browser.Effect) (tool.Result, error) {
	e.Page = page(e.Page)
	e.Dialog, e.Diff = headOf(clean(e.Dialog), 2000), headOf(clean(e.Diff), maxText)
	res, err := answer(e)
	switch {
	case e.None:
		res.Text = "no effect was seen"
	case e.Diff != "":
		res.Text = e.Diff
	case e.Navigated:
		res.Text = "went to " + e.Page.URL
	}
	return res, err
}

func browserClick() tool.Tool {
	return tool.Tool{
		Name: "browser_click",
		Description: "Click an element by its ref from the last snapshot. Waits until it can be clicked. The answer says what changed: navigated, dialog, lines of the snapshot that came (+) and went (-), or none. " +
			"A ref whose element is gone fails: take a new snapshot.",
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {"ref": {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,64}$", "description": "like e12"}},
			"required": ["ref"],
			"additionalProperties": false
		}`),
		Reach: domain.ReachNetwork,
		Title: func(raw json.RawMessage) string { return "Click " + args[struct{ Ref string }](raw).Ref },
		Handler: func(ctx context.Context, c tool.Call) (tool.Result, error) {
			b, err := theBrowser(ctx, &c)
			if err != nil {
				return tool.Result{}, err
			}
			e, err := b.Click(ctx, args[struct{ Ref string }](c.Args).Ref)
			if err != nil {
				return tool.Result{}, browserError(err)
			}
			return effect(e)
		},
	}
}

func browserType() tool.Tool {
	return tool.Tool{
		Name: "browser_type",
		Description: "Type into an input, text area or editable element by its ref. Its content is replaced unless append is true; submit presses Enter afterwards. " +
			"The text is recorded: do not type passwords, ask the person to do it.",
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"ref": {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,64}$", "description": "like e12"},
				"text": {"type": "string", "maxLength": 20000},
				"append": {"type": "boolean", "description": "keep what is there"},
				"submit": {"type": "boolean", "description": "press Enter afterwards"}
			},
			"required": ["ref", "text"],
			"additionalProperties": false
		}`),
		Reach: domain.ReachNetwork,
		Title: func(raw json.RawMessage) string {
			a := args[struct{ Ref, Text string }](raw)
			return fmt.Sprintf("Type %q into %s", headOf(a.Text, 60), a.Ref)
		},
		Handler: func(ctx context.Context, c tool.Call) (tool.Result, error) {
			a := args[struct {
				Ref, Text      string
				Append, Submit bool
			}](c.Args)
			b, err := theBrowser(ctx, &c)
			if err != nil {
				return tool.Result{}, err
			}
			e, err := b.Type(ctx, a.Ref, a.Text, browser.TypeOptions{Append: a.Append, Submit: a.Submit})
			if err != nil {
				return tool.Result{}, browserError(err)
			}
			return effect(e)
		},
	}
}

func browserScreenshot() tool.Tool {
	return tool.Tool{
		Name:        "browser_screenshot",
		Description: "Take a picture of the page as it looks now. The answer names the artefact that holds it.",
		Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"full_page": {"type": "boolean", "description": "the whole page instead of what is in view"},
				"format": {"enum": ["png", "jpeg"], "description": "default png"}
			},
			"additionalProperties": false
		}`),
		Reach: domain.ReachRead,
		Title: func(json.RawMessage) string { return "Take a screenshot" },
		Handler: func(ctx context.Context, c tool.Call) (tool.Result, error) {
			a := args[struct {
				FullPage bool `json:"full_page"`
				Format   string
			}](c.Args)
			if c.Blobs == nil {
				return tool.Result{}, domain.E(domain.CodeUnavailable, "There is no place to keep a picture", "", nil)
			}
			b, err := theBrowser(ctx, &c)
			if err != nil {
				return tool.Result{}, err
			}
			img, err := b.Screenshot(ctx, browser.ScreenshotOptions{FullPage: a.FullPage, JPEG: a.Format == "jpeg", Quality: 80})
			if err != nil {
				return tool.Result{}, browserError(err)
			}
			blob, err := c.Blobs.PutBlob(ctx, bytes.NewReader(img.Data), maxImage)
			if err != nil {
				return tool.Result{}, err
			}
			// The type is what was asked for and what the bytes say, not what the machine claims.
			switch {
			case bytes.HasPrefix(img.Data, []byte("\x89PNG\r\n\x1a\n")):
				blob.Mime, blob.Name = "image/png", "screenshot.png"
			case bytes.HasPrefix(img.Data, []byte("\xff\xd8\xff")):
				blob.Mime, blob.Name = "image/jpeg", "screenshot.jpg"
			default:
				return tool.Result{}, domain.E(domain.CodeInternal, "The browser's picture is neither PNG nor JPEG", "try again", nil)
			}
			res, err := answer(map[string]any{"sha256": blob.Sha256, "mime": blob.Mime, "size": blob.Size, "width": img.Width, "height": img.Height})
			res.Artefacts = []event.Blob{blob}
			res.Text = fmt.Sprintf("%d × %d, artefact %s", img.Width, img.Height, blob.Sha256)
			return res, err
		},
	}
}
