//go:build !desktop

package cli

import "github.com/spf13/cobra"

// desktopCmd is nil in builds without a window.
func (e *env) desktopCmd() *cobra.Command { return nil }
