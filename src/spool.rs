//! Bytes that somebody else writes.
//!
//! A terminal that is stopped, a log service that hangs and a slow disk make whoever writes to them wait, and the
//! thread that drives flows must not: after 100 ms without it the datapath takes all of them. So it puts its bytes into
//! memory, and a thread of their own writes them. The memory has a bound; what does not fit is refused as a whole and
//! at once, and what to make of that is for the caller: a log goes on with a gap, a record ends.
//!
//! Everything that was accepted is written, at the latest when the spool is dropped, which waits for it.

use caps::CapSet;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// So much is written without being asked for, and so much memory is kept for the next bytes.
const BLOCK: usize = 1 << 16;

#[derive(Default)]
struct Waiting {
    text: Vec<u8>,
    is_urgent: bool,
    is_closed: bool,
    /// Nothing is written any more.
    has_failed: bool,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for bytes that are to be written now and exchanges them for an empty buffer; `None` at the end.
    fn take(&self, empty: Vec<u8>) -> Option<Vec<u8>> {
        let is_idle = |waiting: &mut Waiting| {
            let is_due = waiting.is_urgent || waiting.text.len() >= BLOCK;
            !(is_due || waiting.is_closed)
        };
        let waited = self.more.wait_while(self.lock(), is_idle);
        let mut waiting = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.is_urgent = false;
        let is_over = waiting.is_closed && waiting.text.is_empty();
        (!is_over).then(|| mem::replace(&mut waiting.text, empty))
    }

    /// Writes until the end, or until `write` says that it cannot any more.
    fn serve(&self, mut write: impl FnMut(&[u8]) -> bool) {
        let mut empty = Vec::new();
        while let Some(mut text) = self.take(empty) {
            if !write(&text) {
                let mut waiting = self.lock();
                waiting.has_failed = true;
                waiting.text = Vec::new();
                return;
            }
            text.clear();
            text.shrink_to(BLOCK);
            empty = text;
        }
    }
}

/// Takes bytes for a thread that writes them.
pub struct Spool {
    shared: Arc<Shared>,
    /// Bytes that may wait; as many again may be being written.
    limit: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Spool {
    /// Starts the thread, which has no capabilities. `write` gets all bytes in their order and says whether it can go
    /// on.
    ///
    /// # Errors
    /// If there can be no such thread.
    pub fn start(
        name: &str,
        limit: usize,
        write: impl FnMut(&[u8]) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (confined, is_confined) = std::sync::mpsc::channel();
        let served = shared.clone();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            let given_up = give_up_capabilities();
            let may_go_on = given_up.is_ok();
            // Whoever starts this waits for it.
            let _ = confined.send(given_up);
            if may_go_on {
                served.serve(write);
            }
        })?;
        let given_up = is_confined.recv().map_err(io::Error::other)?;
        given_up.map_err(io::Error::other)?;
        let thread = Mutex::new(Some(thread));
        Ok(Self {
            shared,
            limit,
            thread,
        })
    }

    /// Takes bytes, to be written at once or with others; `false` if they do not fit, or nothing is written any more.
    pub fn push(&self, text: &[u8], is_urgent: bool) -> bool {
        let mut waiting = self.shared.lock();
        if waiting.has_failed || waiting.text.len() + text.len() > self.limit {
            return false;
        }
        waiting.text.extend_from_slice(text);
        waiting.is_urgent |= is_urgent;
        let is_due = is_urgent || waiting.text.len() >= BLOCK;
        drop(waiting);
        if is_due {
            self.shared.more.notify_one();
        }
        true
    }

    /// Whether nothing is written any more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared.lock().has_failed
    }

    /// Has everything written that was accepted, and ends; does not wait for it.
    pub fn close(&self) {
        self.shared.lock().is_closed = true;
        self.shared.more.notify_one();
    }

    /// The same, and waits for it.
    pub fn finish(&self) {
        self.close();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Capabilities belong to threads, and writing to what is open takes none.
fn give_up_capabilities() -> Result<(), caps::errors::CapsError> {
    if caps::read(None, CapSet::Permitted)?.is_empty() {
        return Ok(());
    }
    for set in [CapSet::Effective, CapSet::Inheritable, CapSet::Permitted] {
        caps::clear(None, set)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::{Duration, Instant};

    /// A spool of 100 bytes whose thread waits for leave before it writes, what it has begun to write, and the leave.
    fn stalled() -> (Spool, Receiver<Vec<u8>>, Sender<bool>) {
        let (begun, begins) = channel();
        let (leave, wait) = channel();
        let write = move |text: &[u8]| {
            begun.send(text.to_vec()).unwrap();
            wait.recv().unwrap()
        };
        (Spool::start("test", 100, write).unwrap(), begins, leave)
    }

    #[test]
    fn nobody_waits_for_one_who_writes_slowly_and_what_was_accepted_is_written() {
        let (spool, begins, leave) = stalled();
        assert!(spool.push(b"first ", true));
        assert_eq!(begins.recv().unwrap(), b"first ");
        let began = Instant::now();
        let accepted = (0..1000).filter(|_| spool.push(&[b'x'; 10], true)).count();
        assert_eq!(accepted, 10, "as many as fit");
        assert!(began.elapsed() < Duration::from_millis(100), "{began:?}");
        assert!(!spool.push(b"x", true) && !spool.has_failed());
        leave.send(true).unwrap();
        leave.send(true).unwrap();
        drop(spool);
        assert_eq!(begins.recv().unwrap(), [b'x'; 100]);
    }

    #[test]
    fn what_has_time_waits_for_a_block_or_the_end() {
        let (spool, begins, leave) = stalled();
        leave.send(true).unwrap();
        assert!(spool.push(b"some ", false) && spool.push(b"more", false));
        assert!(begins.recv_timeout(Duration::from_millis(20)).is_err());
        drop(spool);
        assert_eq!(begins.recv().unwrap(), b"some more");
    }

    #[test]
    fn who_cannot_write_is_given_nothing_more() {
        let (spool, begins, leave) = stalled();
        leave.send(false).unwrap();
        assert!(spool.push(b"some", true));
        assert_eq!(begins.recv().unwrap(), b"some");
        while !spool.has_failed() {
            thread::yield_now();
        }
        assert!(!spool.push(b"more", true));
    }

    #[test]
    fn the_thread_has_no_capabilities() {
        let (told, hear) = channel();
        let write = move |_: &[u8]| {
            let sets = [CapSet::Effective, CapSet::Permitted];
            let left = sets.map(|set| caps::read(None, set).unwrap());
            told.send(left.iter().all(|set| set.is_empty())).is_ok()
        };
        let spool = Spool::start("test", 100, write).unwrap();
        assert!(spool.push(b"x", true) && hear.recv().unwrap());
    }
}
