//! What `make -C ccp-kernel` says when something is missing: what it is, and what to do. Nothing is compiled here.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn module() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ccp-kernel")
}

/// What a build writes to standard error, which must fail; `None` without make.
fn complaint(test: &str, settings: &[(&str, &Path)]) -> Option<String> {
    let mut make = Command::new("make");
    make.arg("-C").arg(module()).env_remove("LIBCCP_DIR");
    for (name, value) in settings {
        make.arg(format!("{name}={}", value.display()));
    }
    match make.output() {
        Err(error) => {
            println!("SKIPPED {test}: no make: {error}");
            None
        }
        Ok(output) => {
            assert!(!output.status.success());
            Some(String::from_utf8(output.stderr).unwrap())
        }
    }
}

/// A build folder that has a version and nothing else.
fn headers(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let generated = folder.join("include/generated");
    std::fs::create_dir_all(&generated).unwrap();
    let version = "#define UTS_RELEASE \"0.0.0-another\"\n";
    std::fs::write(generated.join("utsrelease.h"), version).unwrap();
    folder
}

#[track_caller]
fn says(complaint: &str, parts: &[&str]) {
    for part in parts {
        assert!(complaint.contains(part), "no `{part}` in: {complaint}");
    }
}

#[test]
fn missing_headers_are_named_with_the_remedy() {
    let kdir = Path::new("/nonexistent/headers");
    let Some(text) = complaint("missing_headers", &[("KDIR", kdir)]) else {
        return;
    };
    says(
        &text,
        &[
            "no kernel headers in /nonexistent/headers",
            "apt-get install linux-headers-",
            "KDIR=",
        ],
    );
}

#[test]
fn headers_of_another_kernel_and_a_missing_libccp_are_named_with_the_remedies() {
    let test = "headers_of_another_kernel";
    let settings = [
        ("KDIR", &*headers(test)),
        ("LIBCCP_DIR", Path::new("/nonexistent/libccp")),
    ];
    let Some(text) = complaint(test, &settings) else {
        return;
    };
    says(
        &text,
        &[
            "these headers are those of Linux 0.0.0-another",
            "Invalid module format",
            "KDIR=/lib/modules/",
            "no libccp in LIBCCP_DIR=/nonexistent/libccp",
            "give the folder that has ccp.c",
        ],
    );
}

#[test]
fn a_missing_cargo_is_named_with_the_remedy() {
    let shell = "command -v cargo";
    let path = "/usr/bin:/bin";
    let mut has_cargo = Command::new("/bin/sh");
    has_cargo.args(["-c", shell]).env("PATH", path);
    if has_cargo.output().unwrap().status.success() {
        println!("SKIPPED a_missing_cargo_is_named_with_the_remedy: cargo is in {path} here");
        return;
    }
    let script = module().join("scripts/find-libccp.sh");
    let found = Command::new("/bin/sh")
        .arg(script)
        .env("PATH", path)
        .env("HOME", "/nonexistent")
        .env_remove("LIBCCP_DIR")
        .output()
        .unwrap();
    assert!(!found.status.success());
    let text = String::from_utf8(found.stderr).unwrap();
    says(
        &text,
        &["there is no cargo", "install rustup", "LIBCCP_DIR=FOLDER"],
    );
}
