//! Live connections, moved to a congestion control or away from it.
//!
//! A connection keeps the congestion control that it began with, whatever becomes the default later. The kernel's
//! iterator over TCP sockets lets a program change that from outside (Linux 5.16): so an agent can take over what ran
//! before it came, and hand back everything before it goes for good.

use crate::error::Error;
use libbpf_rs::{Iter, MapCore, MapFlags, ObjectBuilder};
use std::io::{ErrorKind, Read};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/move.bpf.o"));

/// `move.h`: names and ports that one pass can look for.
const MAX_NAMES: usize = 16;
const MAX_PORTS: usize = 64;
const NAME_LEN: usize = 16;

/// Connections of this process' network namespace, by what they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// The congestion controls that they use now, 1 to 16 names.
    pub using: Vec<String>,
    /// Their local ports, up to 64; empty means any.
    pub local_ports: Vec<u16>,
    /// Also sockets that are being opened or closed, and those that listen (and so what they will accept). A listener
    /// whose owner has chosen nothing is left alone: what it accepts has the default of that moment.
    pub every_socket: bool,
}

/// What became of the connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Those that use the new congestion control now.
    pub moved: u64,
    /// Those for which the kernel refused it, for instance because there is no such congestion control.
    pub refused: u64,
}

impl Connections {
    /// Gives all of them the congestion control `to`; those that have it already go on undisturbed, and do not count. A
    /// flow of this datapath that is moved away ends; one that is moved in begins under the fallback, from the
    /// connection's window and RTT, and is offered to the agent with its next ACK.
    ///
    /// Needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.
    ///
    /// # Errors
    /// If there are too many names or ports, a name is none, or the kernel cannot do it or does not allow it.
    pub fn move_to(&self, to: &str) -> Result<Moved, Error> {
        let settings = self.encode(to)?;
        let what = "moving connections to another congestion control";
        let failed = || Error::bpf(what);
        let mut open = ObjectBuilder::default()
            .name("ccp_move")
            .and_then(|builder| builder.open_memory(OBJECT))
            .map_err(failed())?;
        let place = open
            .maps_mut()
            .find(|map| map.name().to_string_lossy().ends_with(".rodata.config"));
        let missing = |missing| Error::Kernel { missing };
        let mut place = place.ok_or(missing("read-only data"))?;
        let value = place.initial_value_mut();
        value.ok_or(missing("read-only data"))?[..settings.len()].copy_from_slice(&settings);
        let object = open.load().map_err(failed())?;
        let program = object.progs_mut().next();
        let link = program
            .ok_or(missing("the iterator's program"))?
            .attach()
            .map_err(failed())?;
        let mut pass = Iter::new(&link).map_err(failed())?;
        let mut nothing = [0; 64];
        loop {
            match pass.read(&mut nothing) {
                Ok(0) => break,
                Ok(_) => {}
                // The kernel takes a breath after very many sockets.
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => return Err(Error::io(what)(e)),
            }
        }
        let result = object
            .maps()
            .find(|map| map.name().to_string_lossy().ends_with(".data.moved"));
        let counts = result
            .ok_or(missing("the iterator's counters"))?
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed())?
            .unwrap_or_default();
        let count = |at: usize| {
            let bytes = counts.get(at..at + 8).and_then(|b| b.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        Ok(Moved {
            moved: count(0),
            refused: count(8),
        })
    }

    /// `struct ccp_move`.
    fn encode(&self, to: &str) -> Result<Vec<u8>, Error> {
        let limit = |ok: bool, what, value: String, allowed| {
            ok.then_some(()).ok_or(Error::Config {
                what,
                value,
                allowed,
            })
        };
        let names = self.using.len();
        let names_ok = (1..=MAX_NAMES).contains(&names);
        limit(
            names_ok,
            "the number of congestion controls to move from",
            names.to_string(),
            "1..=16",
        )?;
        let ports = self.local_ports.len();
        limit(
            ports <= MAX_PORTS,
            "the number of local ports",
            ports.to_string(),
            "0..=64",
        )?;
        let mut bytes = Vec::new();
        let unused = std::iter::repeat_n("", MAX_NAMES - names);
        let from = self.using.iter().map(String::as_str);
        for (index, name) in [to].into_iter().chain(from).chain(unused).enumerate() {
            let given = index <= names;
            limit(
                name.len() < NAME_LEN && !name.contains('\0') && given != name.is_empty(),
                "a congestion control's name",
                name.to_owned(),
                "1-15 bytes",
            )?;
            bytes.extend_from_slice(name.as_bytes());
            bytes.resize((index + 1) * NAME_LEN, 0);
        }
        for word in [names as u32, ports as u32, self.every_socket.into()] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        for port in &self.local_ports {
            bytes.extend_from_slice(&port.to_ne_bytes());
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_laid_out_as_the_program_reads_them() {
        let connections = Connections {
            using: vec!["cubic".into(), "bbr".into()],
            local_ports: vec![443, 8443],
            every_socket: true,
        };
        let bytes = connections.encode("pk3c").unwrap();
        assert_eq!(&bytes[..5], b"pk3c\0");
        assert_eq!(&bytes[16..22], b"cubic\0");
        assert_eq!(&bytes[32..36], b"bbr\0");
        assert_eq!(bytes[272..276], 2u32.to_ne_bytes());
        assert_eq!(bytes[276..280], 2u32.to_ne_bytes());
        assert_eq!(bytes[280..284], 1u32.to_ne_bytes());
        assert_eq!(bytes[284..286], 443u16.to_ne_bytes());
        assert_eq!(bytes.len(), 288);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |using: &[&str], ports: usize, to: &str| {
            let connections = Connections {
                using: using.iter().map(ToString::to_string).collect(),
                local_ports: vec![1; ports],
                every_socket: false,
            };
            connections.encode(to).is_err()
        };
        assert!(!refused(&["cubic"], 64, "pk3c"));
        assert!(refused(&[], 0, "pk3c"));
        assert!(refused(&["cubic"; 17], 0, "pk3c"));
        assert!(refused(&["cubic"], 65, "pk3c"));
        assert!(refused(&["cubic"], 0, ""));
        assert!(refused(&[""], 0, "pk3c"));
        assert!(refused(&["cubic"], 0, "sixteen-letters-"));
    }
}
