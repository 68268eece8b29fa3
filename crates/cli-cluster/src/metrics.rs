//! Numbers about this process for Prometheus: at an address, by HTTP, and in a file that the textfile
//! collector of node_exporter reads. They contain no names, paths or addresses.
//!
//! The only requests are `GET` and `HEAD` of `/metrics`. A connection carries one request, has a few
//! seconds, and a few KiB. A few are served at once; others are closed.

use anyhow::{Context, ensure};
use canopy_cluster::Process;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Connections that are served at once.
const CONNECTIONS: usize = 16;

/// Time of a connection.
const TIME: Duration = Duration::from_secs(5);

/// Bytes of the head of a request, and its lines.
const HEAD_BYTES: usize = 8 << 10;
const HEAD_LINES: usize = 64;

/// Pause between two versions of the file, and after the system could not accept a connection.
const WRITE_EVERY: Duration = Duration::from_secs(5);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    let process = Arc::downgrade(process);
    let active = Arc::<AtomicUsize>::default();
    let accept = move || {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(ACCEPT_PAUSE);
                continue;
            };
            if active.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
                active.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (process, active_too) = (process.clone(), active.clone());
            let answer = move || {
                // A client that has gone gets no answer.
                let _ = answer(&stream, &process);
                active_too.fetch_sub(1, Ordering::Relaxed);
            };
            if thread::Builder::new().name("metrics".into()).spawn(answer).is_err() {
                active.fetch_sub(1, Ordering::Relaxed);
            }
        }
    };
    thread::Builder::new().name("metrics".into()).spawn(accept)?;
    Ok(bound)
}

/// Answers the request of a connection.
fn answer(mut stream: &TcpStream, process: &Weak<Process>) -> io::Result<()> {
    let deadline = Instant::now() + TIME;
    stream.set_write_timeout(Some(TIME))?;
    let mut head = Vec::new();
    let (status, text) = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() >= HEAD_BYTES {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        let mut bytes = [0; 1024];
        let count = stream.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        head.extend_from_slice(&bytes[..count]);
        if let Some(answer) = answer_to(&head, process) {
            break answer;
        }
    };
    let is_head = head.starts_with(b"HEAD ");
    let length = text.len();
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{}",
        if is_head { "" } else { &text }
    );
    stream.write_all(answer.as_bytes())
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
/// # Errors
///
/// Fails if the file cannot be written the first time.
pub fn write(file: &Path, process: &Arc<Process>) -> anyhow::Result<()> {
    let failed = || format!("--prometheus: cannot replace {}", file.display());
    replace(file, &process.metrics_text()).with_context(failed)?;
    let (process, file) = (Arc::downgrade(process), PathBuf::from(file));
    let rewrite = move || {
        let mut has_failed = false;
        loop {
            thread::sleep(WRITE_EVERY);
            let Some(process) = process.upgrade() else { return };
            let replaced = replace(&file, &process.metrics_text());
            drop(process);
            if let (Err(error), false) = (&replaced, has_failed) {
                canopy::message(format_args!("cannot replace {}: {error}", file.display()));
            }
            has_failed = replaced.is_err();
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
