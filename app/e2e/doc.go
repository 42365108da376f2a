// Package e2e holds the tests of the whole program: a real core, real machines,
// real remotes. Each test says which machine kinds it needs; build/ci/test.sh
// builds what they use and names the kinds in GLASSHOUSE_E2E ("local",
// "local,lima"). Without it they are skipped, with that reason.
package e2e
