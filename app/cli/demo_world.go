package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"glasshouse/app/httpapi"
	"glasshouse/backend/project"
	"glasshouse/vm/proc"
)

// demoSecret stands in the sample's .env and must never be seen inside.
const demoSecret = "c4n4ry-5up3r-53cr37"

// git runs the demo's own git, on repositories the demo itself has made.
func (d *demo) git(ctx context.Context, dir string, args ...string) (string, error) {
	env := append(proc.MinimalEnv(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Sample", "GIT_AUTHOR_EMAIL=sample@demo.example", "GIT_COMMITTER_NAME=Sample", "GIT_COMMITTER_EMAIL=sample@demo.example")
	r, err := d.runner.Run(ctx, proc.Cmd{Role: "demo", Path: "git", Args: args, Dir: dir, Env: env})
	return string(r.Stdout), err
}

// makeSample writes the repository, with things beside it that must stay outside,
// and an empty bare remote.
func (d *demo) makeSample(ctx context.Context, src, remote string) error {
	if err := os.MkdirAll(filepath.Join(src, "node_modules"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"total.py", "test_total.py", "server.py", "README.md"} {
		b, err := sample.ReadFile("sample/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(src, name), b, 0o644); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		".gitignore": "node_modules/\n*.tmp\n__pycache__/\n.env\n", ".env": "TOKEN=" + demoSecret + "\n",
		"cache.tmp": demoSecret, "node_modules/left.js": "// " + demoSecret + "\n",
	} {
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "Orders"}} {
		if _, err := d.git(ctx, src, args...); err != nil {
			return err
		}
	}
	if _, err := d.git(ctx, d.dir, "init", "-q", "--bare", "-b", "main", remote); err != nil {
		return err
	}
	_, err := d.git(ctx, src, "push", "-q", remote, "main")
	return err
}

// fingerprint is one hash over names, modes, times and bytes of a tree.
func fingerprint(root string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s\x00%s\x00%d\x00", rel, info.Mode(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "%d\x00%s", len(b), b)
		}
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

// expectPushed checks the remote against what only the accepted hunk makes of the base.
func (d *demo) expectPushed(ctx context.Context, src, remote, ref string) error {
	if out, err := d.git(ctx, remote, "fsck", "--strict", "--no-dangling"); err != nil {
		return fmt.Errorf("the remote's objects are not sound: %s: %w", out, err)
	}
	got, err := d.git(ctx, remote, "ls-tree", "-r", ref)
	if err != nil {
		return err
	}
	base, err := d.git(ctx, src, "ls-tree", "-r", "main")
	if err != nil {
		return err
	}
	old, err := sample.ReadFile("sample/total.py")
	if err != nil {
		return err
	}
	mended := strings.Replace(string(old), "int(net * RATES[rate] + 0.5)", "int(net * (1 + RATES[rate]) + 0.5)", 1)
	tmp := filepath.Join(d.dir, "expected")
	if err := os.WriteFile(tmp, []byte(mended), 0o600); err != nil {
		return err
	}
	id, err := d.git(ctx, src, "hash-object", "--no-filters", tmp)
	if err != nil {
		return err
	}
	was, err := d.git(ctx, src, "rev-parse", "main:total.py")
	if err != nil {
		return err
	}
	want := strings.Replace(base, strings.TrimSpace(was), strings.TrimSpace(id), 1)
	if got != want || want == base {
		return fmt.Errorf("the pushed tree is not the base plus the accepted hunk:\n%s\nwanted:\n%s", got, want)
	}
	fmt.Fprintln(d.out, "the remote's tree is the base plus the accepted hunk, exactly; git fsck is clean")
	return nil
}

// review rejects one hunk of two and pushes the rest.
func (d *demo) review(ctx context.Context, p httpapi.ProjectView, _ string, remote string) error {
	d.say("the review: two hunks, the second is rejected")
	ref := "refs/heads/fix-total"
	var v project.ReviewView
	if err := d.c.post(ctx, at{"projects", string(p.ID), "reviews"}, nil, map[string]string{"remote": remote, "ref": ref}, &v); err != nil {
		return err
	}
	if len(v.Files) != 1 || v.Files[0].Path != "total.py" || len(v.Files[0].Units) != 2 {
		return fmt.Errorf("the review shows something else than two hunks of total.py: %+v", v.Files)
	}
	for i, decision := range []string{"accept", "reject"} {
		in := map[string]string{"file": v.Files[0].ID, "unit": v.Files[0].Units[i], "decision": decision}
		if err := d.c.post(ctx, at{"reviews", string(v.ID), "decisions"}, nil, in, &v); err != nil {
			return err
		}
	}
	showReview(d.out, v)
	d.say("the push")
	var pv project.PushView
	if err := d.c.post(ctx, at{"reviews", string(v.ID), "push"}, nil, map[string]string{"remote": remote, "ref": ref, "message": "Add the net sum to the total"}, &pv); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "%s: commit %s to %s\n", pv.State, pv.Commit[:12], ref)
	return d.expectPushed(ctx, filepath.Join(d.dir, "orders"), remote, ref)
}
