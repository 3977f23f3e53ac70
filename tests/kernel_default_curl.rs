//! Programs that know nothing of us, run by a user without privileges, under `--default`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use common::NOBODY;
use common::agent::Agent;
use common::load::congestion_of;
use common::machine::{self, KernelTest};
use common::{NAME, eventually};

const BYTES: u64 = 8_000_000;
/// A program that hangs is a failure, not a test that hangs.
const LIMIT_SECS: &str = "60";

/// What the server saw of one connection.
struct Visit {
    client_port: u16,
    /// Congestion control of the accepted socket.
    congestion: String,
    received: u64,
}

/// Serves one connection after the other: answers an HTTP GET with [`BYTES`] bytes and an HTTP PUT
/// with an empty page, and reads anything else to its end.
fn serve(listener: &TcpListener, visits: &Sender<Visit>) -> std::io::Result<()> {
    for connection in listener.incoming() {
        let mut connection = connection?;
        let client_port = connection.peer_addr()?.port();
        let congestion = congestion_of(&connection);
        let received = answer(&mut connection)?;
        if visits
            .send(Visit {
                client_port,
                congestion,
                received,
            })
            .is_err()
        {
            break;
        }
    }
    Ok(())
}

/// Returns the number of body bytes received.
fn answer(connection: &mut TcpStream) -> std::io::Result<u64> {
    let mut request = BufReader::new(connection.try_clone()?);
    let method = String::from_utf8_lossy(request.fill_buf()?).into_owned();
    if !(method.starts_with("GET ") || method.starts_with("PUT ")) {
        return std::io::copy(&mut request, &mut std::io::sink());
    }
    let mut length = 0;
    for line in request.by_ref().lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    if method.starts_with("PUT ") {
        let received = std::io::copy(&mut request.take(length), &mut std::io::sink())?;
        connection
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
        return Ok(received);
    }
    write!(
        connection,
        "HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\nConnection: close\r\n\r\n"
    )?;
    std::io::copy(&mut std::io::repeat(0).take(BYTES), connection)?;
    Ok(0)
}

/// Runs a program as `nobody`, feeds it [`BYTES`] bytes from a file, and returns what it printed.
fn as_nobody(program: &str, arguments: &[&str]) -> String {
    let mut input = tempfile();
    std::io::copy(&mut std::io::repeat(0).take(BYTES), &mut input).unwrap();
    std::io::Seek::rewind(&mut input).unwrap();
    let output = Command::new("timeout")
        .args([LIMIT_SECS, program])
        .args(arguments)
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .stdin(Stdio::from(input))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program}: {}, {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    printed
}

/// A file without a name: it is gone with its last descriptor.
fn tempfile() -> File {
    let path = std::env::temp_dir().join(format!("pk3c-ccp-input-{}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

/// Downloads and uploads with curl, and uploads with nc; every connection must run under our name.
/// Returns the ports of the uploads.
fn downloads_and_uploads(port: u16, visits: &Receiver<Visit>) -> Vec<u16> {
    let url = format!("http://127.0.0.1:{port}/");
    let visit = || visits.recv_timeout(Duration::from_secs(5)).unwrap();
    let mut uploads = Vec::new();

    let size = as_nobody(
        "curl",
        &["-sS", "-o", "/dev/null", "-w", "%{size_download}", &url],
    );
    assert_eq!(size, BYTES.to_string());
    assert_eq!(visit().congestion, NAME);

    as_nobody(
        "curl",
        &[
            "-sS",
            "-H",
            "Expect:",
            "-H",
            &format!("Content-Length: {BYTES}"),
            "-T",
            "-",
            &url,
        ],
    );
    let upload = visit();
    assert_eq!((upload.received, upload.congestion.as_str()), (BYTES, NAME));
    uploads.push(upload.client_port);

    as_nobody("nc", &["-N", "127.0.0.1", &port.to_string()]);
    let upload = visit();
    assert_eq!((upload.received, upload.congestion.as_str()), (BYTES, NAME));
    uploads.push(upload.client_port);
    uploads
}

#[test]
fn kernel_default_serves_curl_and_nc_of_any_user() {
    let name = "kernel_default_serves_curl_and_nc_of_any_user";
    let Some(test) = KernelTest::begin(name) else {
        return;
    };
    for program in ["curl", "nc"] {
        if Command::new(program).arg("-h").output().is_err() {
            return machine::skipped(name, &format!("needs {program}"));
        }
    }
    let agent = Agent::start(&["--default"]);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, visits) = channel();
    let server = std::thread::spawn(move || serve(&listener, &sender));

    for port in downloads_and_uploads(address.port(), &visits) {
        assert!(
            eventually(Duration::from_secs(10), || agent.flow_start(port).is_some()),
            "the agent did not see the upload from port {port}:\n{}",
            agent.log_text()
        );
    }
    agent.kill9();
    downloads_and_uploads(address.port(), &visits);

    // The server ends when nobody waits for the next visit's account.
    drop(visits);
    drop(TcpStream::connect(address).unwrap());
    server.join().unwrap().unwrap();
    Agent::start(&["--default"]).stop();
    test.end();
}
