package source

import (
	"path"
	"strings"
)

// Secret reports whether a file's name says that it holds secrets. Such files
// are never brought along from outside the commit, whoever picks them.
func Secret(p string) bool {
	name := strings.ToLower(path.Base(p))
	switch name {
	case ".env.example", ".env.sample", ".env.template", ".env.dist":
		return false
	case ".env", ".envrc", ".netrc", "_netrc", ".git-credentials", ".npmrc", ".pypirc", ".pgpass", ".htpasswd",
		"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials.json", ".vault-token", ".dockercfg":
		return true
	}
	if strings.HasPrefix(name, ".env.") {
		return true
	}
	switch path.Ext(name) {
	case ".pem", ".key", ".p12", ".pfx", ".kdbx", ".keystore", ".jks", ".ppk", ".env":
		return true
	}
	parent := strings.ToLower(path.Base(path.Dir(p)))
	return parent == ".aws" || parent == ".ssh" || parent == ".gnupg" || parent == ".docker" && name == "config.json" || parent == ".kube" && name == "config"
}
