// Fakemodel is the model server of tests as a program: it answers from a script. Its
// first line of output is the address to put into a model's base_url; faults follow,
// one a line, as they come.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"glasshouse/backend/model/modeltest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "fakemodel:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "`address` to listen at")
	script := flag.String("script", "", "`file` to answer from")
	key := flag.String("key", "", "`key` that requests must carry; empty = none is needed")
	record := flag.String("record", "", "`folder` that gets each request and answer")
	flag.Parse()
	if *script == "" || flag.NArg() > 0 {
		flag.Usage()
		return fmt.Errorf("give a script with -script and nothing else")
	}
	s, err := modeltest.Load(*script)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	srv, err := modeltest.Start(*listen, s, modeltest.Options{Key: *key, Record: *record})
	if err != nil {
		return err
	}
	defer srv.Close()
	fmt.Println(srv.URL())
	for told := 0; ; {
		for _, f := range srv.Faults()[told:] {
			fmt.Println(f)
			told++
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}
