package lima

import (
	"context"
	"fmt"
	"io/fs"
	"os/user"
	"strconv"
	"syscall"

	"glasshouse/vm/proc"
)

// ServiceUser finds the user that a core running as root uses for its machines,
// and creates it as a system user with the given home when it is missing.
func ServiceUser(ctx context.Context, r *proc.Runner, name, home string) (*proc.User, error) {
	u, err := user.Lookup(name)
	if err != nil {
		if _, err := r.Run(ctx, proc.Cmd{Role: "useradd", Path: "useradd", Dir: "/", Args: []string{"--system", "--user-group", "--home-dir", home, "--create-home", "--shell", "/usr/sbin/nologin", name}}); err != nil {
			return nil, fmt.Errorf("the service user %q cannot be created: %w", name, err)
		}
		if u, err = user.Lookup(name); err != nil {
			return nil, fmt.Errorf("the service user %q was created and cannot be found: %w", name, err)
		}
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err1 != nil || err2 != nil || uid == 0 {
		return nil, fmt.Errorf("user %q (uid %s) cannot be the service user; choose an ordinary one", name, u.Uid)
	}
	p := &proc.User{UID: uint32(uid), GID: uint32(gid), Name: u.Username, Home: u.HomeDir}
	ids, err := u.GroupIds()
	if err != nil {
		return p, nil //nolint:nilerr // without supplementary groups; the probe finds out what that costs
	}
	for _, s := range ids {
		if g, err := strconv.ParseUint(s, 10, 32); err == nil && g != 0 {
			p.Groups = append(p.Groups, uint32(g))
		}
	}
	return p, nil
}

// ownerOf returns a file's owner where the system tells.
func ownerOf(fi fs.FileInfo) (uid, gid uint32, ok bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return st.Uid, st.Gid, true
}
