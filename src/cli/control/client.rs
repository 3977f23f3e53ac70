//! A client of the control socket, for the verbs that attach to a running agent.

use super::protocol::{Request, VERSION};
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest answer: all flows of a full table take half of it.
const ANSWER_MAX: u64 = 64 << 20;
/// For an answer, and for room to ask.
const PATIENCE: Duration = Duration::from_secs(15);

/// Which agent is meant.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct AgentArgs {
    /// Control socket of the running agent
    #[arg(long, value_name = "PATH", default_value = super::SOCKET)]
    pub(crate) socket: PathBuf,
}

/// What an agent says that does not do what it was asked. Every other error is of an agent that does not answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(String);

/// A conversation with an agent.
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    id: u64,
}

impl Client {
    /// Attaches to a running agent.
    pub(crate) fn connect(args: &AgentArgs) -> Result<Self> {
        let path: &Path = &args.socket;
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => anyhow!(
                "no agent listens at {}: start one (pk3c-ccp run), or name its socket with --socket",
                path.display()
            ),
            ErrorKind::PermissionDenied => anyhow!(
                "{} is for root and the agent's user: run this as one of them",
                path.display()
            ),
            _ => anyhow!("cannot connect to {}: {error}", path.display()),
        })?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::new(stream),
            id: 0,
        })
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Value> {
        self.id += 1;
        let mut asked = serde_json::to_value(request)?;
        asked["v"] = VERSION.into();
        asked["id"] = self.id.into();
        let broken = |error: io::Error| match error.kind() {
            ErrorKind::WouldBlock => anyhow!(
                "the agent has not answered for {} s (stopped or hung?): what it was asked it may yet do, should it go on",
                PATIENCE.as_secs()
            ),
            _ => anyhow!("the agent does not answer: {error}"),
        };
        // An agent that refuses at once has closed its end already, and its reason is still to be read.
        let sent = self
            .stream
            .get_mut()
            .write_all(format!("{asked}\n").as_bytes());
        let mut line = String::new();
        let read = (&mut self.stream).take(ANSWER_MAX).read_line(&mut line);
        if read.map_err(broken)? == 0 {
            sent.map_err(broken)?;
            bail!("the agent has ended the conversation");
        }
        let mut answer: Value = serde_json::from_str(&line)
            .context("the agent's answer is not understood: is it of another version?")?;
        if let Some(message) = answer["error"]["message"].as_str() {
            bail!(Refused(message.to_owned()));
        }
        Ok(answer["ok"].take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_nobody_answers_may_yet_be_carried_out() {
        let (stream, _agent) = UnixStream::pair().unwrap();
        let patience = Some(Duration::from_millis(10));
        stream.set_read_timeout(patience).unwrap();
        let stream = BufReader::new(stream);
        let mut client = Client { stream, id: 0 };
        let said = client.ask(&Request::Version {}).unwrap_err().to_string();
        assert!(said.contains("15 s") && said.contains("may yet"), "{said}");
    }
}
