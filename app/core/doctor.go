package core

import (
	"context"
	"errors"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/git"
	"glasshouse/vm/image"
	"glasshouse/vm/proc"
)

// doctor looks at what this computer can do.
func (c *Core) doctor(ctx context.Context) httpapi.Doctor {
	d := httpapi.Doctor{Version: c.opt.Version, Data: c.opt.Paths.Data, OK: true}
	add := func(name string, err error, good string) {
		l := httpapi.DoctorLine{Name: name, OK: err == nil, Text: good}
		if err != nil {
			l.Text = err.Error()
		}
		d.Lines = append(d.Lines, l)
	}
	im, imErr := c.images.built()
	if imErr == nil {
		// Which accelerator works is found by booting a guest, not by looking at a file.
		if _, err := c.lima.Probe(ctx, limaImage(im)); err != nil {
			c.log.Warn("no accelerator was found", "err", err)
		}
	}
	usable := false
	for kind, m := range c.fleet.Kinds() {
		err := m.Check(ctx)
		usable = usable || err == nil
		f := m.Features()
		var has []string
		if f.VM {
			has = append(has, "its own kernel")
			if f.Accelerator != "" {
				has = append(has, "accelerator "+f.Accelerator)
				if f.Accelerator == "tcg" {
					has = append(has, "the processor is emulated, so it is slow: a guest under hardware help did not boot here")
				}
			}
		} else {
			has = append(has, "not a VM")
		}
		has = append(has, "limits by "+f.Limits)
		if len(f.Missing) > 0 {
			has = append(has, "lacks "+strings.Join(f.Missing, ", "))
		}
		add("machine "+kind, err, strings.Join(has, "; "))
	}
	d.OK = usable
	if _, err := c.progs.find("guestd"); err != nil {
		add("guestd", err, "")
		d.OK = false
	} else {
		add("guestd", nil, "found")
	}
	switch {
	case imErr == nil:
		add("guest image", nil, im.Hash[:12]+", built")
	case errors.Is(imErr, image.ErrNotBuilt):
		add("guest image", nil, "not built yet; the first machine builds it, or 'glasshouse image build'")
	default:
		add("guest image", imErr, "")
	}
	if _, err := c.rules.Rules(""); err != nil {
		d.OK = false
		d.Lines = append(d.Lines, httpapi.DoctorLine{Name: "policy", Text: err.Error(), Fix: "mend " + c.opt.Paths.PolicyFile() + " and start the core again; until then everything but reading asks"})
	} else {
		add("policy", nil, "rules loaded")
	}
	if missing := image.MissingTools(); len(missing) > 0 {
		d.Lines = append(d.Lines, httpapi.DoctorLine{Name: "image tools", Text: "missing: " + strings.Join(missing, ", "), Fix: "install them, or run 'make setup'"})
	} else {
		add("image tools", nil, "all there")
	}
	if _, err := c.runner.Run(ctx, proc.Cmd{Role: "git-config", Path: "git", Args: []string{"--version"}}); err != nil {
		add("git", err, "")
	} else {
		add("git", nil, "found; pushes use your own credentials")
	}
	r, err := c.events.Verify(ctx)
	if err == nil && len(r.Problems) > 0 {
		d.OK = false
		d.Lines = append(d.Lines, httpapi.DoctorLine{Name: "log", Text: "the chain does not hold at event " + strconv.FormatInt(r.Problems[0].ID, 10) + ": " + r.Problems[0].What, Fix: "keep the data folder as it is and look at it before going on"})
	} else {
		add("log", err, strconv.FormatInt(r.Events, 10)+" events, chain verified")
	}
	return d
}

// invoker is the person behind a root core (sudo), whose credentials pushes use.
func invoker() *proc.User {
	if os.Geteuid() != 0 {
		return nil
	}
	uid, err1 := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32)
	gid, err2 := strconv.ParseUint(os.Getenv("SUDO_GID"), 10, 32)
	if err1 != nil || err2 != nil || uid == 0 {
		return nil // root itself
	}
	u, err := user.LookupId(strconv.FormatUint(uid, 10))
	if err != nil {
		return nil
	}
	return &proc.User{UID: uint32(uid), GID: uint32(gid), Name: u.Username, Home: u.HomeDir}
}

// author is the name under which the host makes commits: the person's own, from
// their global git settings, read outside any repository.
func (c *Core) author(ctx context.Context) git.Person {
	p := git.Person{Name: "Glasshouse", Email: "glasshouse@localhost", When: time.Now()}
	for key, at := range map[string]*string{"user.name": &p.Name, "user.email": &p.Email} {
		cmd := proc.Cmd{Role: "git-config", Path: "git", Args: []string{"config", "--global", "--get", key}, Dir: "/", User: invoker()}
		if res, err := c.runner.Run(ctx, cmd); err == nil {
			if v := strings.TrimSpace(string(res.Stdout)); v != "" {
				*at = v
			}
		}
	}
	return p
}
