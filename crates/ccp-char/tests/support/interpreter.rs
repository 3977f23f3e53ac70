//! `machine.c`, compiled and run: libccp behind the module's validator, with one flow.

use ccp_vm::{NUM_CONTROL, NUM_IMPLICIT, NUM_LOCAL, NUM_REPORT, NUM_TMP, Primitives, Reg};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

/// What came of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// libccp has it.
    Taken,
    /// The validator refused it, with this reason; libccp has not seen it.
    Refused(u8),
    /// It was valid, and libccp gave this result. Only what is installed can be the reason.
    #[allow(dead_code, reason = "a failing test prints it")]
    Failed(i32),
}

/// What came of an ACK.
pub(crate) struct Invoked {
    /// libccp's error without its sign, 0 for none.
    pub(crate) error: u64,
    pub(crate) cwnd: Option<u64>,
    pub(crate) rate: Option<u64>,
    pub(crate) registers: Vec<(Reg, u64)>,
    pub(crate) sent: Vec<u8>,
}

/// The running program; it ends when this is dropped.
pub(crate) struct Interpreter {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        drop(self.input.take());
        let status = self.child.wait();
        if !std::thread::panicking() {
            assert!(
                status.as_ref().is_ok_and(|status| status.success()),
                "the interpreter ended with {status:?}"
            );
        }
    }
}

/// libccp's sources, as the module's build finds them.
fn libccp(module: &Path) -> PathBuf {
    let found = Command::new(module.join("scripts/find-libccp.sh"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(found.status.success(), "find-libccp.sh: {}", found.status);
    String::from_utf8(found.stdout).unwrap().trim().into()
}

/// Compiles it, once for all tests; `None` if there is no C compiler.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let module = package.join("../../ccp-kernel");
        let libccp = libccp(&module);
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("machine");
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O1", "-w"])
            .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
            .arg("-I")
            .arg(&module)
            .arg("-I")
            .arg(&libccp)
            .arg(package.join("tests/support/machine.c"))
            .arg(module.join("validate.c"));
        for source in ["ccp.c", "ccp_priv.c", "machine.c", "serialize.c"] {
            cc.arg(libccp.join(source));
        }
        match cc.arg("-o").arg(&program).status() {
            Err(_) => None,
            Ok(status) => {
                assert!(status.success(), "cc: {status}");
                Some(program)
            }
        }
    };
    PROGRAM.get_or_init(compile).as_deref()
}

impl Interpreter {
    /// `None`, said aloud, without a C compiler.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let Some(program) = program() else {
            println!("SKIPPED {test}: no C compiler (cc) here");
            return None;
        };
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        Some(Self {
            child,
            input,
            output,
        })
    }

    fn send(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn receive<const LEN: usize>(&mut self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        self.output
            .read_exact(&mut bytes)
            .expect("the interpreter lives: see its sanitizer's report above");
        bytes
    }

    /// A new flow and no programs.
    pub(crate) fn begin(&mut self) {
        self.send(b"N");
    }

    pub(crate) fn deliver(&mut self, message: &[u8]) -> Verdict {
        let len = u32::try_from(message.len()).unwrap().to_ne_bytes();
        self.send(&[b"M", &len[..], message].concat());
        let [verdict] = self.receive();
        if verdict != 0 {
            return Verdict::Refused(verdict);
        }
        match i32::from_ne_bytes(self.receive()) {
            0 => Verdict::Taken,
            result => Verdict::Failed(result),
        }
    }

    pub(crate) fn invoke(
        &mut self,
        now_us: u64,
        ack: &Primitives,
        cwnd: u64,
        rate: u64,
    ) -> Invoked {
        let fields = [
            now_us,
            ack.bytes_acked,
            ack.bytes_misordered,
            ack.ecn_bytes,
            ack.ecn_packets,
            ack.lost_pkts_sample,
            ack.packets_acked,
            ack.packets_misordered,
            ack.bytes_in_flight,
            ack.bytes_pending,
            ack.packets_in_flight,
            ack.rate_incoming,
            ack.rate_outgoing,
            ack.rtt_sample_us,
            u64::from(ack.was_timeout),
            cwnd,
            rate,
        ];
        let fields = fields.map(u64::to_ne_bytes);
        self.send(&[b"A", fields.as_flattened()].concat());
        let mut word = || u64::from_ne_bytes(self.receive());
        let (error, set) = (word(), word());
        let (cwnd, rate) = (word(), word());
        let mut registers = Vec::new();
        for (register, count) in [
            (Reg::Report as fn(u8) -> Reg, NUM_REPORT),
            (Reg::Control, NUM_CONTROL),
            (Reg::Implicit, NUM_IMPLICIT),
            (Reg::Local, NUM_LOCAL),
            (Reg::Tmp, NUM_TMP),
        ] {
            registers.extend((0..count).map(|i| (register(i), word())));
        }
        let mut sent = vec![0; usize::try_from(word()).unwrap()];
        self.output.read_exact(&mut sent).unwrap();
        Invoked {
            error,
            cwnd: (set & 1 != 0).then_some(cwnd),
            rate: (set & 2 != 0).then_some(rate),
            registers,
            sent,
        }
    }
}
