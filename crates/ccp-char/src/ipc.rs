//! The device, opened; and how portus reads and writes it.

use crate::flow::Observer;
use crate::inbox::Inbox;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use portus::ipc::Ipc;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::warn;

/// Where the module puts the device.
pub const DEVICE: &str = "/dev/ccpkp";

/// Longest sleep without a message, in ms: a call this often is the sign of life that the module waits for.
const WAIT_MS: u16 = 25;
/// Taken from the device at once; the module hands out no more.
const READ_LEN: usize = 16 << 10;

/// Why the device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The module is not loaded.
    #[error(
        "there is no {}: load the kernel module (`insmod ccp-kernel/ccp.ko`, or `modprobe tcp_ccp` once it is installed)",
        device.display()
    )]
    NotLoaded {
        /// The device.
        device: PathBuf,
    },
    /// Another agent has it open.
    #[error("another agent has {} open: stop it first", device.display())]
    Running {
        /// The device.
        device: PathBuf,
    },
    /// The user may not.
    #[error("{} is for root (CAP_NET_ADMIN): run the agent as root", device.display())]
    Privilege {
        /// The device.
        device: PathBuf,
    },
    /// Something else.
    #[error("cannot open {}: {source}", device.display())]
    Io {
        /// The device.
        device: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The module as a transport for portus. While it is open, the module hands its flows to this agent; when it is closed,
/// or not read for 100 ms (the module's `silence_ms`), they go on under CUBIC.
pub struct CharIpc {
    device: Arc<File>,
    inbox: RefCell<Inbox>,
    observer: Observer,
}

impl CharIpc {
    /// Opens the device.
    ///
    /// # Errors
    /// See [`Error`]; each says what to do.
    pub fn open(device: &Path) -> Result<Self, Error> {
        let failed = |source: io::Error| {
            let device = device.to_owned();
            match source.kind() {
                ErrorKind::NotFound => Error::NotLoaded { device },
                ErrorKind::PermissionDenied => Error::Privilege { device },
                ErrorKind::ResourceBusy => Error::Running { device },
                _ => Error::Io { device, source },
            }
        };
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(device)
            .map_err(failed)?;
        let device = Arc::new(file);
        let observer = Observer::of(&device);
        Ok(Self {
            device,
            inbox: RefCell::new(Inbox::new(READ_LEN, observer.clone())),
            observer,
        })
    }

    /// What the module says of its flows.
    pub fn observer(&self) -> Observer {
        self.observer.clone()
    }

    /// Waits for messages and reads them; 0 bytes if none has come.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut device = [PollFd::new(self.device.as_fd(), PollFlags::POLLIN)];
        match poll(&mut device, PollTimeout::from(WAIT_MS)) {
            Ok(1..) => {}
            Ok(_) | Err(Errno::EINTR) => return Ok(0),
            Err(errno) => return Err(errno.into()),
        }
        match (&*self.device).read(buffer) {
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(0)
            }
            other => other,
        }
    }
}

impl Ipc for CharIpc {
    type Addr = ();

    fn name() -> String {
        "char".into()
    }

    fn send(&self, message: &[u8], _: &()) -> portus::Result<()> {
        match (&*self.device).write(message) {
            Ok(written) if written == message.len() => Ok(()),
            Ok(written) => Err(portus::Error(format!(
                "the module took {written} of {} bytes",
                message.len()
            ))),
            Err(error) => {
                warn!(%error, bytes = message.len(), "the module refused a message (its log says why)");
                Err(error.into())
            }
        }
    }

    fn recv(&self, out: &mut [u8]) -> portus::Result<(usize, ())> {
        let inbox = &mut *self.inbox.borrow_mut();
        if inbox.is_empty() {
            // Also forgets the flows that have ended.
            inbox.take(&mut []);
            inbox.fill(|buffer| self.read(buffer))?;
        }
        Ok((inbox.take(out), ()))
    }

    fn close(&mut self) -> portus::Result<()> {
        let malformed = self.inbox.borrow().malformed;
        if malformed > 0 {
            warn!(malformed, "bytes from the module that were no messages");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_is_not_loaded_is_named_with_the_remedy() {
        let error = CharIpc::open(Path::new("/nonexistent/ccpkp")).err();
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(
            text.contains("/nonexistent/ccpkp") && text.contains("insmod"),
            "{text}"
        );
    }
}
