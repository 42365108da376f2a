// Package core is the core process: the owner of the lock, the database, the
// sessions and the gate. Windows and commands are its clients over a unix socket;
// none of their ends ends anything here.
package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"glasshouse/app/config"
	"glasshouse/app/httpapi"
	"glasshouse/backend/agent/turn"
	"glasshouse/backend/approval"
	"glasshouse/backend/domain"
	"glasshouse/backend/egress"
	"glasshouse/backend/event"
	"glasshouse/backend/eventlog"
	"glasshouse/backend/git"
	"glasshouse/backend/machine"
	"glasshouse/backend/policy"
	"glasshouse/backend/project"
	"glasshouse/backend/secret"
	"glasshouse/backend/secret/keychain"
	"glasshouse/backend/session"
	"glasshouse/backend/terminal"
	"glasshouse/backend/tool"
	"glasshouse/backend/tool/builtin"
	"glasshouse/vm"
	"glasshouse/vm/guest"
	"glasshouse/vm/guest/client"
	"glasshouse/vm/lima"
	"glasshouse/vm/proc"
)

// Options of a core.
type Options struct {
	Paths   config.Paths
	Version string
	Log     io.Writer
	Secrets secret.Store // where keys are kept; nil = the computer's keychain
}

// Core is a running core.
type Core struct {
	opt       Options
	set       inForce
	lock      *os.File
	log       *slog.Logger
	runner    *proc.Runner
	user      *proc.User
	progs     *programs
	images    *images
	lima      *lima.Manager
	events    *eventlog.Log
	ledger    *approval.Ledger
	fleet     *machine.Fleet
	gate      *egress.Gate
	projects  *project.Service
	sessions  *session.Service
	turns     *turn.Service
	models    *models
	terminals *terminal.Service
	browsers  *browsers
	rules     *policy.Store
	tools     *tool.Registry

	watching *watching
	disk     *disk

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	srv    *http.Server
	quit   chan struct{}
	once   sync.Once
}

// Run takes the lock, brings everything up and serves until ctx ends or quit is
// asked for. It returns nil after an orderly end.
func Run(ctx context.Context, opt Options) error {
	c, err := open(ctx, opt)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.serve(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		c.log.Info("leaving", "why", "asked by signal; machines go on")
		// An end in order too: the next core must not look for a crash.
		rctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := c.record(rctx, event.New{Stream: event.HostStream, Origin: domain.OriginHost, Actor: "host", Payload: &event.CoreStopped{Reason: "asked to leave; machines go on"}}); err != nil {
			c.log.Error("the end could not be recorded", "err", err)
		}
	case <-c.quit:
	}
	return nil
}

func open(ctx context.Context, opt Options) (_ *Core, err error) {
	if err := socketFits(opt.Paths.Socket()); err != nil {
		return nil, err
	}
	if err := opt.Paths.Prepare(); err != nil {
		return nil, err
	}
	set, err := opt.Paths.Load()
	if err != nil {
		return nil, err
	}
	lk, err := lock(opt.Paths)
	if err != nil {
		return nil, err
	}
	c := &Core{opt: opt, lock: lk, runner: &proc.Runner{}, quit: make(chan struct{}), watching: newWatching()}
	c.set.put(set)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	scrub := &secret.Scrubber{}
	c.log = slog.New(slog.NewTextHandler(scrubbed{opt.Log, scrub}, nil))
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.user, err = serviceUser(ctx, c.runner, opt.Paths); err != nil {
		return nil, err
	}
	c.progs = &programs{paths: opt.Paths, user: c.user}
	if c.user != nil {
		self, err := c.progs.usable(proc.Self())
		if err != nil {
			return nil, err
		}
		proc.UseSelf(self)
	}
	// Keys are known before anything is recorded in which one could be.
	keys := opt.Secrets
	if keys == nil {
		keys = keychain.New("glasshouse")
	}
	c.models = newModels(opt.Paths, keys, scrub, c.record, c.log)
	c.models.learnEnv()
	if c.events, err = eventlog.Open(opt.Paths.Data, eventlog.Options{HoldNow: true, Scrub: scrub.JSON, ScrubBlob: scrub.Writer}); err != nil {
		return nil, err
	}
	clean, err := c.lastEnd(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.events.Append(ctx, event.New{Stream: event.HostStream, Origin: domain.OriginHost, Actor: "host",
		Payload: &event.CoreStarted{Version: opt.Version, Pid: os.Getpid(), Clean: clean}}); err != nil {
		return nil, err
	}
	c.ledger = approval.New(c.events, nil)
	if err := c.ledger.Load(ctx); err != nil {
		return nil, err
	}
	c.rules = policy.NewStore(opt.Paths.PolicyFile(), func(id domain.ProjectID) string { return filepath.Join(opt.Paths.Project(string(id)), "policy.toml") })
	if _, err := c.rules.Rules(""); err != nil {
		c.log.Error("the policy file has a fault: what leaves a machine asks", "file", opt.Paths.PolicyFile(), "err", err)
	}
	c.images = &images{paths: opt.Paths, progs: c.progs, make: c.makeImage}
	c.gate = egress.New(egress.Config{Match: c.matchEgress, Ask: c.askEgress, Record: c.record, Resolve: c.resolve, HoldNow: c.hold})
	managers, err := c.managers()
	if err != nil {
		return nil, err
	}
	c.fleet = machine.New(machine.Config{Managers: managers, Record: c.recordMachine, Publish: c.publishMachine,
		Open: func(ctx context.Context, conn io.ReadWriteCloser, h guest.EgressHandler) (guest.Guest, error) {
			return client.Open(ctx, conn, h, client.Options{SetClock: true})
		},
		Egress: func(id domain.ProjectID) guest.EgressHandler { return door{c, id} },
	})
	c.projects = project.New(project.Config{Log: c.events, Ledger: c.ledger, Fleet: c.fleet, DefaultKind: c.defaultKind(),
		Spec:   specOf(set),
		Mirror: c.mirror, Trash: c.trash, Discard: c.discard, Author: c.author})
	if err := c.projects.Load(ctx); err != nil {
		return nil, err
	}
	if err := c.projects.Tidy(ctx); err != nil {
		c.log.Warn("something of deleted projects is left", "err", err)
	}
	if c.tools, err = tool.NewRegistry(builtin.All()...); err != nil {
		return nil, err
	}
	c.disk = c.newDisk()
	c.browsers = newBrowsers(func(n event.New) { _ = c.events.Publish(n) })
	c.sessions = session.New(session.Config{Log: c.events, Ledger: c.ledger, Machines: c.fleet, Project: c.projects.Get, Tools: c.tools, Repair: c.projects.Repair,
		Decide: c.decide, Browser: c.browsers.of, CloseBrowser: c.browsers.close, Resumes: turn.Resumes,
		QuestionLifeNow: c.questionLife, Refuse: c.disk.refuse})
	c.turns = turn.New(turn.Config{Sessions: c.sessions, Project: c.projects.Get, Tools: c.tools.ForAgents, Blobs: c.events, Make: c.agent, ReadFile: c.readFile, Log: c.log})
	// The order matters: rules are loaded, so the gate may open; then machines
	// that still run may be joined; then steps that ran are found
	// again; then questions may expire, for their steps wait for them.
	c.rejoinQuestions()
	c.gate.Open()
	var adopting sync.WaitGroup
	for _, p := range c.projects.List() {
		adopting.Go(func() {
			if _, up, err := c.fleet.Adopt(ctx, p); err != nil && !errors.Is(err, vm.ErrNotExist) {
				c.log.Warn("machine not adopted", "project", p.Name, "err", err)
			} else if up {
				c.log.Info("machine adopted", "project", p.Name)
			}
		})
	}
	adopting.Wait()
	if err := c.sessions.Recover(ctx); err != nil {
		return nil, err
	}
	c.terminals = terminal.New(terminal.Config{Machines: c.fleet, Record: c.record})
	if err := c.terminals.Recover(ctx, c.events, c.projects.List()); err != nil {
		return nil, err
	}
	c.disk.look(ctx) // before the first who asks about it
	c.turns.Resume(ctx)
	c.goes(func(ctx context.Context) { c.ledger.Run(ctx) })
	c.goes(c.projects.RepeatProgress)
	c.goes(c.measure)
	c.goes(c.models.learn)
	c.goes(c.followFiles)
	c.goes(func(ctx context.Context) { c.disk.run(ctx, c.events.Short()) })
	return c, nil
}

// socketFits: the system keeps a socket's path in about a hundred bytes. It is looked
// at before anything is made.
func socketFits(path string) error {
	if len(path) > 100 {
		return domain.E(domain.CodeInvalid, fmt.Sprintf("the path of the core's socket has %d bytes, more than the system takes (100): %s", len(path), path), "set GLASSHOUSE_DATA to a shorter folder", nil)
	}
	return nil
}

// lastEnd says whether the last core stopped in order.
func (c *Core) lastEnd(ctx context.Context) (bool, error) {
	evs, err := c.events.Read(ctx, eventlog.Filter{Stream: event.HostStream, Types: []event.Type{"core.started", "core.stopped"}, Tail: true, Limit: 1})
	if err != nil {
		return false, err
	}
	return len(evs) == 0 || evs[0].Type == "core.stopped", nil
}

// goes runs a job owned by the core: it ends with it.
func (c *Core) goes(f func(ctx context.Context)) {
	c.wg.Go(func() { f(c.ctx) })
}

// decide is the policy in force for a project.
func (c *Core) decide(id domain.ProjectID, a policy.Action) (policy.Decision, string) {
	r, _ := c.rules.Rules(id) // a set with a fault still decides, more strictly
	return policy.Decide(a, r), r.Version()
}

func (c *Core) record(ctx context.Context, n event.New) error {
	_, err := c.events.Append(ctx, n)
	return err
}

// recordMachine records what a machine became, and ends or begins what is told of its start.
func (c *Core) recordMachine(ctx context.Context, n event.New) error {
	if m, ok := n.Payload.(*event.MachineState); ok {
		c.projects.MachineState(n.ProjectID, m) // first: nothing is told of a start after the event that ends it
	}
	return c.record(ctx, n)
}

// publishMachine says how far a machine's start is.
func (c *Core) publishMachine(n event.New) {
	if m, ok := n.Payload.(*event.MachineProgress); ok {
		c.projects.TellProgress(n.ProjectID, *m)
		return
	}
	_ = c.events.Publish(n)
}

// serve listens on the core's socket, readable by the user alone.
func (c *Core) serve() error {
	path := c.opt.Paths.Socket()
	_ = os.Remove(path) // ours by the lock; a leftover of a core that crashed
	l, err := net.Listen("unix", path)
	if err != nil {
		return domain.E(domain.CodeUnavailable, "the core's socket cannot be made", "check the permissions of "+c.opt.Paths.Data, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return err
	}
	// No limit for a request's head: the callers are the user's own programs, and a
	// connection that one of them has opened and not used yet would be closed just when it
	// is. Such a request fails, for it cannot be told from one that was received.
	c.srv = &http.Server{Handler: c.Handler(), BaseContext: func(net.Listener) context.Context { return c.ctx }} //nolint:gosec // see above
	c.wg.Go(func() { _ = c.srv.Serve(l) })
	c.log.Info("core is up", "socket", path, "version", c.opt.Version)
	return nil
}

// Handler is the door /v1.
func (c *Core) Handler() http.Handler {
	return httpapi.Handler(httpapi.Services{Browsers: views{c}, Models: c.models, Log: c.events, Projects: c.projects, Sessions: c.sessions, Fleet: c.fleet, Ledger: c.ledger, Terminals: c.terminals,
		Tools: c.tools.ForAgents, Turns: c.turns, Doctor: c.doctor, Quit: c.askQuit, Version: c.opt.Version, Image: c.buildImage, Argv: c.argv,
		CancelImage: c.cancelImage, Watch: c.watching.watch, Settings: c.settings, PutSettings: c.putSettings, Policy: c.policyView, ReloadPolicy: c.rules.Reload, LookAt: c.lookAt,
		Disk: c.disk.view, Trash: c.trashed, EmptyTrash: c.emptyTrash})
}

func (c *Core) argv() []httpapi.ProcessRecord {
	out := []httpapi.ProcessRecord{}
	for _, r := range c.runner.Records() {
		out = append(out, httpapi.ProcessRecord{Role: r.Role, Argv: r.Argv, StartAt: r.Start.UnixMilli(), Pid: r.Pid, Running: r.End.IsZero(), Code: r.Code})
	}
	return out
}

// How long the parts of a quit may take.
const (
	cancelWait   = 45 * time.Second // a guest that does not end a command is given up after less
	settleWait   = 3 * time.Minute  // a first checkpoint of a large workspace is slow
	shutdownWait = 3 * time.Minute
	terminalWait = 10 * time.Second
)

// settleWaitNow is settleWait for one who is in a hurry.
var settleWaitNow = 20 * time.Second

// askQuit powers all machines off and ends the core. Running steps are the
// person's to end: without now it refuses while there are any.
func (c *Core) askQuit(ctx context.Context, now bool) error {
	if making := c.projects.Making(); len(making) > 0 && !now {
		return domain.E(domain.CodeConflict, fmt.Sprintf("project %s is being made", making[0].Name), "wait for it, or give it up with 'glasshouse quit --now'", nil)
	}
	running, turns := c.sessions.Running(ctx), c.sessions.Turns(ctx)
	if len(running) > 0 || len(turns) > 0 {
		if !now {
			n, in := 0, map[domain.SessionID]bool{}
			for id, k := range running {
				n, in[id] = n+k, true
			}
			for id := range turns {
				in[id] = true
			}
			if n == 0 {
				return domain.E(domain.CodeConflict, fmt.Sprintf("agents are at work in %d sessions", len(in)), "wait for them, or stop them with 'glasshouse quit --now'", nil)
			}
			return domain.E(domain.CodeConflict, fmt.Sprintf("%d steps are running or waiting in %d sessions", n, len(in)), "wait for them, or cancel them with 'glasshouse quit --now'", nil)
		}
		cctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelWait)
		if err := c.turns.StopAll(cctx); err != nil {
			c.log.Warn("some steps could not be cancelled", "err", err)
		}
		stop()
	}
	c.giveUpMakings(context.WithoutCancel(ctx))
	// Each part has a time of its own: a machine that never says that a step is
	// sealed must not take the time in which all of them are powered off. The next
	// core takes a seal that is missing.
	wait := settleWait
	if now {
		wait = settleWaitNow
	}
	lctx, stop := context.WithTimeout(context.WithoutCancel(ctx), wait)
	c.sessions.Settle(lctx)
	stop()
	c.gate.Shut()
	c.browsers.closeAll()
	if c.terminals != nil {
		// They are no steps: a quit does not ask about them, and says in the log that it ended them.
		tctx, stop := context.WithTimeout(context.WithoutCancel(ctx), terminalWait)
		c.terminals.EndAll(tctx, "Glasshouse was quit")
		stop()
	}
	sctx, stop := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
	err := c.fleet.Shutdown(sctx, c.projects.List())
	stop()
	reason := "quit"
	if err != nil {
		reason = "quit; some machines had to be left: " + err.Error()
		c.log.Error("machines left", "err", err)
	}
	ectx, stop := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer stop()
	if _, aerr := c.events.Append(ectx, event.New{Stream: event.HostStream, Origin: domain.OriginHost, Actor: "person", Payload: &event.CoreStopped{Reason: reason}}); aerr != nil {
		err = errors.Join(err, aerr)
	}
	// The answer must reach the client before the socket closes.
	c.once.Do(func() { time.AfterFunc(100*time.Millisecond, func() { close(c.quit) }) })
	return err
}

// giveUpMakings ends what cannot go on without a core: makings of projects, with the
// programs they run here, and image builds. The next core takes away what is left.
func (c *Core) giveUpMakings(ctx context.Context) {
	if c.images != nil {
		_ = c.cancelImage() // there may be none
	}
	gctx, stop := context.WithTimeout(ctx, cancelWait)
	defer stop()
	if err := c.projects.GiveUpAll(gctx, "host"); err != nil {
		c.log.Warn("a project's making could not be given up", "err", err)
	}
}

// close lets go of everything in the reverse order. Machines are not stopped.
func (c *Core) close() {
	if c.srv != nil {
		sctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_ = c.srv.Shutdown(sctx)
		cancel()
		_ = c.srv.Close()
	}
	if c.gate != nil {
		c.gate.Close()
	}
	c.cancel()
	if c.projects != nil {
		c.giveUpMakings(context.Background())
	}
	if c.turns != nil {
		c.turns.Leave()
	}
	if c.sessions != nil {
		c.sessions.Leave()
	}
	if c.terminals != nil {
		c.terminals.Leave()
	}
	if c.browsers != nil {
		c.browsers.closeAll()
	}
	if c.fleet != nil {
		c.fleet.Leave()
	}
	c.wg.Wait()
	if c.events != nil {
		_ = c.events.Close()
	}
	if c.lock != nil {
		if c.srv != nil {
			_ = os.Remove(c.opt.Paths.Socket())
		}
		unlock(c.lock)
	}
}

func (c *Core) mirror(id domain.ProjectID) (*git.Mirror, error) {
	return git.Open(c.opt.Paths.Mirror(string(id)), git.Options{Runner: c.runner, Invoker: invoker()})
}

// trash moves what is kept of a project on the host; there may be nothing.
func (c *Core) trash(id domain.ProjectID) (string, error) {
	src := c.opt.Paths.Project(string(id))
	if _, err := os.Stat(src); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	dst := filepath.Join(c.opt.Paths.Trash(), fmt.Sprintf("%s-%d", id, time.Now().UnixMilli()))
	return dst, os.Rename(src, dst)
}

// discard removes what is kept on the host of a project that was never finished. Its
// machine's driver has put that into the trash; no name there but its own holds its id.
func (c *Core) discard(p domain.Project) error {
	err := os.RemoveAll(c.opt.Paths.Project(string(p.ID)))
	entries, rerr := os.ReadDir(c.opt.Paths.Trash())
	if rerr != nil {
		return errors.Join(err, rerr)
	}
	for _, e := range entries {
		if p.Machine != "" && slices.Contains(strings.FieldsFunc(e.Name(), func(r rune) bool { return r == '-' || r == '.' }), string(p.Machine)) {
			if rerr := os.RemoveAll(filepath.Join(c.opt.Paths.Trash(), e.Name())); rerr != nil {
				c.log.Warn("a machine that was never finished stays in the trash", "err", rerr)
			}
		}
	}
	return err
}

// resolver asks one DNS server instead of the system's when the settings name one.
func resolver(server string) func(ctx context.Context, host string) ([]netip.Addr, error) {
	if server == "" {
		return nil
	}
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, server)
	}}
	return func(ctx context.Context, host string) ([]netip.Addr, error) {
		// The dot keeps search domains out.
		return r.LookupNetIP(ctx, "ip", host+".")
	}
}

// lookAt says what a project made from a folder would begin with.
func (c *Core) lookAt(ctx context.Context, dir string) (git.ImportResult, error) {
	return git.Look(ctx, dir, git.Options{Runner: c.runner, Invoker: invoker()})
}
