//! Numbers about a process of a cluster, as Prometheus reads them. They contain no names, paths,
//! addresses or users, so they can be shown to anybody who may connect.
//!
//! Counting costs two additions and a look at the clock for each request. No lock is taken.

use crate::error::{Error, Result};
use crate::message::{Request, ServerRequest};
use canopy_namespace::inode::{TYPE_MASK, file_type};
use canopy_namespace::operation::{Change, Operation, Read, Target};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Kinds of requests, in the order of [`kind_of`].
const KINDS: [&str; 16] = [
    "create",
    "mkdir",
    "unlink",
    "rmdir",
    "link",
    "rename",
    "attributes",
    "contents",
    "lookup",
    "stat",
    "list",
    "read",
    "hold",
    "session",
    "server",
    "other",
];

/// Upper bounds of the classes of latencies.
const BOUNDS: [(Duration, &str); 7] = [
    (Duration::from_micros(10), "0.00001"),
    (Duration::from_micros(100), "0.0001"),
    (Duration::from_millis(1), "0.001"),
    (Duration::from_millis(10), "0.01"),
    (Duration::from_millis(100), "0.1"),
    (Duration::from_secs(1), "1"),
    (Duration::from_secs(10), "10"),
];

/// A number that grows.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the number.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Number and latencies of requests of one kind.
#[derive(Default)]
struct Timed {
    /// Requests by their class of latency; the last class has no bound.
    classes: [Counter; BOUNDS.len() + 1],
    nanoseconds: Counter,
    failures: Counter,
}

impl Timed {
    fn note(&self, time: Duration) {
        let class = BOUNDS.iter().position(|(bound, _)| time <= *bound).unwrap_or(BOUNDS.len());
        self.classes[class].add(1);
        self.nanoseconds.add(time.as_nanos() as u64);
    }
}

/// Counters of a process.
#[derive(Default)]
pub struct Metrics {
    requests: [Timed; KINDS.len()],
    /// Requests about names or files that the server did not hold.
    pub addressing_errors: Counter,
    /// Requests about files of which only the id is known, and that the server did not hold.
    pub id_misses: Counter,
    /// Partitions that were split on one server. A half that another one gets is a hand-over.
    pub splits: Counter,
    /// Partitions that were handed over.
    pub handovers: Counter,
    /// Hand-overs that stopped. Each is tried again.
    pub stopped_handovers: Counter,
    /// Entries in partitions that were handed over.
    pub moved_entries: Counter,
    /// Changes that waited for the end of a hand-over.
    pub handover_waits: Counter,
    /// Changes that waited for leases of clients to end.
    pub lease_waits: Counter,
    /// Servers that were started here.
    pub server_starts: Counter,
    /// Servers that were taken over from processes whose leases had ended.
    pub failovers: Counter,
    /// Objects of contents that were removed, since no record needs them.
    pub removed_objects: Counter,
    /// Bytes of requests and of answers.
    pub bytes_in: Counter,
    /// See `bytes_in`.
    pub bytes_out: Counter,
    /// Calls that arrived, and frames that brought them.
    pub calls: Counter,
    /// See `calls`.
    pub frames: Counter,
    /// Requests of callers that may not speak for the user they name.
    pub refusals: Counter,
}

/// A value of the moment.
pub(crate) struct Gauge {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) value: u64,
}

impl Metrics {
    /// Notes a request that was answered.
    pub(crate) fn note<T>(&self, request: &Request<'_>, began: Instant, answer: &Result<T>) {
        let timed = &self.requests[kind_of(request)];
        timed.note(began.elapsed());
        match answer {
            Ok(_) => {}
            Err(Error::WrongServer { target, .. }) => {
                self.addressing_errors.add(1);
                self.id_misses.add(u64::from(matches!(target, Target::File(_))));
            }
            Err(_) => timed.failures.add(1),
        }
    }

    /// Returns the number of requests that were answered.
    pub fn request_count(&self) -> u64 {
        let classes = self.requests.iter().flat_map(|timed| &timed.classes);
        classes.map(Counter::get).sum()
    }

    /// Returns all numbers in the text format of Prometheus, with these of the moment.
    pub(crate) fn text(&self, gauges: &[Gauge]) -> String {
        let mut text = String::new();
        self.write_requests(&mut text);
        for (name, counter, help) in self.counters() {
            head(&mut text, name, "counter", help);
            let _ = writeln!(text, "canopy_cluster_{name} {}", counter.get());
        }
        for Gauge { name, help, value } in gauges {
            head(&mut text, name, "gauge", help);
            let _ = writeln!(text, "canopy_cluster_{name} {value}");
        }
        text
    }

    fn write_requests(&self, text: &mut String) {
        let name = "request_seconds";
        head(text, name, "histogram", "Time to answer requests, by kind.");
        for (kind, timed) in KINDS.iter().zip(&self.requests) {
            let mut count = 0;
            for (class, counter) in timed.classes.iter().enumerate() {
                count += counter.get();
                let bound = BOUNDS.get(class).map_or("+Inf", |(_, bound)| bound);
                let labels = format!("kind=\"{kind}\",le=\"{bound}\"");
                let _ = writeln!(text, "canopy_cluster_{name}_bucket{{{labels}}} {count}");
            }
            let seconds = timed.nanoseconds.get() as f64 / 1e9;
            let _ = writeln!(text, "canopy_cluster_{name}_sum{{kind=\"{kind}\"}} {seconds}");
            let _ = writeln!(text, "canopy_cluster_{name}_count{{kind=\"{kind}\"}} {count}");
        }
        let name = "request_failures_total";
        head(text, name, "counter", "Requests that failed, by kind.");
        for (kind, timed) in KINDS.iter().zip(&self.requests) {
            let failures = timed.failures.get();
            let _ = writeln!(text, "canopy_cluster_{name}{{kind=\"{kind}\"}} {failures}");
        }
    }

    fn counters(&self) -> [(&'static str, &Counter, &'static str); 16] {
        [
            ("addressing_errors_total", &self.addressing_errors, "Requests to a wrong server."),
            ("id_misses_total", &self.id_misses, "Of these, requests that only know an id."),
            ("splits_total", &self.splits, "Partitions that were split on one server."),
            ("handovers_total", &self.handovers, "Partitions given to another server."),
            ("stopped_handovers_total", &self.stopped_handovers, "Hand-overs that stopped."),
            ("moved_entries_total", &self.moved_entries, "Entries given to another server."),
            ("handover_waits_total", &self.handover_waits, "Changes that waited for a hand-over."),
            ("lease_waits_total", &self.lease_waits, "Changes that waited for leases of clients."),
            ("server_starts_total", &self.server_starts, "Servers that were started."),
            ("failovers_total", &self.failovers, "Servers of dead processes taken over."),
            ("removed_objects_total", &self.removed_objects, "Objects removed as not needed."),
            ("received_bytes_total", &self.bytes_in, "Bytes of requests."),
            ("sent_bytes_total", &self.bytes_out, "Bytes of answers."),
            ("calls_total", &self.calls, "Requests that arrived from other processes."),
            ("frames_total", &self.frames, "Frames that brought them."),
            ("refusals_total", &self.refusals, "Requests for users that a peer may not act for."),
        ]
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP canopy_cluster_{name} {help}");
    let _ = writeln!(text, "# TYPE canopy_cluster_{name} {kind}");
}

/// Returns the place of a request's kind.
fn kind_of(request: &Request<'_>) -> usize {
    let kind = match request {
        Request::Execute(operation) => kind_of_operation(operation),
        Request::List(_) => "list",
        Request::DirectoryAtServer(_) | Request::LeaseDirectory(_) => "stat",
        Request::NameOf(_) | Request::HomeOf(_) => "lookup",
        Request::Hold(..) => "hold",
        Request::Reclaim(..) | Request::Renew(_) | Request::EndSession => "session",
        Request::OfServer(ServerRequest::EndSession(_)) => "session",
        Request::OfServer(_) => "server",
        _ => "other",
    };
    KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len() - 1)
}

fn kind_of_operation(operation: &Operation<'_>) -> &'static str {
    match operation {
        Operation::Read(_, Read::Lookup(_)) => "lookup",
        Operation::Read(_, Read::Inode(_)) => "stat",
        Operation::Read(_, Read::List(_)) => "list",
        Operation::Read(..) | Operation::Access(_) => "read",
        Operation::Hold(_) => "hold",
        Operation::Change(change) => match change {
            Change::Create { new, .. } if new.mode & TYPE_MASK == file_type::DIRECTORY => "mkdir",
            Change::Create { .. } | Change::CreateNameless { .. } => "create",
            Change::Unlink(_) => "unlink",
            Change::Rmdir(_) => "rmdir",
            Change::Link { .. } => "link",
            Change::Rename { .. } => "rename",
            Change::WriteSmall { .. } | Change::PutChunks { .. } => "contents",
            _ => "attributes",
        },
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_namespace::{EntryName, ROOT};

    #[test]
    fn requests_are_counted_by_kind_and_latency() {
        let metrics = Metrics::default();
        let lookup = Read::Lookup(EntryName::new(ROOT, b"name"));
        let lookup = Request::Execute(Operation::Read(Default::default(), lookup));
        metrics.note(&lookup, Instant::now(), &Ok(()));
        let began = Instant::now().checked_sub(Duration::from_millis(2)).unwrap();
        metrics.note(&lookup, began, &Err::<(), _>(Error::Unfit));
        let (target, partitions) = (Target::File(ROOT), crate::message::Partitions::default());
        let elsewhere = Error::WrongServer { target, partitions, changes: 0, servers: 1 };
        metrics.note(&Request::EndSession, Instant::now(), &Err::<(), _>(elsewhere));
        metrics.moved_entries.add(7);
        let gauge = Gauge { name: "servers", help: "Servers that run here.", value: 3 };
        let text = metrics.text(&[gauge]);
        for line in [
            "# TYPE canopy_cluster_request_seconds histogram",
            "canopy_cluster_request_seconds_bucket{kind=\"lookup\",le=\"0.001\"} 1",
            "canopy_cluster_request_seconds_bucket{kind=\"lookup\",le=\"+Inf\"} 2",
            "canopy_cluster_request_seconds_count{kind=\"lookup\"} 2",
            "canopy_cluster_request_seconds_count{kind=\"create\"} 0",
            "canopy_cluster_request_failures_total{kind=\"lookup\"} 1",
            "canopy_cluster_request_failures_total{kind=\"session\"} 0",
            "canopy_cluster_addressing_errors_total 1",
            "canopy_cluster_id_misses_total 1",
            "canopy_cluster_moved_entries_total 7",
            "# TYPE canopy_cluster_servers gauge",
            "canopy_cluster_servers 3",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
        }
        assert_eq!(metrics.request_count(), 3);
    }
}
