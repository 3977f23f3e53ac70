//! The Prometheus endpoint: `GET /metrics` over HTTP/1.1, and nothing else.
//!
//! One request per connection, a few kilobytes of it, five seconds for everything, a few connections at a time.

use super::operator::Operator;
use anyhow::{Context, Result};
use pk3c_ccp::stats::exposition;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, warn};

const REQUEST_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
const CLIENTS_MAX: usize = 8;
const PATIENCE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(100);
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// An address from a flag: a port alone is on loopback.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| {
        format!("`{text}` is not an address: write a port as in 9321, or ADDRESS:PORT as in 192.0.2.1:9321 or [::1]:9321")
    })
}

pub(super) fn bind(address: SocketAddr) -> Result<StdListener> {
    let cannot = || format!("cannot listen at {address} for --metrics: name another address");
    let listener = StdListener::bind(address).with_context(cannot)?;
    listener.set_nonblocking(true).with_context(cannot)?;
    Ok(listener)
}

/// Answers scrapes, for ever.
pub(super) async fn serve(listener: StdListener, operator: Arc<Operator>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        // Waiting here leaves further connections in the listener's queue, which is bounded too.
        let Ok(place) = places.clone().acquire_owned().await else {
            return Ok(());
        };
        match listener.accept().await {
            Ok((stream, from)) => {
                let operator = operator.clone();
                tokio::spawn(async move {
                    match timeout(PATIENCE, answer(stream, &operator)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => debug!(%from, %error, "a scrape broke off"),
                        Err(_) => debug!(%from, "a scrape took too long"),
                    }
                    drop(place);
                });
            }
            Err(error) => {
                warn!(%error, "a scrape was not accepted");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, operator: &Operator) -> io::Result<()> {
    let mut request = Vec::new();
    let asked = loop {
        let got = (&mut stream)
            .take((REQUEST_MAX - request.len()) as u64)
            .read_buf(&mut request)
            .await?;
        match asked(&request) {
            Some(asked) => break asked,
            None if got == 0 => break Asked::Malformed,
            None => {}
        }
    };
    let (status, kind, body) = match asked {
        Asked::Metrics => {
            let text = exposition(&operator.monitor().snapshot(Instant::now()));
            ("200 OK", TEXT_FORMAT, text)
        }
        Asked::Other => (
            "404 Not Found",
            "text/plain",
            "metrics are at /metrics\n".to_owned(),
        ),
        Asked::NotGet => (
            "405 Method Not Allowed",
            "text/plain",
            "only GET is answered\n".to_owned(),
        ),
        Asked::Malformed => (
            "400 Bad Request",
            "text/plain",
            "this is not HTTP/1.1\n".to_owned(),
        ),
    };
    let allow = if status.starts_with("405") {
        "Allow: GET\r\n"
    } else {
        ""
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Metrics,
    Other,
    NotGet,
    Malformed,
}

/// What a request asks for, once its head is complete.
fn asked(request: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Err(_) => Some(Asked::Malformed),
        Ok(httparse::Status::Partial) => None,
        Ok(httparse::Status::Complete(_)) => {
            let path = parsed.path.unwrap_or_default();
            let path = path.split('?').next().unwrap_or_default();
            Some(match parsed.method {
                Some("GET") if path == "/metrics" => Asked::Metrics,
                Some("GET") => Asked::Other,
                _ => Asked::NotGet,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_loopback() {
        for (text, is) in [
            ("9321", "127.0.0.1:9321"),
            (":9321", "127.0.0.1:9321"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:9321", "[::1]:9321"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), is);
        }
        for text in ["", "localhost", "99999", "1.2.3.4"] {
            assert!(address(text).unwrap_err().contains("9321"), "{text}");
        }
    }

    #[test]
    fn only_get_metrics_is_answered() {
        let head = |line: &str| asked(format!("{line}\r\nHost: x\r\n\r\n").as_bytes());
        assert_eq!(head("GET /metrics HTTP/1.1"), Some(Asked::Metrics));
        assert_eq!(head("GET /metrics?x=1 HTTP/1.0"), Some(Asked::Metrics));
        assert_eq!(head("GET / HTTP/1.1"), Some(Asked::Other));
        assert_eq!(head("POST /metrics HTTP/1.1"), Some(Asked::NotGet));
        assert_eq!(head("\u{1} nonsense"), Some(Asked::Malformed));
        assert_eq!(asked(b"GET /metrics HTTP/1.1\r\nHost:"), None);
    }
}
