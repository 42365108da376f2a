package git

import (
	"errors"
	"net/url"
	"path/filepath"
	"strings"

	"glasshouse/backend/domain"
)

// IsAddress reports whether a source names a remote and not a folder on this
// computer: URL://… or HOST:PATH as ssh and scp write it. What is meant as an address and is a bad one
// counts too, so that CheckAddress can say what is wrong with it.
func IsAddress(s string) bool {
	if filepath.IsAbs(s) {
		return false
	}
	return looksLikeURL(s) || strings.Contains(s, "::") || scpLike.MatchString(s)
}

// CheckAddress says whether a project can begin at an address: a protocol that is
// allowed, nothing git would take for an option or a remote helper, and no
// credentials. Those are refused and not cut out, so that nobody believes a token
// was kept and used; the error never repeats them.
func CheckAddress(s string) error {
	u, err := parseRemote(s)
	if err != nil {
		return &domain.Error{Code: domain.CodeInvalid, Pointer: "/source", What: "this address cannot be fetched from: " + addressFault(err), Hint: "use https://HOST/PATH, ssh://HOST/PATH, HOST:PATH, file:///PATH or a folder"}
	}
	secret := func(what string) error {
		return &domain.Error{Code: domain.CodeInvalid, Pointer: "/source", What: "the address holds " + what,
			Hint: "give it without; git asks your own credential helper or ssh agent. Nothing of the address was recorded"}
	}
	if scheme.MatchString(s) {
		p, err := url.Parse(s)
		if err != nil {
			return &domain.Error{Code: domain.CodeInvalid, Pointer: "/source", What: "the address cannot be read", Hint: "check its spelling"}
		}
		if _, has := p.User.Password(); has {
			return secret("a password")
		}
		if p.User != nil && u.protocol != "ssh" {
			return secret("a user name or token")
		}
		if tokenArgs.MatchString(s) {
			return secret("a token")
		}
		if p.RawQuery != "" || p.Fragment != "" {
			return &domain.Error{Code: domain.CodeInvalid, Pointer: "/source", What: "the address has a part behind ? or #, which no repository needs", Hint: "give the address without it, and a branch on its own"}
		}
	} else if user, _, has := strings.Cut(s, "@"); has && strings.Contains(user, ":") {
		return secret("a password")
	}
	return nil
}

// addressFault is what parseRemote found, without the address itself.
func addressFault(err error) string {
	var e *domain.Error
	if !errors.As(err, &e) {
		return "it cannot be read"
	}
	_, why, _ := strings.Cut(e.What, "can go to: ")
	return why
}

// AddressName is what people call the repository at an address: the last part of
// its path without ".git".
func AddressName(s string) string {
	s = strings.TrimRight(s, "/")
	if i := strings.LastIndexAny(s, "/:"); i >= 0 {
		s = s[i+1:]
	}
	return strings.TrimSuffix(s, ".git")
}
