//! TCP sockets under a chosen congestion control, and what the kernel says of them.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread::{JoinHandle, spawn};

/// A socket option given as bytes, which must be taken.
pub(crate) fn set_option(socket: &impl AsRawFd, level: i32, name: i32, value: &[u8]) {
    try_set_option(socket, level, name, value).unwrap();
}

fn try_set_option(socket: &impl AsRawFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: value is valid for its length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as u32,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Until `hear`, nothing that is sent to a socket arrives.
pub(crate) fn deafen(socket: &impl AsRawFd) {
    let mut keep_nothing = libc::sock_filter {
        code: libc::BPF_RET as u16,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut keep_nothing,
    };
    let start = std::ptr::from_ref(&program).cast();
    // SAFETY: the program has no padding that is read, and outlives the call.
    let bytes = unsafe { std::slice::from_raw_parts(start, size_of_val(&program)) };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, bytes);
}

pub(crate) fn hear(socket: &impl AsRawFd) {
    let (level, option) = (libc::SOL_SOCKET, libc::SO_DETACH_FILTER);
    set_option(socket, level, option, &0i32.to_ne_bytes());
}

/// Chooses the congestion control of a socket.
pub(crate) fn set_congestion(socket: &impl AsRawFd, name: &str) -> io::Result<()> {
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
    try_set_option(socket, level, option, name.as_bytes())
}

/// Closing the socket drops the connection at once (RST), without TIME_WAIT.
pub(crate) fn drop_on_close(socket: &impl AsRawFd) {
    let linger = [1i32, 0].map(i32::to_ne_bytes).concat();
    set_option(socket, libc::SOL_SOCKET, libc::SO_LINGER, &linger);
}

/// The congestion control of a socket.
pub(crate) fn congestion_of(socket: &impl AsRawFd) -> String {
    let mut name = [0u8; 16];
    let mut len = name.len() as u32;
    // SAFETY: name is valid for len bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &mut len,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(16);
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// Connects to an IPv4 address under a congestion control that is chosen before.
pub(crate) fn connect(to: SocketAddr, congestion: &str) -> io::Result<TcpStream> {
    let SocketAddr::V4(v4) = to else {
        panic!("{to} is not IPv4")
    };
    // SAFETY: a new descriptor, owned by nobody else once it is checked.
    let socket = unsafe {
        let fd = libc::socket(
            libc::AF_INET,
            libc::SOCK_STREAM | libc::SOCK_CLOEXEC,
            libc::IPPROTO_TCP,
        );
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    set_congestion(&socket, congestion)?;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: v4.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(v4.ip().octets()),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: address is a valid sockaddr_in for its size.
    let result = unsafe {
        libc::connect(
            socket.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            size_of_val(&address) as u32,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket.into())
}

/// `struct tcp_info`, of which only what Linux has had since 6.1 is read.
pub(crate) struct TcpInfo([u8; 248]);

impl TcpInfo {
    pub(crate) fn of(socket: &TcpStream) -> Self {
        let mut info = [0u8; 248];
        let mut len = info.len() as u32;
        // SAFETY: info is valid for len bytes.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &mut len,
            )
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        Self(info)
    }

    fn int(&self, offset: usize) -> u64 {
        u32::from_ne_bytes(self.0[offset..offset + 4].try_into().unwrap()).into()
    }

    fn long(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.0[offset..offset + 8].try_into().unwrap())
    }

    /// A timeout has fired and its losses are not repaired yet.
    pub(crate) fn in_loss(&self) -> bool {
        self.0[1] == 4
    }
    pub(crate) fn snd_mss(&self) -> u64 {
        self.int(16)
    }
    pub(crate) fn unacked(&self) -> u64 {
        self.int(24)
    }
    pub(crate) fn snd_ssthresh(&self) -> u64 {
        self.int(76)
    }
    pub(crate) fn snd_cwnd(&self) -> u64 {
        self.int(80)
    }
    pub(crate) fn total_retrans(&self) -> u64 {
        self.int(100)
    }
    pub(crate) fn pacing_rate(&self) -> u64 {
        self.long(104)
    }
    pub(crate) fn bytes_acked(&self) -> u64 {
        self.long(120)
    }
    pub(crate) fn min_rtt_us(&self) -> u64 {
        self.int(148)
    }
    pub(crate) fn delivered(&self) -> u64 {
        self.int(192)
    }
    pub(crate) fn delivered_ce(&self) -> u64 {
        self.int(196)
    }
    pub(crate) fn dsack_dups(&self) -> u64 {
        self.int(216)
    }
}

/// Reads everything from the next connection to a listener; its result is the number of bytes.
pub(crate) fn sink(listener: TcpListener) -> JoinHandle<u64> {
    spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 16];
        let mut total = 0;
        loop {
            match socket.read(&mut buffer).unwrap() {
                0 => return total,
                n => total += n as u64,
            }
        }
    })
}
