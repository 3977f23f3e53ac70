//! Compiles the BPF objects with clang against libbpf's own headers.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let headers = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys exports its include directory");
    let out_dir = env::var("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        other => panic!("the BPF datapath is not ported to {other:?}: x86_64 and aarch64 only"),
    };
    for name in ["ccp", "move"] {
        let source = format!("src/bpf/{name}.bpf.c");
        let object = PathBuf::from(&out_dir).join(format!("{name}.bpf.o"));
        compile(&clang, arch, &headers, &source, &object);
    }
}

fn compile(clang: &str, arch: &str, headers: &str, source: &str, object: &Path) {
    let status = Command::new(clang)
        .args([
            "-O2",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-parameter",
        ])
        .args(["-target", "bpf", "-mcpu=v3"])
        .arg(format!("-D__TARGET_ARCH_{arch}"))
        .arg(format!("-I{headers}"))
        .args(["-c", source, "-o"])
        .arg(object)
        .status()
        .unwrap_or_else(|e| panic!("cannot run {clang} ({e}): install clang, or set CLANG"));
    assert!(status.success(), "{clang} could not compile {source}");
}
