package image

import (
	"bufio"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strings"
)

//go:embed all:recipe
var embedded embed.FS

// formatVersion changes when this package makes something else out of the same recipe files.
const formatVersion = "1"

// Recipe is a set of recipe files and what they pin.
type Recipe struct {
	files fs.FS
	pins  pins
}

type pins struct {
	Suite string       `json:"suite"`
	Arch  string       `json:"arch"`
	NPM   []npmPackage `json:"npm"`
}

// npmPackage is unpacked into a folder of the root file system as it is, without running anything of it.
type npmPackage struct {
	Name      string            `json:"name"`
	Version   string            `json:"version"`
	Integrity string            `json:"integrity"`
	Into      string            `json:"into"`
	Skip      []string          `json:"skip"`
	Links     map[string]string `json:"links"`
}

// Default is the recipe embedded in this program.
func Default() (Recipe, error) {
	sub, err := fs.Sub(embedded, "recipe")
	if err != nil {
		return Recipe{}, err
	}
	return newRecipe(sub)
}

func newRecipe(files fs.FS) (Recipe, error) {
	r := Recipe{files: files}
	data, err := fs.ReadFile(files, "pins.json")
	if err != nil {
		return Recipe{}, fmt.Errorf("read the recipe's pins: %w", err)
	}
	if err := json.Unmarshal(data, &r.pins); err != nil {
		return Recipe{}, fmt.Errorf("read the recipe's pins: %w", err)
	}
	if r.pins.Suite == "" || r.pins.Arch == "" {
		return Recipe{}, fmt.Errorf("the recipe's pins name no suite or no architecture")
	}
	return r, nil
}

// Hash names the image this recipe makes: SHA-256 over its files, their names and the pinned versions, as hex.
func (r Recipe) Hash() (string, error) {
	var names []string
	err := fs.WalkDir(r.files, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("list the recipe: %w", err)
	}
	sort.Strings(names)
	h := sha256.New()
	fmt.Fprintf(h, "glasshouse image %s %s %d\n", formatVersion, r.pins.Arch, len(names))
	for _, name := range names {
		data, err := fs.ReadFile(r.files, name)
		if err != nil {
			return "", fmt.Errorf("read the recipe: %w", err)
		}
		fmt.Fprintf(h, "%d %s %d\n", len(name), name, len(data))
		h.Write(data)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// lines of a recipe file without comments and blanks.
func (r Recipe) lines(name string) ([]string, error) {
	f, err := r.files.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the recipe: %w", err)
	}
	defer f.Close()
	var out []string
	s := bufio.NewScanner(f)
	for s.Scan() {
		line, _, _ := strings.Cut(s.Text(), "#")
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out, s.Err()
}

// overlayFile is a file of ours that goes into the root file system.
type overlayFile struct {
	name string // without leading slash
	data []byte
	mode fs.FileMode
}

// overlay lists the recipe's own files. Embedding keeps no modes, so they follow from the content.
func (r Recipe) overlay() ([]overlayFile, error) {
	var out []overlayFile
	err := fs.WalkDir(r.files, "root", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(r.files, name)
		if err != nil {
			return err
		}
		f := overlayFile{name: strings.TrimPrefix(name, "root/"), data: data, mode: 0o644}
		switch {
		case strings.HasPrefix(string(data), "#!"):
			f.mode = 0o755
		case path.Dir(f.name) == "etc/sudoers.d":
			f.mode = 0o440 // sudo ignores its rules when others can read or write them
		}
		out = append(out, f)
		return nil
	})
	return out, err
}
