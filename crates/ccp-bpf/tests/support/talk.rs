//! Connections that each write a little again and again, for tests that come and go around them,
//! and a receiver that accounts for every byte.

use super::tcp::{self, TcpInfo};
use pathlab::netns::Netns;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

/// Time between the writes of a connection.
const EVERY: Duration = Duration::from_millis(4);

struct Talker {
    socket: TcpStream,
    port: u16,
    sent: u64,
}

/// The connections. All IPv4, over loopback in a namespace.
pub(crate) struct Talk {
    netns: Netns,
    to: SocketAddr,
    talkers: Arc<Mutex<Vec<Talker>>>,
    arrived: Arc<Mutex<HashMap<u16, u64>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Talk {
    /// No connection yet; each will write `bytes` every 4 ms.
    pub(crate) fn new(bytes: usize) -> Self {
        let netns = super::loopback();
        let listener = netns
            .enter(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
            .unwrap();
        let to = listener.local_addr().unwrap();
        let talkers: Arc<Mutex<Vec<Talker>>> = Arc::default();
        let arrived = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let talking = spawn({
            let (talkers, stop) = (Arc::clone(&talkers), Arc::clone(&stop));
            let block = vec![0; bytes];
            move || {
                while !stop.load(SeqCst) {
                    for talker in talkers.lock().unwrap().iter_mut() {
                        match talker.socket.write(&block) {
                            Ok(n) => talker.sent += n as u64,
                            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}"),
                        }
                    }
                    sleep(EVERY);
                }
            }
        });
        let listening = spawn({
            let (arrived, stop) = (Arc::clone(&arrived), Arc::clone(&stop));
            move || receive(&listener, &arrived, &stop)
        });
        Self {
            netns,
            to,
            talkers,
            arrived,
            stop,
            threads: vec![talking, listening],
        }
    }

    /// Opens connections and returns their local ports.
    pub(crate) fn open(&self, congestion: &str, count: usize) -> Vec<u16> {
        (0..count)
            .map(|_| self.try_open(congestion).unwrap())
            .collect()
    }

    pub(crate) fn try_open(&self, congestion: &str) -> std::io::Result<u16> {
        let connect = || tcp::connect(self.to, congestion);
        let socket = self.netns.enter(connect).unwrap()?;
        socket.set_nonblocking(true).unwrap();
        let port = socket.local_addr().unwrap().port();
        self.talkers.lock().unwrap().push(Talker {
            socket,
            port,
            sent: 0,
        });
        Ok(port)
    }

    /// A connection dies at once: what is under way is lost.
    pub(crate) fn abort(&self, port: u16) {
        let mut talkers = self.talkers.lock().unwrap();
        let index = talkers.iter().position(|talker| talker.port == port);
        let talker = talkers.remove(index.unwrap());
        tcp::drop_on_close(&talker.socket);
    }

    /// Runs something in the namespace of the connections.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.netns.enter(work).unwrap()
    }

    /// The congestion control of a connection.
    pub(crate) fn congestion(&self, port: u16) -> String {
        let talkers = self.talkers.lock().unwrap();
        let talker = talkers.iter().find(|talker| talker.port == port);
        tcp::congestion_of(&talker.unwrap().socket)
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        let talkers = self.talkers.lock().unwrap();
        talkers.iter().map(|talker| talker.port).collect()
    }

    /// What the kernel says of a connection.
    pub(crate) fn info(&self, port: u16) -> TcpInfo {
        let talkers = self.talkers.lock().unwrap();
        let talker = talkers.iter().find(|talker| talker.port == port);
        TcpInfo::of(&talker.unwrap().socket)
    }

    /// Waits until the connections from these ports are all paced at a rate in bytes/s.
    pub(crate) fn wait_paced(&self, ports: &[u16], rate: u64) {
        let paced = || {
            ports
                .iter()
                .all(|port| self.info(*port).pacing_rate() == rate)
        };
        if !super::eventually(Duration::from_secs(10), paced) {
            let rates: Vec<_> = ports
                .iter()
                .map(|port| self.info(*port).pacing_rate())
                .collect();
            panic!("{rates:?} instead of {rate} bytes/s");
        }
    }

    /// Ends all connections; every byte of those that were not aborted must have arrived.
    pub(crate) fn finish(&self) {
        let talkers = std::mem::take(&mut *self.talkers.lock().unwrap());
        let sent: Vec<_> = talkers.iter().map(|t| (t.port, t.sent)).collect();
        drop(talkers);
        let wrong = || -> Vec<String> {
            let arrived = self.arrived.lock().unwrap();
            let differs = |(port, sent): &(u16, u64)| {
                let came = arrived.get(port).copied().unwrap_or(0);
                (came != *sent).then(|| format!("{came} of {sent} bytes from port {port}"))
            };
            sent.iter().filter_map(differs).collect()
        };
        let all = super::eventually(Duration::from_secs(20), || wrong().is_empty());
        assert!(all, "not within 20 s: {:?}", wrong());
    }
}

fn receive(listener: &TcpListener, arrived: &Mutex<HashMap<u16, u64>>, stop: &AtomicBool) {
    listener.set_nonblocking(true).unwrap();
    let mut open: Vec<(u16, TcpStream)> = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while !stop.load(SeqCst) {
        while let Ok((socket, from)) = listener.accept() {
            socket.set_nonblocking(true).unwrap();
            // The kernel gives the port of an aborted connection to a new one.
            open.retain(|(port, _)| *port != from.port());
            arrived.lock().unwrap().insert(from.port(), 0);
            open.push((from.port(), socket));
        }
        open.retain_mut(|(port, socket)| {
            loop {
                match socket.read(&mut buffer) {
                    Ok(0) => return false,
                    Ok(n) => *arrived.lock().unwrap().entry(*port).or_default() += n as u64,
                    Err(e) => return e.kind() == ErrorKind::WouldBlock,
                }
            }
        });
        sleep(Duration::from_millis(2));
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a thread of the connections failed");
            }
        }
    }
}
