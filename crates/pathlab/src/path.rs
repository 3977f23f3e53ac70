//! A client and a server with an emulated path between them.

use std::net::Ipv4Addr;

use crate::emulator::{Emulator, EmulatorError, EmulatorReport};
use crate::netns::{Netns, NetnsError};
use crate::scenario::PathSpec;
use crate::tun::{self, TunError};

/// The client's address, in its own namespace.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The server's address, in its own namespace.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

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
}

/// What a path saw from its opening to its end.
#[derive(Clone, Debug)]
pub struct PathReport {
    /// The emulator's account.
    pub emulator: EmulatorReport,
    /// Packets of the client that the emulator never saw; anything but 0 makes a result doubtful.
    pub unseen: u64,
}

/// Two namespaces and the emulated path between them. All of it ends with the value.
#[derive(Debug)]
pub struct Path {
    // Declared first, dropped first: the devices go before their namespaces.
    emulator: Emulator,
    client: Netns,
    server: Netns,
}

impl Path {
    /// Opens a path whose random losses follow from `seed`.
    ///
    /// # Errors
    /// [`PathError`] without root, TUN or iproute2, or if `spec` is impossible.
    pub fn open(spec: &PathSpec, seed: u64) -> Result<Self, PathError> {
        let (client, server) = (Netns::new()?, Netns::new()?);
        let client_device = tun::attach(&client, CLIENT, SERVER)?;
        let server_device = tun::attach(&server, SERVER, CLIENT)?;
        let emulator = Emulator::start(client_device, server_device, spec, seed)?;
        tracing::debug!(
            path = spec.name,
            client = client.location(),
            server = server.location(),
            "path open"
        );
        Ok(Self {
            emulator,
            client,
            server,
        })
    }

    /// Where the senders of data live, at [`CLIENT`].
    pub fn client(&self) -> &Netns {
        &self.client
    }

    /// Where the receivers of data live, at [`SERVER`].
    pub fn server(&self) -> &Netns {
        &self.server
    }

    /// Ends the path and says what it saw.
    ///
    /// # Errors
    /// [`PathError`] if the emulation had failed meanwhile.
    pub fn close(self) -> Result<PathReport, PathError> {
        let unseen = tun::unseen_packets(&self.client)?;
        Ok(PathReport {
            emulator: self.emulator.stop()?,
            unseen,
        })
    }
}
