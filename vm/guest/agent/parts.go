//go:build linux

package agent

import (
	"context"
	"io"
	"log"
	"path/filepath"

	"google.golang.org/grpc"

	"glasshouse/vm/guest"
	"glasshouse/vm/guest/agent/cell"
	"glasshouse/vm/guest/checkpoint"
	"glasshouse/vm/guest/files"
	"glasshouse/vm/guest/gitx"
	"glasshouse/vm/guest/proto"
	"glasshouse/vm/guest/runas"
	"glasshouse/vm/guest/watch"
)

// parts are the services that live in packages of their own.
type parts struct {
	files       guest.Files
	checkpoints guest.Checkpoints
	git         guest.Git
	watch       func(ctx context.Context) (<-chan guest.ChangeBatch, error)
}

// newParts makes them. Programs that read what the agent can write (git in the
// workspace, ripgrep) run as the agent: in a VM by user, in a sandbox in a cell.
func newParts(ctx context.Context, cfg Config, env [][]byte) parts {
	uid, gid := 0, 0
	run := runas.User(-1, -1)
	switch cfg.Kind {
	case KindVM:
		uid, gid = agentUID, agentGID
		run = runas.User(uid, gid)
	case KindSandbox:
		run = runInCell(*cellConfig(cfg))
	}
	vars := make([]string, len(env))
	for i, e := range env {
		vars[i] = string(e)
	}
	w := watch.New(watch.Options{Root: cfg.Workspace, Logf: log.Printf})
	go func() { _ = w.Run(ctx) }() // it ends with ctx alone
	allowed := []string{cfg.Home, "/tmp"}
	return parts{
		files: files.New(files.Options{Root: cfg.Workspace, Allowed: allowed, UID: uid, GID: gid, Run: run}),
		checkpoints: checkpoint.New(checkpoint.Options{
			Root: cfg.Workspace, Shadow: filepath.Join(cfg.State, "shadow"), UID: uid, GID: gid, Watcher: w, RunAgent: run, Logf: log.Printf,
		}),
		git:   gitx.New(gitx.Options{Root: cfg.Workspace, Home: cfg.Home, UID: uid, GID: gid, Run: run, Env: vars}),
		watch: w.Watch,
	}
}

// runInCell runs a program in an inner sandbox of its own.
func runInCell(c cell.Config) runas.Func {
	plain := runas.User(-1, -1)
	return func(ctx context.Context, argv, env []string, dir string, stdin io.Reader, stdout, stderr io.Writer) error {
		return plain(ctx, append([]string{cell.Bwrap}, cell.CommandArgs(c, dir, argv)...), env, "/", stdin, stdout, stderr)
	}
}

func (s *server) registerParts(g *grpc.Server) {
	proto.RegisterFilesServer(g, &filesService{f: s.parts.files})
	proto.RegisterCheckpointsServer(g, &checkpointsService{k: s.parts.checkpoints})
	proto.RegisterGitServer(g, &gitService{g: s.parts.git})
	proto.RegisterWatchServer(g, &watchService{watch: s.parts.watch})
}
