//go:build !desktop

// Command barewindow needs the system's web view: build it with the tag desktop.
package main

import "fmt"

func main() { fmt.Println("built without the tag desktop: there is no window in it") }
