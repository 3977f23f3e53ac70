# Every target does its own set-up (scripts/setup.sh); on a ready machine that takes well under a second.
# Only the result goes to standard output, so `make -s demo ARGS=--json | jq .` works; `make demo` echoes nothing either.

SHELL := /bin/sh
ARGS ?=
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
PROGRAM := $(TARGET_DIR)/release/pk3c-ccp
# rustup's default place, for shells that have not read its profile yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

# Where `make install` puts things; DESTDIR in front of all of it, for packages.
PREFIX ?= /usr
DESTDIR ?=
GENERATED := $(TARGET_DIR)/generated
DOC := $(PREFIX)/share/doc/pk3c-ccp

.PHONY: help build install deb demo test test-package test-guest test-kernels test-kernel test-kernel-short test-kernel-debug soak clean

help:
	@echo 'make build                build target/release/pk3c-ccp'
	@echo 'make install [DESTDIR=]   program, systemd unit, manual pages, completions, documentation, configuration'
	@echo 'make deb                  Debian packages in target/debian: pk3c-ccp, and pk3c-ccp-dkms (the kernel module)'
	@echo 'make demo [ARGS=--json]   compare cubic, bbr and pk3c on three emulated paths (root, under 3 minutes)'
	@echo 'make test                 all checks and tests; as root with BPF also the kernel tests'
	@echo 'make test-guest [ARGS=]   the same comparison in a QEMU guest under virtual time, then test-kernels'
	@echo 'make test-kernels         the datapath and agent tests on Linux 6.1 and 6.12 in QEMU (no root needed to run)'
	@echo 'make test-kernel          the kernel module on Linux 6.1 and 6.12 in QEMU, beside eBPF, cubic and bbr (20 minutes)'
	@echo 'make test-kernel-short    the same in 5 minutes, without cubic and bbr'
	@echo 'make test-kernel-debug    the kernel module on a kernel with KASAN and lockdep, which it builds first'
	@echo 'make test-package         the packages installed, used and removed in a Debian guest with systemd (root)'
	@echo 'make soak                 a day of flows in virtual time: memory, clocks, counters (half a minute of CPU)'
	@echo 'make clean                remove what the build made'

# Libraries in C are built by makes of their own, which must not take DESTDIR for theirs.
build:
	@scripts/setup.sh base >&2
	@env -u MAKEFLAGS -u MAKEOVERRIDES -u DESTDIR -u PREFIX cargo build --locked --release >&2

# Builds only what is not there, so that root needs no cargo after `make build`. A configuration that is there is left
# alone. Nothing is enabled or started.
install: $(PROGRAM)
	@$(PROGRAM) generate $(GENERATED)
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin $(PROGRAM)
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system packaging/pk3c-ccp.service
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(GENERATED)/man/*.1
	install -D -m 644 $(GENERATED)/completions/pk3c-ccp.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/pk3c-ccp
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/zsh/vendor-completions $(GENERATED)/completions/_pk3c-ccp
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d $(GENERATED)/completions/pk3c-ccp.fish
	install -D -m 644 -t $(DESTDIR)$(DOC) README.md
	install -D -m 644 -t $(DESTDIR)$(DOC)/docs docs/*.md
	install -D -m 644 -t $(DESTDIR)$(DOC)/docs/changes docs/changes/*.md
	install -D -m 644 -t $(DESTDIR)$(DOC)/docs/images docs/images/*
	install -D -m 644 -t $(DESTDIR)$(DOC)/scenarios scenarios/*.toml
	install -D -m 644 -t $(DESTDIR)$(DOC)/ccp-kernel ccp-kernel/README.md
	install -D -m 644 -t $(DESTDIR)$(DOC)/traces traces/README.md
	test -e $(DESTDIR)/etc/pk3c-ccp/config.toml || install -D -m 644 -t $(DESTDIR)/etc/pk3c-ccp $(GENERATED)/config.toml
	@rm -rf $(GENERATED)

$(PROGRAM):
	@$(MAKE) --no-print-directory -s build

deb: build
	@packaging/deb/build.sh $(TARGET_DIR)/debian

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

test-kernel:
	@scripts/setup.sh guest >&2
	@scripts/test-module.sh long $(ARGS)

test-kernel-short:
	@scripts/setup.sh guest >&2
	@scripts/test-module.sh short $(ARGS)

test-kernel-debug:
	@scripts/setup.sh kernel >&2
	@scripts/test-module-debug.sh

test-package:
	@scripts/setup.sh package >&2
	@$(MAKE) --no-print-directory -s deb >&2
	@scripts/test-package.sh $(TARGET_DIR)/debian

soak:
	@scripts/setup.sh base >&2
	@cargo test --locked --release --test soak -- --ignored --nocapture

clean:
	@$(MAKE) -s -C ccp-kernel clean
	cargo clean
