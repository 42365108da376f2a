package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"glasshouse/app/httpapi"
	"glasshouse/backend/domain"
	"glasshouse/backend/git"
	"glasshouse/vm/image"
	"glasshouse/vm/proc"
)

// doctor looks at what this computer can do. A line that is not OK says what to do.
func (c *Core) doctor(ctx context.Context) httpapi.Doctor {
	d := httpapi.Doctor{Version: c.opt.Version, Data: c.opt.Paths.Data, OK: true}
	add := func(name string, err error, good, fix string) {
		l := httpapi.DoctorLine{Name: name, OK: err == nil, Text: good}
		if err != nil {
			l.Text, l.Fix = err.Error(), fix
			var known *domain.Error
			if errors.As(err, &known) && known.Hint != "" {
				l.Fix = known.Hint
				bare := *known
				bare.Hint = ""
				l.Text = bare.Error()
			}
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
	kinds := c.fleet.Kinds()
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		m := kinds[kind]
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
		add("machine "+kind, err, strings.Join(has, "; "), "do what it says, or use another kind of machine")
	}
	d.OK = usable
	if _, err := c.progs.find("guestd"); err != nil {
		add("guestd", err, "", "build it with 'make build'")
		d.OK = false
	} else {
		add("guestd", nil, "found", "")
	}
	switch {
	case imErr == nil:
		add("guest image", nil, im.Hash[:12]+", built", "")
	case errors.Is(imErr, image.ErrNotBuilt):
		add("guest image", nil, "not built yet; the first machine builds it, or 'glasshouse image build'", "")
	default:
		add("guest image", imErr, "", "build it again with 'glasshouse image build'")
	}
	if _, err := c.rules.Rules(""); err != nil {
		d.OK = false
		d.Lines = append(d.Lines, httpapi.DoctorLine{Name: "policy", Text: err.Error(), Fix: "mend " + c.opt.Paths.PolicyFile() + "; it is read again by itself. Until then rules from before hold, or everything but reading asks"})
	} else {
		add("policy", nil, "rules loaded", "")
	}
	if _, err := c.opt.Paths.Load(); err != nil {
		add("settings", err, "", "mend "+c.opt.Paths.ConfigFile()+": the next core does not start with it as it is")
	} else {
		add("settings", nil, "read", "")
	}
	lines := c.models.doctor(ctx)
	d.OK = d.OK && lines[0].OK
	d.Lines = append(d.Lines, lines...)
	d.Lines = append(d.Lines, space("disk for data", c.opt.Paths.Data), space("disk for images", c.opt.Paths.Cache), c.disk.doctor())
	if missing := image.MissingTools(); len(missing) > 0 {
		d.Lines = append(d.Lines, httpapi.DoctorLine{Name: "image tools", Text: "missing: " + strings.Join(missing, ", "), Fix: "install them, or run 'make setup'"})
	} else {
		add("image tools", nil, "all there", "")
	}
	if _, err := c.runner.Run(ctx, proc.Cmd{Role: "git-config", Path: "git", Args: []string{"--version"}}); err != nil {
		add("git", err, "", "install git 2.32 or newer")
	} else {
		add("git", nil, "found; pushes use your own credentials", "")
	}
	d.Lines = append(d.Lines, window(runtime.GOOS, os.Getenv, libraryFolders()))
	r, err := c.events.Verify(ctx)
	if err == nil && len(r.Problems) > 0 {
		d.OK = false
		d.Lines = append(d.Lines, httpapi.DoctorLine{Name: "log", Text: "the chain does not hold at event " + strconv.FormatInt(r.Problems[0].ID, 10) + ": " + r.Problems[0].What, Fix: "keep the data folder as it is and look at it before going on"})
	} else {
		add("log", err, strconv.FormatInt(r.Events, 10)+" events, chain verified", "check that the disk can be read")
	}
	return d
}

// wantedSpace is what a guest image, its parts and a machine's first days need.
const wantedSpace = 8 << 30

// space looks at how much is free where a folder is, or will be.
func space(name, dir string) httpapi.DoctorLine {
	at := dir
	for {
		if _, err := os.Stat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		at = filepath.Dir(at)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(at, &fs); err != nil {
		return httpapi.DoctorLine{Name: name, Text: fmt.Sprintf("the free space of %s cannot be read: %v", dir, err), Fix: "check that the folder is there and can be entered"}
	}
	free := uint64(fs.Bavail) * uint64(fs.Bsize) //nolint:unconvert // the types differ between systems
	l := httpapi.DoctorLine{Name: name, OK: free >= wantedSpace, Text: fmt.Sprintf("%.1f GiB are free at %s", float64(free)/(1<<30), dir)}
	if !l.OK {
		l.Text += fmt.Sprintf("; images and machines want %d", wantedSpace>>30)
		l.Fix = "make room, or move it with GLASSHOUSE_DATA or GLASSHOUSE_CACHE to a larger disk"
	}
	return l
}

// window says whether the desktop window can be shown: commands and 'glasshouse
// serve' do without.
func window(system string, env func(string) string, folders []string) httpapi.DoctorLine {
	l := httpapi.DoctorLine{Name: "window", OK: true}
	if system != "linux" {
		l.Text = "the system's own web view is used"
		return l
	}
	view := ""
	for _, name := range []string{"libwebkit2gtk-4.1.so.0", "libwebkit2gtk-4.0.so.37"} {
		for _, dir := range folders {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil && view == "" {
				view = name
			}
		}
	}
	if view == "" {
		return httpapi.DoctorLine{Name: "window", Text: "the web view the window is drawn with (WebKitGTK) was not found", Fix: "install libwebkit2gtk-4.1-0, or use 'glasshouse serve' with a browser"}
	}
	l.Text = strings.TrimSuffix(strings.TrimPrefix(view, "lib"), ".so"+filepath.Ext(view)) + " found"
	switch {
	case env("WAYLAND_DISPLAY") != "":
		l.Text += ", display " + env("WAYLAND_DISPLAY")
	case env("DISPLAY") != "":
		l.Text += ", display " + env("DISPLAY")
	default:
		// No fault of the core's: the window may be started where there is one.
		l.Text += "; the core was started without a display, so only a window of a desktop session can be shown"
	}
	return l
}

// libraryFolders are where the system's libraries usually are.
func libraryFolders() []string {
	out := filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))
	for _, pattern := range []string{"/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu*", "/usr/local/lib", "/run/host/usr/lib*"} {
		found, _ := filepath.Glob(pattern)
		out = append(out, found...)
	}
	return out
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
