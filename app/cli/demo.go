package cli

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"glasshouse/app/config"
	"glasshouse/app/httpapi"
	"glasshouse/backend/event"
	"glasshouse/vm/proc"
)

//go:embed sample
var sample embed.FS

func (e *env) demoCmd() *cobra.Command {
	var machine string
	var keep, inside bool
	cmd := &cobra.Command{
		Use: "demo", Short: "Run the whole job end to end on a sample and print its timeline", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if machine != "local" && machine != "lima" {
				return usage("--machine is local or lima, not %q", machine)
			}
			d := &demo{env: e, machine: machine, keep: keep, runner: &proc.Runner{}}
			if inside {
				return d.run(cmd.Context())
			}
			return d.enter(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&machine, "machine", "local", "lima (a VM) or local (a sandbox, not a VM)")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the demo's folder")
	cmd.Flags().BoolVar(&inside, "inside", false, "")
	_ = cmd.Flags().MarkHidden("inside")
	return cmd
}

// demo is the main job on a sample: a core, a machine, a remote and a small
// internet of its own, all gone afterwards.
type demo struct {
	*env
	machine string
	keep    bool
	runner  *proc.Runner
	dir     string // everything of this demo
	c       *Client
}

// demoEnv names the demo's folder to the process inside the namespaces.
const demoEnv = "GLASSHOUSE_DEMO_DIR"

func (d *demo) say(format string, a ...any) { fmt.Fprintf(d.out, "\n== "+format+"\n", a...) }

// enter prepares what needs the network, then runs the demo in a network
// namespace of its own, where a small internet is ours.
func (d *demo) enter(ctx context.Context) (err error) {
	// Short, for it holds sockets; readable on the way for a root core's service user.
	if d.dir, err = os.MkdirTemp("", "gh-demo-"); err != nil {
		return err
	}
	if err := os.Chmod(d.dir, 0o711); err != nil {
		return err
	}
	defer func() {
		if d.keep {
			fmt.Fprintf(d.err, "kept: %s\n", d.dir)
		} else if rerr := os.RemoveAll(d.dir); err == nil && rerr != nil {
			err = rerr
		}
	}()
	if d.machine == "local" {
		fmt.Fprintln(d.out, "machine: local, a sandbox that shares this computer's kernel (not a VM)")
	} else {
		fmt.Fprintln(d.out, "machine: lima, a virtual machine")
	}
	paths, err := d.environment()
	if err != nil {
		return err
	}
	// The image comes from the package mirrors, so it is built out here.
	d.say("guest image")
	if err := startCore(ctx, paths); err != nil {
		return err
	}
	d.c = socketClient(paths)
	stop := d.showProgress(ctx, d.c)
	var img httpapi.ImageView
	err = d.c.post(ctx, at{"image"}, nil, nil, &img)
	stop()
	if qerr := d.quit(ctx); err == nil {
		err = qerr
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "image %s\n", img.Hash[:12])
	return d.isolate(ctx)
}

// environment points the settings of this process and its children to the demo's folder.
func (d *demo) environment() (config.Paths, error) {
	for k, v := range map[string]string{"GLASSHOUSE_DATA": filepath.Join(d.dir, "d"), "GLASSHOUSE_CONFIG": filepath.Join(d.dir, "c")} {
		if err := os.Setenv(k, v); err != nil {
			return config.Paths{}, err
		}
	}
	paths, err := config.Default()
	if err != nil {
		return paths, err
	}
	if err := os.MkdirAll(paths.Config, 0o700); err != nil {
		return paths, err
	}
	return paths, os.WriteFile(paths.ConfigFile(), []byte(fmt.Sprintf("machine = %q\nresolver = %q\n", d.machine, demoDNS)), 0o600)
}

func (d *demo) quit(ctx context.Context) error {
	_, err := quit(context.WithoutCancel(ctx), true)
	return err
}

// run is the job itself, inside the namespaces.
func (d *demo) run(ctx context.Context) (err error) {
	d.dir = os.Getenv(demoEnv)
	if d.dir == "" {
		return usage("--inside is for the demo itself")
	}
	if err := d.internet(ctx); err != nil {
		return err
	}
	paths, err := d.environment()
	if err != nil {
		return err
	}
	d.say("a sample repository with a failing test, and an empty remote")
	src, remote := filepath.Join(d.dir, "orders"), filepath.Join(d.dir, "remote.git")
	if err := d.makeSample(ctx, src, remote); err != nil {
		return err
	}
	before, err := fingerprint(src)
	if err != nil {
		return err
	}
	if err := startCore(ctx, paths); err != nil {
		return err
	}
	d.c = socketClient(paths)
	d.c.actor = "demo"
	defer func() {
		if qerr := d.quit(ctx); err == nil && qerr != nil {
			err = qerr
		}
		if err == nil {
			fmt.Fprintln(d.out, "\ndemo: ok")
		}
	}()
	d.say("a project with a machine of its own")
	stop := d.showProgress(ctx, d.c)
	var p httpapi.ProjectView
	err = d.c.post(ctx, at{"projects"}, nil, httpapi.NewProject{Source: src, Kind: d.machine}, &p)
	stop()
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "project %s, machine %s (%s), base %s, %d files; %d ignored and %d uncommitted stayed outside\n",
		p.Name, p.Machine, p.Kind, p.Imported.Commit[:12], p.Imported.Files, p.Imported.IgnoredOut, len(p.Imported.Dirty))
	if err := d.nothingSecret(ctx, p); err != nil {
		return err
	}
	d.say("the agent works: a playbook, a written list of tool calls (no model)")
	session, err := d.work(ctx, p)
	if err != nil {
		return err
	}
	if err := d.review(ctx, p, session, remote); err != nil {
		return err
	}
	after, err := fingerprint(src)
	if err != nil {
		return err
	}
	if before != after {
		return errors.New("the source repository changed")
	}
	fmt.Fprintln(d.out, "the source repository is byte for byte what it was")
	return d.verify(ctx)
}

// work runs the playbook; a second client answers the question about the new host.
func (d *demo) work(ctx context.Context, p httpapi.ProjectView) (string, error) {
	text, err := sample.ReadFile("sample/playbook.yaml")
	if err != nil {
		return "", err
	}
	s, err := newSession(ctx, d.c, newOne{Project: string(p.ID), Title: "fix the failing test", Agent: "playbook"}, []string{"python3 -m unittest"})
	if err != nil {
		return "", err
	}
	actx, cancel := context.WithCancel(ctx)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- d.answer(actx, string(s.ID)) }()
	if err := d.turn(ctx, d.c, string(s.ID), turnStart{Agent: "playbook", Input: string(text)}, view{}); err != nil {
		return "", fmt.Errorf("the playbook did not get through: %w", err)
	}
	cancel()
	if err := <-answered; err != nil && !errors.Is(err, context.Canceled) {
		return "", err
	}
	return string(s.ID), d.c.post(ctx, at{"sessions", string(s.ID), "end"}, nil, nil, nil)
}

// answer allows the demo's own host once and nothing else.
func (d *demo) answer(ctx context.Context, session string) error {
	return d.c.follow(ctx, url.Values{"session_id": {session}, "types": {"approval.requested"}}, 0, func(ev event.Envelope) (bool, error) {
		pl, err := event.Decode(ev)
		if err != nil {
			return false, err
		}
		q := pl.(*event.ApprovalRequested)
		choice := "deny"
		if q.Kind == "egress" && q.Host == demoHost {
			choice = "once"
		}
		return true, d.c.post(ctx, at{"approvals", string(q.Approval), "answer"}, nil, map[string]string{"digest": q.Digest, "choice": choice}, nil)
	})
}

// nothingSecret looks for what must not have come along.
func (d *demo) nothingSecret(ctx context.Context, p httpapi.ProjectView) error {
	s, err := newSession(ctx, d.c, newOne{Project: string(p.ID), Title: "look for what must not be here", Agent: "manual", Class: "ephemeral"}, nil)
	if err != nil {
		return err
	}
	var a httpapi.ExecAnswer
	err = d.c.post(ctx, at{"sessions", string(s.ID), "exec"}, url.Values{"wait": {"ended"}}, map[string]any{"lang": "bash",
		"code": `grep -rslF -- "$CANARY" /workspace /home /tmp /run 2>/dev/null; ls -a /workspace; true`, "env": map[string]string{"CANARY": demoSecret[:8]}}, &a)
	if err != nil {
		return err
	}
	for _, bad := range []string{".env", "node_modules", "cache.tmp"} {
		if slices.Contains(strings.Fields(a.Stdout), bad) {
			return fmt.Errorf("%s entered the machine", bad)
		}
	}
	if !strings.Contains(a.Stdout, "total.py") {
		return fmt.Errorf("the workspace lacks the sample's files: %q", a.Stdout)
	}
	fmt.Fprintln(d.out, "no ignored file and no .env entered the machine")
	return d.c.post(ctx, at{"sessions", string(s.ID), "end"}, nil, nil, nil)
}

// verify checks the record: the answer is recorded as the demo's, each change
// names its step, and the chain holds.
func (d *demo) verify(ctx context.Context) error {
	var evs []event.Envelope
	if err := d.c.get(ctx, at{"log"}, url.Values{"limit": {"5000"}}, &evs); err != nil {
		return err
	}
	answers, changes := 0, 0
	for _, ev := range evs {
		pl, err := event.Decode(ev)
		if err != nil {
			return err
		}
		switch pl := pl.(type) {
		case *event.ApprovalAnswered:
			if pl.By != "demo" {
				return fmt.Errorf("the answer is recorded as given by %q", pl.By)
			}
			answers++
		case *event.StepSealed:
			if len(pl.Changes) > 0 && ev.StepID != "" {
				changes++
			}
		}
	}
	if answers != 1 || changes < 2 {
		return fmt.Errorf("the record holds %d answers and %d steps with changes", answers, changes)
	}
	if err := d.c.post(ctx, at{"log", "verify"}, nil, nil, nil); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "%d events recorded, the chain holds; the answer is recorded as the demo's, not a person's\n", len(evs))
	return nil
}
