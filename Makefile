# Glasshouse. The two commands that matter: make demo, make test.
SHELL := /bin/bash
export CGO_ENABLED ?= 1
BIN      := $(CURDIR)/build/bin
CACHE    ?= $(CURDIR)/build/cache
MACHINE  ?= local
VERSION  := $(shell git describe --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X glasshouse/app/cli.Version=$(VERSION)
WEBTAG   := $(shell pkg-config --exists webkit2gtk-4.1 2>/dev/null && echo ,webkit2_41)
TAGS     := desktop,production$(WEBTAG)
export GLASSHOUSE_CACHE ?= $(CACHE)

.PHONY: help demo demo-model run test check build setup setup-window setup-test frontend guestd fakemodel limactl window lint vet unit types pages shots machines kill soak corpora clean bench-exec bench-ui image

help: ## What can be made
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

demo: setup build ## The main job end to end (MACHINE=lima: in a real VM)
	@$(BIN)/glasshouse demo --machine $(MACHINE)

demo-model: setup build fakemodel ## The same job by the model agent, on a scripted server in place of a model
	@bash build/demo/model.sh

run: setup-window window ## Open the desktop window
	@GLASSHOUSE_LIBEXEC=$(BIN) $(BIN)/glasshouse-window desktop

test: setup ## Everything CI runs, with its counts
	@bash build/ci/test.sh

check: vet lint unit types ## The fast loop

setup: ## Install what is needed (apt as root or with sudo)
	@bash build/setup/apt.sh core

setup-window:
	@bash build/setup/apt.sh core window

build: frontend guestd limactl ## Everything but the window
	@mkdir -p $(BIN)
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/glasshouse .

window: frontend guestd limactl ## The program with its window
	@mkdir -p $(BIN)
	go build -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/glasshouse-window .

frontend: frontend/dist/index.html

FRONT := $(shell find frontend/src frontend/index.html frontend/package.json frontend/vite.config.ts -type f 2>/dev/null)
frontend/dist/index.html: $(FRONT) frontend/node_modules/.stamp
	cd frontend && npm run --silent build

frontend/node_modules/.stamp: frontend/package-lock.json
	cd frontend && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

guestd:
	@mkdir -p $(BIN)
	CGO_ENABLED=0 GOOS=linux go build -trimpath -ldflags '-s -w' -o $(BIN)/guestd ./vm/guest/cmd/guestd

fakemodel: # the model server of tests, for tests of the page
	@mkdir -p $(BIN)
	CGO_ENABLED=0 go build -o $(BIN)/fakemodel ./backend/model/modeltest/cmd/fakemodel

limactl:
	@sh build/setup/limactl.sh $(BIN)/lima

vet:
	go vet ./...
	go vet -tags $(TAGS) ./app/cli ./app/desktop 2>/dev/null || echo "vet: the window was not vetted: its web view's headers are not installed (make setup-window)"

LINT := $(BIN)/golangci-lint
lint: $(LINT)
	$(LINT) run ./...
$(LINT): build/lint/go.mod build/lint/go.sum
	@mkdir -p $(BIN)
	cd build/lint && CGO_ENABLED=0 go build -ldflags '-s -w' -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

unit: ## Unit tests: no machine, no image
	go test ./...

types: frontend
	cd frontend && npm run --silent check

image: build ## The guest image, into build/cache
	$(BIN)/glasshouse image build

pages: setup-test build fakemodel ## The page in a browser against a real core
	cd frontend && npm run --silent e2e

shots: setup-test build fakemodel ## A picture of every screen, both sizes and themes, into build/shots
	node frontend/e2e/shots.mjs

setup-test:
	@bash build/setup/apt.sh core test

machines: build ## The contract suite on both machine kinds, the kill tests
	@bash build/ci/test.sh machines

soak: setup build ## Many seeds, long
	@bash build/ci/soak.sh

corpora: build ## Outside suites from the folder named by GLASSHOUSE_CORPORA
	@bash build/ci/corpora.sh

bench-exec: setup build ## Exec and cold start against limactl shell, ssh and plain Lima
	@bash build/ci/bench.sh exec

bench-ui: setup-window window ## The window against a bare one: start, memory, live view, a flood of events
	@bash build/setup/apt.sh core window test
	@bash build/ci/bench.sh ui

clean: ## Remove what was built, not the image cache
	rm -rf build/bin frontend/node_modules frontend/dist/assets frontend/dist/index.html
