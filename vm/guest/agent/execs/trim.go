//go:build linux

package execs

import (
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"glasshouse/vm/guest/agent/spawn"
)

// Bounds of the journal. A host forgets what it has stored; these are for one
// that does not.
const (
	maxEnded      = 5000
	maxEndedBytes = 2 << 30
)

// trim drops the oldest ended executions when the journal is too large.
func (m *Manager) trim() {
	m.mu.Lock()
	crowded := len(m.execs) > maxEnded
	m.mu.Unlock()
	if !crowded && !m.heavy() {
		return
	}
	var ids []string
	n, size := 0, int64(0)
	all := m.List()
	for i := len(all) - 1; i >= 0; i-- { // newest first
		e := all[i]
		if !e.Ended() {
			continue
		}
		e.mu.Lock()
		n, size = n+1, size+e.stored()
		e.mu.Unlock()
		if n > maxEnded*9/10 || size > maxEndedBytes*9/10 {
			ids = append(ids, e.Meta.ID)
		}
	}
	if len(ids) > 0 {
		log.Printf("journal: dropping the %d oldest executions; the host never forgot them", len(ids))
		if err := m.Forget(ids); err != nil {
			log.Printf("journal: %v", err)
		}
	}
}

// stored is about how many bytes of output are on the disk. e.mu is held.
func (e *Exec) stored() int64 {
	if w := e.Meta.Window; w > 0 {
		return min(e.kept[0], 2*w)
	}
	return e.kept[0] + e.kept[1]
}

func (m *Manager) heavy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := int64(0)
	for _, e := range m.execs {
		e.mu.Lock()
		size += e.stored()
		e.mu.Unlock()
	}
	return size > maxEndedBytes
}

// sweepCgroups ends what dead shims and a dead worker's browsers left behind.
func (m *Manager) sweepCgroups() {
	root := m.cfg.Shim.Cgroups
	if root == "" {
		return
	}
	ents, err := os.ReadDir(root)
	if err != nil {
		log.Printf("execs: %v", err)
		return
	}
	m.mu.Lock()
	owned := map[int]bool{}
	for c := range m.shims {
		owned[c.pid] = true
	}
	m.mu.Unlock()
	for _, ent := range ents {
		name := ent.Name()
		if !ent.IsDir() || name == "" || name[0] != 'x' && name[0] != 'b' {
			continue
		}
		pid, _, _ := strings.Cut(name[1:], "-")
		if n, err := strconv.Atoi(pid); err != nil || name[0] == 'x' && owned[n] {
			continue
		}
		dir := filepath.Join(root, name)
		spawn.KillCgroup(dir)
		go func() {
			for i := 0; i < 100 && os.Remove(dir) != nil; i++ {
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
}
