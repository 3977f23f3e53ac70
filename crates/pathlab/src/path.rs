//! A client and a server with an emulated path between them.

use std::net::Ipv4Addr;
use std::time::Instant;

use pathsim::PathSpec;

use crate::emulator::{Emulator, EmulatorError, EmulatorReport, Recording};
use crate::netns::{Netns, NetnsError};
use crate::tun::{self, EndSettings, TunError};

/// The client's address, in its own namespace.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The server's address, in its own namespace.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// Different extra RTTs on one path, at most: each takes an address.
pub const MAX_EXTRA_RTTS: usize = 250;

/// Why a path could not be set up or used.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// A namespace.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// A device.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The emulation.
    #[error(transparent)]
    Emulator(#[from] EmulatorError),
    /// More addresses than there are.
    #[error("{0} different extra RTTs on one path; give at most {MAX_EXTRA_RTTS}")]
    ExtraRtts(usize),
}

/// What a path saw from its beginning to its end.
#[derive(Clone, Debug)]
pub struct PathReport {
    /// The emulator's account.
    pub emulator: EmulatorReport,
    /// Packets of the client and of the server that the emulator never saw, since the path was opened; anything but
    /// 0 makes a result doubtful.
    pub unseen: u64,
}

/// Two namespaces and the emulated path between them. All of it ends with the value.
#[derive(Debug)]
pub struct Path {
    // Declared first, dropped first: the devices go before their namespaces.
    emulator: Emulator,
    client: Netns,
    server: Netns,
    extra_rtts: Vec<(Ipv4Addr, u64)>,
}

impl Path {
    /// Opens a path whose chance follows from `seed`. Its time 0 is now, until [`Path::begin`].
    ///
    /// # Errors
    /// [`PathError`] without root, TUN or iproute2, or if `spec` is impossible.
    pub fn open(spec: &PathSpec, ends: &EndSettings, seed: u64) -> Result<Self, PathError> {
        Self::open_recording(spec, ends, seed, &Recording::default())
    }

    /// [`Path::open`], with a say in what is kept of the packets.
    ///
    /// # Errors
    /// [`PathError`] also if the packet log cannot be written.
    pub fn open_recording(
        spec: &PathSpec,
        ends: &EndSettings,
        seed: u64,
        recording: &Recording,
    ) -> Result<Self, PathError> {
        spec.check().map_err(EmulatorError::Invalid)?;
        let extra_rtts = addresses(&ends.extra_rtts_ns)?;
        let (client, server) = (Netns::new()?, Netns::new()?);
        let client_device = tun::attach(&client, CLIENT, SERVER, ends)?;
        let server_device = tun::attach(&server, SERVER, CLIENT, ends)?;
        let more = extra_rtts.iter().map(|(address, _)| *address);
        tun::add_addresses(&client, &server, more)?;
        let emulator = Emulator::start(
            client_device,
            server_device,
            spec,
            &extra_rtts,
            seed,
            recording,
        )?;
        tracing::debug!(
            client = client.location(),
            server = server.location(),
            "path open"
        );
        Ok(Self {
            emulator,
            client,
            server,
            extra_rtts,
        })
    }

    /// Begins anew: the path's clock, which its schedules and all series follow, is 0 at the instant that is returned,
    /// its queue is empty, and the report counts from then on. For when connections, agents and servers stand ready.
    ///
    /// # Errors
    /// [`PathError`] if the emulation has failed.
    pub fn begin(&mut self) -> Result<Instant, PathError> {
        Ok(self.emulator.begin()?)
    }

    /// The client, the server, and what carries their packets: for who lets it begin while the ends are in use.
    pub fn split(&mut self) -> (&Netns, &Netns, &mut Emulator) {
        (&self.client, &self.server, &mut self.emulator)
    }

    /// Where the senders of data live, at [`CLIENT`].
    pub fn client(&self) -> &Netns {
        &self.client
    }

    /// Where the receivers of data live, at [`SERVER`].
    pub fn server(&self) -> &Netns {
        &self.server
    }

    /// The address to which a client's socket must be bound for packets from and to it to take so much longer than the
    /// path's RTT; `None` if the path was not opened with this extra RTT.
    pub fn client_address(&self, extra_rtt_ns: u64) -> Option<Ipv4Addr> {
        let mut extra = self.extra_rtts.iter();
        match extra_rtt_ns {
            0 => Some(CLIENT),
            _ => extra
                .find(|(_, ns)| *ns == extra_rtt_ns)
                .map(|(address, _)| *address),
        }
    }

    /// Ends the path and says what it saw.
    ///
    /// # Errors
    /// [`PathError`] if the emulation had failed meanwhile.
    pub fn close(self) -> Result<PathReport, PathError> {
        let unseen = tun::unseen_packets(&self.client)? + tun::unseen_packets(&self.server)?;
        Ok(PathReport {
            emulator: self.emulator.stop()?,
            unseen,
        })
    }
}

/// An address for each extra RTT.
fn addresses(extra_rtts_ns: &[u64]) -> Result<Vec<(Ipv4Addr, u64)>, PathError> {
    let mut different: Vec<u64> = extra_rtts_ns.iter().copied().filter(|ns| *ns > 0).collect();
    different.sort_unstable();
    different.dedup();
    if different.len() > MAX_EXTRA_RTTS {
        return Err(PathError::ExtraRtts(different.len()));
    }
    let addresses = (1..=250).map(|host| Ipv4Addr::new(10, 77, 1, host));
    Ok(addresses.zip(different).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_extra_rtt_has_an_address_of_its_own() {
        let found = addresses(&[5, 0, 90, 5]).unwrap();
        let address = |host| Ipv4Addr::new(10, 77, 1, host);
        assert_eq!(found, [(address(1), 5), (address(2), 90)]);
        let many: Vec<u64> = (0..=251).collect();
        let error = addresses(&many).unwrap_err().to_string();
        assert!(error.contains("251 different extra RTTs"), "{error}");
    }
}
