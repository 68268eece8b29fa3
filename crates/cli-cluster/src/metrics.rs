//! Numbers about this process for Prometheus: at an address, by HTTP, and in a file that the textfile
//! collector of node_exporter reads. They contain no names, paths or addresses.
//!
//! The only requests are `GET` and `HEAD` of `/metrics`. A connection carries one request, has a few
//! seconds, and a few KiB. One thread serves all. A connection that comes when there are too many takes
//! the place of the oldest, so connections that are silent keep nobody from an answer.

use anyhow::{Context, ensure};
use canopy_cluster::Process;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Connections that are served at once.
const CONNECTIONS: usize = 128;

/// Connections that are accepted before requests are looked at again.
const ACCEPTED_AT_ONCE: usize = 64;

/// Time of a connection.
const TIME: Duration = Duration::from_secs(5);

/// Bytes of the head of a request, and its lines.
const HEAD_BYTES: usize = 8 << 10;
const HEAD_LINES: usize = 64;

/// Pause between two versions of the file, and after the system could not accept a connection or wait
/// for one.
const WRITE_EVERY: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// Listens at an address.
///
/// # Errors
///
/// Fails as the system does.
pub fn listen(address: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("--metrics {address}"))
}

/// Serves the numbers of a process. Returns the address, with the port that the system has chosen.
///
/// # Errors
///
/// Fails as the system does.
pub fn serve(listener: TcpListener, process: &Arc<Process>) -> anyhow::Result<SocketAddr> {
    let bound = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let process = Arc::downgrade(process);
    let run = move || {
        let mut visits = VecDeque::new();
        loop {
            serve_once(&listener, &mut visits, &process);
        }
    };
    thread::Builder::new().name("metrics".into()).spawn(run)?;
    Ok(bound)
}

/// A connection.
struct Visit {
    stream: TcpStream,
    deadline: Instant,
    /// The bytes of the request that have arrived.
    head: Vec<u8>,
    /// The bytes of the answer that are not sent yet; empty before there is one.
    answer: Vec<u8>,
}

/// Waits until something happens, and goes on with each connection that it concerns. Then accepts new
/// ones, which take the places of the oldest.
fn serve_once(listener: &TcpListener, visits: &mut VecDeque<Visit>, process: &Weak<Process>) {
    let wanted = |visit: &Visit| match visit.answer.is_empty() {
        true => PollFlags::POLLIN,
        false => PollFlags::POLLOUT,
    };
    let mut waiting = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    waiting.extend(visits.iter().map(|visit| PollFd::new(visit.stream.as_fd(), wanted(visit))));
    let left = visits.iter().map(|visit| visit.deadline.saturating_duration_since(Instant::now()));
    // A bit more, so that a deadline is over then.
    let left = left.min().map(|left| left + Duration::from_millis(1));
    let limit = left.map_or(PollTimeout::NONE, |left| left.try_into().unwrap_or(PollTimeout::MAX));
    if poll(&mut waiting, limit).is_err() {
        return thread::sleep(PAUSE);
    }
    let is_ready = |one: &PollFd<'_>| one.any().unwrap_or(true);
    let ready = Vec::from_iter(waiting.iter().map(is_ready));
    let mut is_ready = ready.iter().skip(1);
    visits.retain_mut(|visit| {
        let is_ready = is_ready.next().copied().unwrap_or_default();
        Instant::now() < visit.deadline && (!is_ready || visit.go_on(process).unwrap_or_default())
    });
    if ready.first().copied().unwrap_or_default() {
        accept(listener, visits);
    }
}

/// Accepts some connections.
fn accept(listener: &TcpListener, visits: &mut VecDeque<Visit>) {
    for _ in 0..ACCEPTED_AT_ONCE {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return thread::sleep(PAUSE),
        };
        if visits.len() >= CONNECTIONS {
            visits.pop_front();
        }
        if stream.set_nonblocking(true).is_ok() {
            let deadline = Instant::now() + TIME;
            visits.push_back(Visit { stream, deadline, head: Vec::new(), answer: Vec::new() });
        }
    }
}

impl Visit {
    /// Reads or writes what is possible now. Returns whether anything is left to be done.
    fn go_on(&mut self, process: &Weak<Process>) -> io::Result<bool> {
        while self.answer.is_empty() {
            let mut bytes = [0; 1024];
            let count = match self.stream.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                count => count?,
            };
            self.head.extend_from_slice(&bytes[..count]);
            match answer_to(&self.head, process) {
                Some((status, text)) => self.answer = encode(&self.head, status, &text),
                None if count == 0 || self.head.len() >= HEAD_BYTES => return Ok(false),
                None => {}
            }
        }
        while !self.answer.is_empty() {
            match self.stream.write(&self.answer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                count => _ = self.answer.drain(..count?),
            }
        }
        Ok(false)
    }
}

/// Returns the bytes of an answer.
fn encode(head: &[u8], status: &str, text: &str) -> Vec<u8> {
    let length = text.len();
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let text = if head.starts_with(b"HEAD ") { "" } else { text };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}"
    );
    answer.into_bytes()
}

/// Returns the status and the text for a request; none while its head is not complete.
fn answer_to(head: &[u8], process: &Weak<Process>) -> Option<(&'static str, String)> {
    let mut lines = [httparse::EMPTY_HEADER; HEAD_LINES];
    let mut request = httparse::Request::new(&mut lines);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Some(("400 Bad Request", "this is not a request of HTTP\n".to_owned())),
    }
    let path = request.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    Some(match (request.method, path) {
        (Some("GET" | "HEAD"), "/metrics") => match process.upgrade() {
            Some(process) => ("200 OK", process.metrics_text()),
            None => ("503 Service Unavailable", "the process ends\n".to_owned()),
        },
        (Some("GET" | "HEAD"), _) => ("404 Not Found", "there is only /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET and HEAD are answered\n".to_owned()),
    })
}

/// Empties the file of the numbers, if it can be written.
///
/// # Errors
///
/// Fails as the system does.
pub fn prepare(file: &Path) -> anyhow::Result<()> {
    let shown = file.display();
    ensure!(!file.is_dir(), "--prometheus names a file; {shown} is a directory");
    replace(file, "").with_context(|| format!("--prometheus: cannot replace {shown}"))
}

/// Writes the numbers of a process to a file, now and every few seconds until it ends.
///
/// The process goes on if the file cannot be written: it has servers already.
///
/// # Errors
///
/// Fails if the system starts no thread.
pub fn write(file: &Path, process: &Arc<Process>) -> anyhow::Result<()> {
    let (process, file) = (Arc::downgrade(process), PathBuf::from(file));
    let mut has_failed = false;
    let mut rewrite = move || {
        let Some(process) = process.upgrade() else { return false };
        let replaced = replace(&file, &process.metrics_text());
        if let (Err(error), false) = (&replaced, has_failed) {
            canopy::message(format_args!("cannot replace {}: {error}", file.display()));
        }
        has_failed = replaced.is_err();
        true
    };
    rewrite();
    let rewrite = move || {
        thread::sleep(WRITE_EVERY);
        while rewrite() {
            thread::sleep(WRITE_EVERY);
        }
    };
    thread::Builder::new().name("prometheus".into()).spawn(rewrite)?;
    Ok(())
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    // Collectors read what ends with .prom.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let written = path.with_file_name(name);
    // Never write to a file that somebody has put there, such as a FIFO.
    let _ = std::fs::remove_file(&written);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o644);
    let done = options
        .open(&written)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&written, path));
    if done.is_err() {
        let _ = std::fs::remove_file(&written);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metrics_are_served() {
        let nobody = Weak::new();
        let status = |head: &[u8]| answer_to(head, &nobody).map(|(status, _)| &status[..3]);
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\n"), None);
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), Some("503"));
        assert_eq!(status(b"HEAD /metrics?a=b HTTP/1.0\r\n\r\n"), Some("503"));
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), Some("404"));
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), Some("405"));
        assert_eq!(status(b"\x16\x03\x01\x02\x00"), Some("400"));
    }
}
