//! Very many sockets that all send at once, over loopback in a namespace. Both ends of every
//! connection send: one thread keeps all send buffers full, one receives, both by epoll.

use super::tcp;
use pathlab::netns::Netns;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

/// Both threads look this often, so that one look serves many sockets.
const TICK: Duration = Duration::from_millis(10);
/// Of every sender; small, so that ten thousand take little memory.
const SEND_BUFFER_BYTES: i32 = 16 << 10;
/// Sockets that are open still when nothing has come for so long are stuck.
const STUCK: Duration = Duration::from_secs(60);

/// Lets this process have that many open files.
pub(crate) fn allow_files(files: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: limit is a valid rlimit to write to.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    limit.rlim_cur = limit.rlim_cur.max(files);
    limit.rlim_max = limit.rlim_max.max(files);
    // SAFETY: limit is a valid rlimit.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    let error = io::Error::last_os_error();
    assert_eq!(
        result, 0,
        "a limit of {files} open files: {error}; see ulimit -Hn"
    );
}

struct Epoll(OwnedFd);

impl Epoll {
    /// Watches all the sockets for `events`; each is known by its index.
    fn of(sockets: &[TcpStream], events: i32) -> Self {
        // SAFETY: a new descriptor, which is checked, and owned by nobody else.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            Self(OwnedFd::from_raw_fd(fd))
        };
        for (index, socket) in sockets.iter().enumerate() {
            let mut event = libc::epoll_event {
                events: events as u32,
                u64: index as u64,
            };
            epoll.control(libc::EPOLL_CTL_ADD, socket, &mut event);
        }
        epoll
    }

    fn control(&self, what: i32, socket: &TcpStream, event: &mut libc::epoll_event) {
        // SAFETY: both descriptors are open, event is valid.
        let result =
            unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, socket.as_raw_fd(), event) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }

    fn forget(&self, socket: &TcpStream) {
        let mut unused = libc::epoll_event { events: 0, u64: 0 };
        self.control(libc::EPOLL_CTL_DEL, socket, &mut unused);
    }

    fn ready(&self, events: &mut [libc::epoll_event]) -> usize {
        let millis = TICK.as_millis() as i32;
        // SAFETY: events is valid for its length.
        let count = unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as i32,
                millis,
            )
        };
        assert!(
            count >= 0 || io::Error::last_os_error().kind() == ErrorKind::Interrupted,
            "{}",
            io::Error::last_os_error()
        );
        count.max(0) as usize
    }
}

/// The sockets; they send until the end.
pub(crate) struct Crowd {
    received: Arc<Vec<AtomicU64>>,
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<u64>,
}

impl Crowd {
    /// Connects so many sockets in pairs, and starts to send.
    pub(crate) fn start(netns: &Netns, congestion: &str, sockets: usize) -> Self {
        let pairs = sockets / 2;
        let connect = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            // What it accepts inherits the choice.
            tcp::set_congestion(&listener, congestion).unwrap();
            let to = listener.local_addr().unwrap();
            let accept = move || listener.accept().unwrap().0;
            let accepting = spawn(move || (0..pairs).map(|_| accept()).collect::<Vec<_>>());
            let mut sockets: Vec<_> = (0..pairs)
                .map(|_| tcp::connect(to, congestion).unwrap())
                .collect();
            sockets.extend(accepting.join().unwrap());
            sockets
        };
        let sockets = Arc::new(netns.enter(connect).unwrap());
        for socket in sockets.iter() {
            let bytes = SEND_BUFFER_BYTES.to_ne_bytes();
            tcp::set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes);
            socket.set_nonblocking(true).unwrap();
        }
        let received: Arc<Vec<_>> = sockets
            .iter()
            .map(|_| AtomicU64::new(0))
            .collect::<Vec<_>>()
            .into();
        let stop = Arc::new(AtomicBool::new(false));
        let sender = spawn({
            let (sockets, stop) = (Arc::clone(&sockets), Arc::clone(&stop));
            move || send(&sockets, &stop)
        });
        let receiver = spawn({
            let received = Arc::clone(&received);
            move || receive(&sockets, &received)
        });
        Self {
            received,
            stop,
            sender,
            receiver,
        }
    }

    /// Bytes that have arrived at each socket.
    pub(crate) fn received(&self) -> Vec<u64> {
        self.received
            .iter()
            .map(|bytes| bytes.load(Relaxed))
            .collect()
    }

    /// Ends all sending and waits for the last byte; fails if one is lost.
    pub(crate) fn finish(self) -> u64 {
        self.stop.store(true, SeqCst);
        let sent = self.sender.join().unwrap();
        let received = self.receiver.join().unwrap();
        assert_eq!(sent, received, "bytes sent and received");
        sent
    }
}

/// Keeps the buffers full until the end; returns what was written.
fn send(sockets: &[TcpStream], stop: &AtomicBool) -> u64 {
    let epoll = Epoll::of(sockets, libc::EPOLLOUT);
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 4096];
    let block = [0; 4096];
    let mut sent = 0;
    while !stop.load(Relaxed) {
        let count = epoll.ready(&mut events);
        for event in &events[..count] {
            let index = event.u64;
            loop {
                match (&sockets[index as usize]).write(&block) {
                    Ok(n) => sent += n as u64,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => panic!("socket {index}: {e}"),
                }
            }
        }
        std::thread::sleep(TICK);
    }
    for socket in sockets {
        socket.shutdown(Shutdown::Write).unwrap();
    }
    sent
}

/// Receives until every socket's peer has ended; returns how much.
fn receive(sockets: &[TcpStream], received: &[AtomicU64]) -> u64 {
    let epoll = Epoll::of(sockets, libc::EPOLLIN);
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 4096];
    let mut buffer = vec![0; 1 << 16];
    let (mut open, mut total) = (sockets.len(), 0);
    let mut heard = Instant::now();
    while open > 0 {
        let count = epoll.ready(&mut events);
        if count > 0 {
            heard = Instant::now();
        }
        assert!(heard.elapsed() < STUCK, "{open} sockets are stuck");
        for event in &events[..count] {
            let index = event.u64 as usize;
            match (&sockets[index]).read(&mut buffer) {
                Ok(0) => {
                    epoll.forget(&sockets[index]);
                    open -= 1;
                }
                Ok(n) => {
                    received[index].fetch_add(n as u64, Relaxed);
                    total += n as u64;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => panic!("socket {index}: {e}"),
            }
        }
        std::thread::sleep(TICK);
    }
    total
}
