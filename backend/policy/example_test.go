package policy_test

import (
	"fmt"

	"glasshouse/backend/domain"
	"glasshouse/backend/policy"
)

// A person's policy.toml. Its match and not_match lines are run when it is loaded.
const example = `
[[rule]]
id = "no-push"
decision = "deny"
reason = "Pushing goes through a review."
would_allow = "git commit, then open a review"
argv = ["git", "push", "**"]
match = ["git push", "cd lib && git -C . push origin main"]
not_match = ["git stash push"]

[[rule]]
id = "workflows"
decision = "ask"
reason = "Workflows run with the repository's secrets."
path = [".github/**"]
write = true

[[rule]]
id = "mirror"
decision = "allow"
host = ["pkg.example:443"]
`

func Example() {
	rules, err := policy.Load(nil, policy.Source{Tier: policy.TierUser, Name: "policy.toml", Data: []byte(example)})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, script := range []string{"go test ./...", "env FOO=1 git push", "echo x > .github/ci.yml", "$CMD origin"} {
		d := policy.Decide(policy.Action{Tool: "exec", Reach: domain.ReachMachine, Script: script, Lang: "bash"}, rules)
		fmt.Println(d.Decision, d.Rule)
	}
	// Output:
	// allow default
	// deny user:no-push
	// ask user:workflows
	// ask user:no-push
}
