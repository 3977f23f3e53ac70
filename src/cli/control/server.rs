//! The control socket: one client is one task, and none of them can hold up another or the agent.
//!
//! Limits: [`REQUEST_MAX`] bytes in a request, [`CLIENTS_MAX`] clients, a minute of silence, ten seconds to take an
//! answer; what is asked by one that has gone is not done. Only root and the agent's own user are heard, whatever the
//! socket's mode says.

use super::operator::Operator;
use super::protocol::{self, Kind, REQUEST_MAX, Refusal};
use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, warn};

const CLIENTS_MAX: usize = 16;
const SILENCE_MAX: Duration = Duration::from_secs(60);
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// After an accept that failed, as for want of descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// A listening socket in the file system; dropped, its file is removed.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    listener: StdListener,
}

impl Socket {
    /// Listens at a path. A socket that nobody listens at any more is replaced; anything else there is left alone.
    pub(super) fn bind(path: &Path) -> Result<Self> {
        // Ours is made, and removed at the end; nobody else's is.
        if path == Path::new(super::SOCKET)
            && let Some(folder) = path.parent()
        {
            fs::create_dir_all(folder).with_context(|| {
                format!("cannot create {} for the control socket", folder.display())
            })?;
        }
        if let Ok(there) = fs::symlink_metadata(path) {
            if !there.file_type().is_socket() {
                bail!(
                    "{} is there and is no socket: name another with --control PATH, or none",
                    path.display()
                );
            }
            if StdStream::connect(path).is_ok() {
                bail!(
                    "another program listens at {}: name another with --control PATH, or none",
                    path.display()
                );
            }
            fs::remove_file(path).with_context(|| format!("cannot replace {}", path.display()))?;
        }
        let cannot = || {
            format!(
                "cannot listen at {}: name another place with --control PATH, or none",
                path.display()
            )
        };
        // Nobody can connect before `listen`, which is a moment after the file gets its mode.
        let listener = bind_private(path).with_context(cannot)?;
        listener.set_nonblocking(true).with_context(cannot)?;
        Ok(Self {
            path: path.to_owned(),
            listener,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Answers clients, for ever.
    pub(super) async fn serve(&self, operator: Arc<Operator>) -> io::Result<()> {
        let listener = UnixListener::from_std(self.listener.try_clone()?)?;
        let places = Arc::new(Semaphore::new(CLIENTS_MAX));
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "a control client was not accepted");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            let (operator, places) = (operator.clone(), places.clone());
            tokio::spawn(async move {
                let place = places.try_acquire();
                let served = match (&place, is_allowed(&stream)) {
                    (_, Err(refusal)) => refuse(stream, &refusal).await,
                    (Err(_), _) => {
                        let message = format!(
                            "{CLIENTS_MAX} clients are served already: end one and try again"
                        );
                        refuse(stream, &Refusal::new(Kind::Busy, message)).await
                    }
                    (Ok(_), Ok(())) => converse(stream, &operator).await,
                };
                if let Err(error) = served {
                    debug!(%error, "a control client broke off");
                }
            });
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = remove(&self.path);
    }
}

fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    // The default's folder is ours; another's, or one with something else in it, stays.
    if path == Path::new(super::SOCKET) {
        let _ = path.parent().map(fs::remove_dir);
    }
    Ok(())
}

/// Removes the socket of an agent that was killed, if it left one.
pub(crate) fn remove_abandoned(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() && StdStream::connect(path).is_err() => {
            remove(path)
        }
        _ => Ok(()),
    }
}

/// The file appears under its name with its mode: it is bound under another first.
fn bind_private(path: &Path) -> io::Result<StdListener> {
    let mut own = path.as_os_str().to_owned();
    own.push(format!(".{}", std::process::id()));
    let own = PathBuf::from(own);
    let _ = fs::remove_file(&own);
    let listener = StdListener::bind(&own)?;
    let placed = fs::set_permissions(&own, fs::Permissions::from_mode(0o600))
        .and_then(|()| fs::rename(&own, path));
    if placed.is_err() {
        let _ = fs::remove_file(&own);
    }
    placed.map(|()| listener)
}

fn is_allowed(stream: &UnixStream) -> Result<(), Refusal> {
    let refused = |message: String| Err(Refusal::new(Kind::Refused, message));
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == nix::unistd::geteuid().as_raw() => Ok(()),
        Ok(peer) => refused(format!(
            "user {} may not control this agent: use root or the agent's own user",
            peer.uid()
        )),
        Err(error) => refused(format!("the kernel does not say who asks: {error}")),
    }
}

async fn refuse(mut stream: UnixStream, refusal: &Refusal) -> io::Result<()> {
    send(&mut stream, &refusal.answer(Value::Null)).await
}

async fn send(stream: &mut (impl AsyncWriteExt + Unpin), answer: &Value) -> io::Result<()> {
    let mut line = answer.to_string();
    line.push('\n');
    let late = || {
        io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not take its answer",
        )
    };
    let sent = timeout(ANSWER_MAX, stream.write_all(line.as_bytes())).await;
    sent.unwrap_or_else(|_| Err(late()))
}

async fn converse(stream: UnixStream, operator: &Operator) -> io::Result<()> {
    let (from, mut to) = stream.into_split();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match timeout(SILENCE_MAX, read_line(&mut from, &mut line)).await {
            Err(_) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Ok(Ok(Read::End)) => return Ok(()),
            Ok(Ok(Read::TooLong)) => {
                let message = format!("a request has {REQUEST_MAX} bytes at most");
                let refusal = Refusal::new(Kind::Malformed, message);
                return send(&mut to, &refusal.answer(Value::Null)).await;
            }
            Ok(Ok(Read::Line)) => {}
        }
        // It was told that nothing has come of it, perhaps a while ago.
        if is_gone(to.as_ref()) {
            return Ok(());
        }
        let (id, request) = protocol::read(&line);
        let answer = match request.and_then(|request| operator.answer(request)) {
            Ok(done) => json!({"v": protocol::VERSION, "id": id, "ok": done}),
            Err(refusal) => refusal.answer(id),
        };
        send(&mut to, &answer).await?;
    }
}

/// Whether the client has closed its end; one that has only said all that it wants to say has not.
fn is_gone(stream: &UnixStream) -> bool {
    let mut end = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    let looked = poll(&mut end, PollTimeout::ZERO);
    let has = |event| end[0].revents().is_some_and(|seen| seen.contains(event));
    looked.is_ok() && has(PollFlags::POLLHUP)
}

#[derive(Debug, PartialEq, Eq)]
enum Read {
    Line,
    TooLong,
    End,
}

/// Reads up to a newline, and never more than a request may have.
async fn read_line(
    from: &mut (impl AsyncBufReadExt + Unpin),
    line: &mut Vec<u8>,
) -> io::Result<Read> {
    loop {
        let got = from.fill_buf().await?;
        if got.is_empty() {
            return Ok(Read::End);
        }
        let end = got.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(got.len(), |end| end + 1);
        if line.len() + length > REQUEST_MAX {
            return Ok(Read::TooLong);
        }
        line.extend_from_slice(&got[..length]);
        from.consume(length);
        if end.is_some() {
            return Ok(Read::Line);
        }
    }
}
