//go:build linux

package agent

import (
	"os"
	"path"
	"strconv"
	"strings"

	"glasshouse/vm/guest/agent/spawn"
	"glasshouse/vm/guest/proto"
)

const maxAncestors = 64

// owner says whose a process is: by its cgroup where executions have one, else
// by its ancestors, among which is a shim or a browser. What cannot be told
// stays empty.
func (s *server) owner(pid int) *proto.EgressClaim {
	c := &proto.EgressClaim{Pid: int32(pid)}
	for _, w := range spawn.Argv(pid) {
		c.Argv = append(c.Argv, []byte(w))
	}
	if s.cfg.Cgroups != "" {
		if b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup"); err == nil {
			if name := cgroupName(string(b), path.Base(s.cfg.Cgroups)); name != "" {
				if br := s.browsers.ByCgroup(name); br != nil {
					c.Browser, c.Session = true, br.Spec.Session
				} else if e := s.execs.ByCgroup(name); e != nil {
					c.Exec, c.Session, c.Step = e.Meta.ID, e.Meta.Session, e.Meta.Step
				}
				return c
			}
		}
	}
	for p, n := pid, 0; p > 1 && n < maxAncestors; n++ {
		if br := s.browsers.ByProcess(p); br != nil {
			c.Browser, c.Session = true, br.Spec.Session
			return c
		}
		if e := s.execs.ByShim(p); e != nil {
			c.Exec, c.Session, c.Step = e.Meta.ID, e.Meta.Session, e.Meta.Step
			return c
		}
		next, ok := spawn.Parent(p)
		if !ok {
			break
		}
		p = next
	}
	return c
}

// cgroupName finds the name right below root in a process's cgroup path.
func cgroupName(proc, root string) string {
	for _, line := range strings.Split(proc, "\n") {
		p, ok := strings.CutPrefix(line, "0::/"+root+"/")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(p, "/")
		return name
	}
	return ""
}
