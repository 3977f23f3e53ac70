//! A queue that marks (ECN) instead of dropping.

use pathlab::netns::Netns;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Marks one in 8 of the packets that leave through a namespace's loopback device and allow it, until the namespace
/// goes; says why if this machine cannot.
pub(crate) fn one_in_8(netns: &Netns) -> Result<(), String> {
    let pin = format!("/sys/fs/bpf/ccp-test-mark-{}", std::process::id());
    let program = load_marker().map_err(|e| format!("loading a classifier: {e}"))?;
    let path = CString::new(pin.clone()).unwrap();
    // SAFETY: the descriptor is open, and the path ends with NUL.
    let pinned = unsafe { libbpf_sys::bpf_obj_pin(program.as_raw_fd(), path.as_ptr()) };
    assert_eq!(pinned, 0, "{pin}");
    let tc = |arguments: &str| {
        let arguments: Vec<_> = arguments.split(' ').collect();
        netns.configure("tc", &arguments)
    };
    let added = tc("qdisc add dev lo clsact").and_then(|_| {
        tc(&format!(
            "filter add dev lo egress bpf direct-action object-pinned {pin}"
        ))
    });
    std::fs::remove_file(pin).unwrap();
    added.map(drop).map_err(|e| e.to_string())
}

fn load_marker() -> io::Result<OwnedFd> {
    /// `struct bpf_insn` as a number: opcode, registers (source << 4 | destination), offset, immediate.
    const fn insn(opcode: u64, registers: u64, offset: u64, immediate: u64) -> u64 {
        opcode | registers << 8 | offset << 16 | immediate << 32
    }
    let code = [
        insn(0xbf, 0x16, 0, 0), // r6 = r1, the packet
        insn(0x85, 0, 0, 7),    // bpf_get_prandom_u32()
        insn(0x57, 0, 0, 7),    // r0 &= 7
        insn(0x55, 0, 2, 0),    // if r0 != 0 goto the end
        insn(0xbf, 0x61, 0, 0), // r1 = r6
        insn(0x85, 0, 0, 97),   // bpf_skb_ecn_set_ce(r1)
        insn(0xb7, 0, 0, 0),    // r0 = TC_ACT_OK
        insn(0x95, 0, 0, 0),    // return
    ];
    // SAFETY: all pointers outlive the call; bpf_insn is 8 bytes without padding, as u64 is, and less aligned.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
            c"ccp_test_mark".as_ptr(),
            c"GPL".as_ptr(),
            code.as_ptr().cast(),
            code.len() as _,
            std::ptr::null_mut(),
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
