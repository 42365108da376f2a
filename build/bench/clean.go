package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clean ends everything that was started and removes the folder. It is an error
// when something had to be killed. Only the first call does anything.
func (b *bench) clean(ctx context.Context, keep bool) error {
	if b.done {
		return nil
	}
	b.done = true
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var errs []error
	if b.lima != nil {
		for name := range b.lima.started {
			if _, err := os.Stat(filepath.Join(b.lima.home, name)); err != nil {
				continue // interrupted before Lima made it
			}
			if err := b.lima.remove(ctx, name); err != nil {
				errs = append(errs, err)
			}
		}
	}
	errs = append(errs, b.core.quit(ctx))
	errs = append(errs, endRest(b.dir))
	if keep {
		say("kept: %s", b.dir)
	} else {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}

// lastWords shows the end of the logs before they are removed.
func (b *bench) lastWords() {
	for _, name := range []string{b.core.log, filepath.Join(b.dir, "limactl.log")} {
		if text, err := os.ReadFile(name); err == nil {
			say("the end of %s:\n%s", filepath.Base(name), text[max(0, len(text)-4000):])
		}
	}
}

// endRest kills what still names the folder after a moment, and tells.
func endRest(dir string) error {
	var left []string
	for range 100 {
		if left = processes(dir); len(left) == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, l := range left {
		if pid, err := strconv.Atoi(strings.Fields(l)[0]); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return fmt.Errorf("processes were left and had to be killed:\n%s", strings.Join(left, "\n"))
}

// processes lists those whose command line or environment names the folder; the
// folder's name is random, so they are ours.
func processes(dir string) []string {
	var out []string
	ents, _ := os.ReadDir("/proc")
	for _, e := range ents {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		cmd, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if len(cmd) > 0 && (bytes.Contains(cmd, []byte(dir+"/")) || bytes.Contains(env, []byte(dir+"/"))) {
			out = append(out, fmt.Sprintf("%d %s", pid, bytes.ReplaceAll(cmd[:min(300, len(cmd))], []byte{0}, []byte{' '})))
		}
	}
	return out
}
