//! `run --adopt` and `drain --hand-back`: live connections change their congestion control from outside.

use super::NAME;
use super::default_cc::DefaultCc;
use anyhow::{Context, Result, bail};
use ccp_bpf::Connections;
use tracing::{info, warn};

/// Local ports of connections; empty for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ports(Vec<u16>);

/// Names of congestion controls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names(Vec<String>);

/// What `--adopt` takes: `all`, or ports.
pub(crate) fn ports(text: &str) -> Result<Ports, String> {
    if text == "all" {
        return Ok(Ports::default());
    }
    let port = |word: &str| word.trim().parse().ok().filter(|port| *port > 0);
    let ports: Option<Vec<_>> = text.split(',').map(port).collect();
    ports.map(Ports).ok_or_else(|| {
        format!("`{text}` are no ports: write `all`, or numbers from 1 to 65535, as in 80,443")
    })
}

/// What `--adopt-from` takes.
pub(crate) fn names(text: &str) -> Result<Names, String> {
    let names: Vec<_> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err(format!("`{text}`: write names, as in cubic,bbr"));
    }
    Ok(Names(names))
}

/// Gives running connections to ours: those of the machine's default congestion control, unless others are named.
pub(crate) fn take_over(ports: &Ports, from: Option<&Names>, default: &DefaultCc) -> Result<()> {
    let using = match from {
        Some(names) => names.0.clone(),
        None => vec![default.before_ours()?.with_context(|| {
            format!("{NAME} is the machine's default already: name those to adopt from with --adopt-from")
        })?],
    };
    for name in &using {
        // One that has left the list may have connections yet.
        if !DefaultCc::is_available(name)? {
            warn!("no congestion control is called {name}, of those that a socket can choose now");
        }
    }
    let connections = Connections {
        using,
        local_ports: ports.0.clone(),
        every_socket: false,
    };
    let done = connections
        .move_to(NAME)
        .context("cannot adopt running connections")?;
    let from = connections.using.join(",");
    info!(adopted = done.moved, from, "running connections");
    if done.refused > 0 {
        warn!(
            refused = done.refused,
            from, "the kernel did not give some connections to {NAME}"
        );
    }
    Ok(())
}

/// Whether sockets can be handed back to this congestion control.
pub(crate) fn check_hand_back(to: &str) -> Result<()> {
    if to == NAME || !DefaultCc::is_available(to)? {
        bail!(
            "cannot hand connections back to {to}: choose another of net.ipv4.tcp_available_congestion_control"
        );
    }
    Ok(())
}

/// Gives all sockets that use ours to one of the kernel's congestion controls; returns how many.
pub(crate) fn hand_back(to: &str) -> Result<u64> {
    let ours = Connections {
        using: vec![NAME.to_owned()],
        local_ports: Vec::new(),
        every_socket: true,
    };
    let done = ours
        .move_to(to)
        .with_context(|| format!("cannot hand connections back to {to}"))?;
    if done.refused > 0 {
        bail!(
            "{} of {} sockets stay with {NAME}: is {to} in net.ipv4.tcp_available_congestion_control?",
            done.refused,
            done.refused + done.moved
        );
    }
    Ok(done.moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_names_are_read() {
        assert_eq!(ports("all"), Ok(Ports(vec![])));
        assert_eq!(ports("80, 443"), Ok(Ports(vec![80, 443])));
        for wrong in ["", "0", "80,", "65536", "http"] {
            assert!(ports(wrong).unwrap_err().contains("no ports"), "{wrong}");
        }
        assert_eq!(names("cubic,bbr").unwrap().0, ["cubic", "bbr"]);
        assert!(names("").is_err() && names("cubic,").is_err());
    }
}
