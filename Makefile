# Every target does its own set-up (scripts/setup.sh); on a ready machine that takes well under a second.
# Only the result goes to standard output, so `make -s demo ARGS=--json | jq .` works; `make demo` echoes nothing either.

SHELL := /bin/sh
ARGS ?=
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
PROGRAM := $(TARGET_DIR)/release/pk3c-ccp
# rustup's default place, for shells that have not read its profile yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help build demo test test-guest test-kernels clean

help:
	@echo 'make build                build target/release/pk3c-ccp'
	@echo 'make demo [ARGS=--json]   compare cubic, bbr and pk3c on three emulated paths (root, under 3 minutes)'
	@echo 'make test                 all checks and tests; as root with BPF also the kernel tests'
	@echo 'make test-guest [ARGS=]   the same comparison in a QEMU guest under virtual time, then test-kernels'
	@echo 'make test-kernels         the datapath and agent tests on Linux 6.1 and 6.12 in QEMU (no root needed to run)'
	@echo 'make clean                remove what the build made'

build:
	@scripts/setup.sh base >&2
	@cargo build --locked --release >&2

demo: build
	@$(PROGRAM) demo $(ARGS)

test:
	@scripts/setup.sh test >&2
	@scripts/test.sh

test-guest:
	@scripts/setup.sh guest >&2
	@cargo build --locked --release >&2
	@$(PROGRAM) demo --backend guest $(ARGS)
	@scripts/test-guest.sh >&2

test-kernels:
	@scripts/setup.sh guest >&2
	@scripts/test-guest.sh $(ARGS)

clean:
	cargo clean
