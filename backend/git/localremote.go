package git

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/config"

	"glasshouse/backend/domain"
	"glasshouse/backend/git/odb"
)

// localPrograms lists what a repository on this computer would run when it is
// pushed to: its hooks and the settings that name programs. Pushing there makes
// git run in that repository, so the person is asked first.
func localPrograms(path string) ([]string, error) {
	dir := path
	if fi, err := os.Stat(filepath.Join(path, ".git")); err == nil && fi.IsDir() {
		dir = filepath.Join(path, ".git")
	} else if err == nil {
		return []string{"unknown (its .git is a file)"}, nil
	}
	if _, err := os.Stat(filepath.Join(dir, "objects")); err != nil {
		return nil, domain.E(domain.CodeNotFound, fmt.Sprintf("%s is no repository", path), "make one there ('git init --bare'), or use another address", nil)
	}
	var out []string
	entries, err := os.ReadDir(filepath.Join(dir, "hooks"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		fi, err := os.Stat(filepath.Join(dir, "hooks", e.Name()))
		if err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 && !strings.HasSuffix(e.Name(), ".sample") {
			out = append(out, "hooks/"+e.Name())
		}
	}
	f, err := odb.OpenRegular(filepath.Join(dir, "config"))
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, err
	}
	cfg, err := decodeConfig(data)
	if err != nil {
		return append(out, "unknown (its configuration cannot be read)"), nil
	}
	for _, s := range cfg.Sections {
		name := strings.ToLower(s.Name)
		for _, o := range s.Options {
			switch key := name + "." + strings.ToLower(o.Key); key {
			case "core.hookspath", "core.alternaterefscommand", "core.fsmonitor", "receive.procreceiverefs", "core.gitproxy":
				out = append(out, key)
			case "receive.denycurrentbranch":
				if strings.EqualFold(o.Value, "updateInstead") {
					out = append(out, key+"=updateInstead (filters and hooks of its work tree)")
				}
			}
		}
		if name == "include" || name == "includeif" {
			out = append(out, name+" (settings from another file)")
		}
	}
	sort.Strings(out)
	return out, nil
}

func decodeConfig(data []byte) (cfg *config.Config, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	cfg = config.New()
	return cfg, config.NewDecoder(strings.NewReader(string(data))).Decode(cfg)
}
