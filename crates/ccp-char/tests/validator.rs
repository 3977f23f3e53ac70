//! The module's validator against the one in safe Rust: `ccp-kernel/validate.c`, compiled for user space with
//! sanitizers, and `ccp_vm::Message` must say the same of every message.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../ccp-vm/tests/support/generate.rs"]
#[allow(dead_code, reason = "only its programs are used")]
mod generate;
#[path = "support/messages.rs"]
#[allow(dead_code, reason = "shared with the test in the kernel")]
mod messages;

use messages::{Messages, is_acceptable};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MESSAGES: usize = 100_000;
const SEED: u64 = 6;

/// Compiles the validator; `None` if there is no C compiler.
fn compile(test: &str) -> Option<PathBuf> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let module = package.join("../../ccp-kernel");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("verdicts");
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
        .arg("-I")
        .arg(&module)
        .arg(package.join("tests/support/verdicts.c"))
        .arg(module.join("validate.c"))
        .arg("-o")
        .arg(&program)
        .status();
    match compiled {
        Err(error) => {
            println!("SKIPPED {test}: no C compiler: {error}");
            None
        }
        Ok(status) => {
            assert!(status.success(), "cc: {status}");
            Some(program)
        }
    }
}

#[test]
fn the_module_s_validator_agrees_with_the_machine_s() {
    let Some(program) = compile("the_module_s_validator_agrees_with_the_machine_s") else {
        return;
    };
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = std::io::BufWriter::new(child.stdin.take().unwrap());
    let writer = std::thread::spawn(move || {
        for message in Messages::new(SEED).take(MESSAGES) {
            input
                .write_all(&(message.len() as u32).to_ne_bytes())
                .unwrap();
            input.write_all(&message).unwrap();
        }
    });
    let mut verdicts = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut verdicts)
        .unwrap();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(verdicts.len(), MESSAGES);

    let mut by_verdict = [0; 12];
    for (message, verdict) in Messages::new(SEED).zip(verdicts) {
        by_verdict[usize::from(verdict)] += 1;
        assert_eq!(
            verdict == 0,
            is_acceptable(&message),
            "verdict {verdict}, the machine says {:?} of {message:02x?}",
            ccp_vm::Message::parse(&message).map(|_| "fine")
        );
    }
    println!(
        "accepted {}, refused by reason {:?}",
        by_verdict[0],
        &by_verdict[1..]
    );
    // Length, type, limit, operation, register, range, twice: each reason that a message alone can give.
    assert!(
        by_verdict[..8].iter().all(|count| *count > 30),
        "{by_verdict:?}"
    );
}
