//! Receive windows of a stated size.
//!
//! The kernel has no knob for the window itself. `SO_RCVBUF` sets the memory of a socket, which the kernel doubles, and
//! of which it offers the part that is payload: half of it up to Linux 6.5, later the part that it measures in the
//! packets that arrive, which depends on the device (5/8 for full packets from TUN). So a buffer of the window's size
//! offers the window, or more. The sender sees what is offered; where that is too much, the buffer is made smaller in
//! proportion. A window that has been offered is never taken back, so a correction shows after a round trip, and there
//! is none within two.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

use super::sample::Sample;

/// Deviation of a window that is left alone.
const TOLERANCE: f64 = 0.01;

/// Between corrections, beside two round trips: samples are older than what they cause.
const PAUSE: Duration = Duration::from_millis(200);

/// The receiving ends of flows with a window, by flow.
#[derive(Debug, Default)]
pub(super) struct Windows(Vec<Option<Window>>);

#[derive(Debug)]
struct Window {
    asked_bytes: u64,
    buffer_bytes: usize,
    receiver: OwnedFd,
    not_before: Duration,
}

/// Gives a socket a receive buffer of this size, whatever `net.core.rmem_max` says. It must not listen or be connected
/// yet, for the window's scale to fit.
pub(super) fn set_buffer(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::RcvBufForce, &bytes)?)
}

impl Windows {
    /// Watches over the window of a flow's newest connection.
    pub(super) fn watch(
        &mut self,
        flow: usize,
        asked_bytes: u64,
        receiver: &impl AsFd,
    ) -> io::Result<()> {
        let receiver = receiver.as_fd().try_clone_to_owned()?;
        if self.0.len() <= flow {
            self.0.resize_with(flow + 1, || None);
        }
        self.0[flow] = Some(Window {
            asked_bytes,
            buffer_bytes: usize::try_from(asked_bytes).unwrap_or(usize::MAX),
            receiver,
            not_before: Duration::ZERO,
        });
        Ok(())
    }

    /// Corrects the window of a flow, if what its sender sees is too much.
    pub(super) fn correct(&mut self, flow: usize, seen: &Sample) -> io::Result<()> {
        let Some(Some(window)) = self.0.get_mut(flow) else {
            return Ok(());
        };
        if seen.at < window.not_before {
            return Ok(());
        }
        if let Some(bytes) =
            smaller_buffer(window.asked_bytes, window.buffer_bytes, seen.window_bytes)
        {
            set_buffer(&window.receiver, bytes)?;
            window.buffer_bytes = bytes;
            window.not_before = seen.at + 2 * seen.srtt + PAUSE;
        }
        Ok(())
    }
}

/// The buffer that offers what was asked for, if one of `buffer` bytes offers more.
fn smaller_buffer(asked: u64, buffer: usize, seen: u32) -> Option<usize> {
    let factor = asked as f64 / f64::from(seen.max(1));
    (factor < 1.0 - TOLERANCE).then(|| (buffer as f64 * factor).round() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_windows_that_are_too_large_are_corrected() {
        assert_eq!(
            smaller_buffer(1_000_000, 1_000_000, 1_250_000),
            Some(800_000)
        );
        assert_eq!(smaller_buffer(1_000_000, 800_000, 1_005_000), None);
        assert_eq!(smaller_buffer(1_000_000, 1_000_000, 400_000), None);
        assert_eq!(smaller_buffer(1_000_000, 1_000_000, 0), None);
    }
}
