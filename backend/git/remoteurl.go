package git

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"glasshouse/backend/domain"
)

// remoteURL is an address a push may go to.
type remoteURL struct {
	raw      string
	protocol string // "file", "ssh", "https", "http"
	path     string // of file
}

var (
	scpLike = regexp.MustCompile(`^([^/@:\s]+@)?([^/@:\s\[\]]+|\[[0-9a-fA-F:.]+\]):(.+)$`)
	scheme  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)
)

func looksLikeURL(s string) bool { return scheme.MatchString(s) }

// parseRemote accepts local paths, ssh and https, and http to this computer alone.
func parseRemote(s string) (remoteURL, error) {
	bad := func(why string) (remoteURL, error) {
		return remoteURL{}, domain.E(domain.CodeInvalid, fmt.Sprintf("%q is no address a push can go to: %s", Redact(clip(s, 200)), why),
			"use https://HOST/PATH, ssh://HOST/PATH, HOST:PATH or a local folder", nil)
	}
	if s == "" || strings.HasPrefix(s, "-") || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 127 }) {
		return bad("it is empty, looks like an option or holds control characters")
	}
	if i := strings.Index(s, "::"); i >= 0 && !strings.ContainsAny(s[:i], "/[") {
		return bad("it names a remote helper")
	}
	if filepath.IsAbs(s) {
		return remoteURL{s, "file", filepath.Clean(s)}, nil
	}
	if !scheme.MatchString(s) {
		m := scpLike.FindStringSubmatch(s)
		if m == nil {
			return bad("it is a relative path or has no host")
		}
		if strings.HasPrefix(m[1], "-") || strings.HasPrefix(m[2], "-") {
			return bad("its host looks like an option")
		}
		return remoteURL{raw: s, protocol: "ssh"}, nil
	}
	u, err := url.Parse(s)
	if err != nil {
		return bad("it cannot be parsed")
	}
	if strings.HasPrefix(u.Host, "-") || strings.HasPrefix(u.User.Username(), "-") {
		return bad("its host looks like an option")
	}
	switch strings.ToLower(u.Scheme) {
	case "https":
		if u.Host == "" {
			return bad("it has no host")
		}
		return remoteURL{raw: s, protocol: "https"}, nil
	case "ssh", "git+ssh", "ssh+git":
		if u.Host == "" {
			return bad("it has no host")
		}
		return remoteURL{raw: s, protocol: "ssh"}, nil
	case "http":
		if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return bad("http is neither private nor proof against changes on the way; only this computer is reached by it")
		}
		return remoteURL{raw: s, protocol: "http"}, nil
	case "file":
		if u.Host != "" && u.Host != "localhost" || !filepath.IsAbs(u.Path) {
			return bad("a file address needs an absolute path and no host")
		}
		return remoteURL{s, "file", filepath.Clean(u.Path)}, nil
	}
	return bad(fmt.Sprintf("the protocol %q is not allowed", u.Scheme))
}

// effective is the address after the person's own url.*.insteadOf rules, as git applies them to pushes.
func effective(s string, conf []setting) string {
	best := func(name string) (string, bool) {
		base, long, found := "", -1, false
		for _, c := range conf {
			if !strings.HasPrefix(c.key, "url.") || !strings.HasSuffix(c.key, "."+name) || len(c.key) < len("url.")+len(name)+1 {
				continue
			}
			if strings.HasPrefix(s, c.val) && c.val != "" && len(c.val) > long {
				base, long, found = c.key[len("url."):len(c.key)-len(name)-1], len(c.val), true
			}
		}
		if !found {
			return s, false
		}
		return base + s[long:], true
	}
	if out, ok := best("pushinsteadof"); ok {
		return out
	}
	out, _ := best("insteadof")
	return out
}

var (
	userInfo  = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)([^/@\s'"]+)@`)
	tokenArgs = regexp.MustCompile(`(?i)([?&](?:access_token|private_token|token|key|password|auth|sig|signature)=)[^&\s'"]+`)
)

// Redact takes credentials out of addresses in a text. What an ssh address names before
// its @ is a user, not a secret, and stays.
func Redact(s string) string {
	s = userInfo.ReplaceAllStringFunc(s, func(m string) string {
		g := userInfo.FindStringSubmatch(m)
		user, _, has := strings.Cut(g[2], ":")
		if strings.Contains(strings.ToLower(g[1]), "ssh") {
			if has {
				return g[1] + user + ":***@"
			}
			return m
		}
		return g[1] + "***@"
	})
	return tokenArgs.ReplaceAllString(s, "${1}***")
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
