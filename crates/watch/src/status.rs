//! How a daemon tells how it goes: a JSON document, and the text that Prometheus' node_exporter
//! collects. Both are files that are replaced as a whole.

use crate::error::{Error, Result};
use crate::intake::{EventCounts, IntakeState};
use canopy_model::escape;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Name of the document in the directory of the daemon.
const NAME: &str = "status.json";

/// Makes documents from the state of an intake.
pub struct Reporter {
    begun: SystemTime,
    /// Source of changes, such as `fanotify`.
    method: String,
    /// Roots or mounts that are not followed, with the reason.
    pub unfollowed: Vec<String>,
    /// Reason why no changes are reported at the moment, if so.
    pub deaf: Option<String>,
    /// Whether this is the last document.
    pub ended: bool,
    before: (Instant, EventCounts),
    events_per_s: f64,
}

impl Reporter {
    /// Begins to count.
    pub fn new(method: &str) -> Self {
        Reporter {
            begun: SystemTime::now(),
            method: method.to_owned(),
            unfollowed: Vec::new(),
            deaf: None,
            ended: false,
            before: (Instant::now(), EventCounts::default()),
            events_per_s: 0.0,
        }
    }

    /// Returns what tells of changes.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the document.
    pub fn document(&mut self, now: &IntakeState) -> Value {
        self.count(now.heard);
        let unix_s = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = |span: Duration| (span.as_secs_f64() * 1000.0).round() / 1000.0;
        let sources = now.sources.iter().map(|source| {
            json!({
                "root": escape(&source.root),
                "suspects": source.suspects,
                "lag_s": source.lag.map_or(0.0, seconds),
                "last_error": source.last_error,
            })
        });
        let logs = now.logs.iter().map(|(log, record)| json!({ "log": log, "record": record }));
        let lag = now.sources.iter().filter_map(|source| source.lag).max().unwrap_or_default();
        let asked = now.heard.cache_hits + now.heard.cache_misses;
        let hit_rate = (asked > 0).then(|| now.heard.cache_hits as f64 / asked as f64);
        json!({
            "pid": std::process::id(),
            "ended": self.ended,
            "begun_s": unix_s(self.begun).as_secs(),
            "written_s": seconds(unix_s(SystemTime::now())),
            "method": self.method,
            "lag_s": seconds(lag),
            "events_per_s": (self.events_per_s * 10.0).round() / 10.0,
            "suspects": now.sources.iter().map(|source| source.suspects).sum::<usize>(),
            "generation": now.generation,
            "batches": now.batches,
            "suspects_applied": now.applied,
            "events": now.heard.events,
            "events_elsewhere": now.heard.elsewhere,
            "events_of_gone": now.heard.gone,
            "unresolved": now.heard.unresolved,
            "overflows": now.heard.overflows,
            "bad_lines": now.heard.bad_lines,
            "cache_hit_rate": hit_rate,
            "cache_hits": now.heard.cache_hits,
            "cache_misses": now.heard.cache_misses,
            "requests_served": now.requests.served,
            "requests_refused": now.requests.refused,
            "unfollowed": self.unfollowed,
            "deaf": self.deaf,
            "journal_error": now.journal_error,
            "last_unresolved": now.unresolved,
            "change_logs": logs.collect::<Vec<_>>(),
            "sources": sources.collect::<Vec<_>>(),
        })
    }

    fn count(&mut self, heard: EventCounts) {
        let elapsed = self.before.0.elapsed();
        if elapsed < Duration::from_millis(900) {
            return;
        }
        let rate = (heard.events - self.before.1.events) as f64 / elapsed.as_secs_f64();
        // Over some ten seconds.
        self.events_per_s += (rate - self.events_per_s) * (elapsed.as_secs_f64() / 10.0).min(1.0);
        self.before = (Instant::now(), heard);
    }
}

/// Writes the document into the directory of the daemon.
pub fn write_document(directory: &Path, document: &Value) -> Result<()> {
    let text = format!("{document:#}\n");
    replace(&directory.join(NAME), text.as_bytes(), 0o600)
}

/// Reads the document of a daemon, and whether that runs; `None` if there never was one.
pub fn read_document(directory: &Path) -> Result<Option<(Value, bool)>> {
    let path = directory.join(NAME);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("read", &path)(error)),
    };
    let document: serde_json::Result<Value> = serde_json::from_slice(&text);
    let document = document.map_err(|error| Error::io("read", &path)(error.into()))?;
    // The number of a process that is gone may be another's by now, which writes nothing here.
    let pid = document["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let exists = |pid| nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None);
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let age_s = now_s - document["written_s"].as_f64().unwrap_or(0.0);
    let is_running =
        document["ended"] != true && pid.is_some_and(|pid| exists(pid).is_ok()) && age_s < 60.0;
    Ok(Some((document, is_running)))
}

/// Writes what node_exporter's textfile collector reads.
pub fn write_metrics(path: &Path, document: &Value) -> Result<()> {
    replace(path, metrics(document).as_bytes(), 0o644)
}

/// Returns the files that [`write_metrics`] makes and renames.
pub fn metrics_files(path: &Path) -> [PathBuf; 2] {
    [path.to_owned(), written_beside(path)]
}

fn written_beside(path: &Path) -> PathBuf {
    // Collectors read what ends with .prom.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let written = written_beside(path);
    // Never write to a file that somebody has put there, such as a FIFO.
    let _ = std::fs::remove_file(&written);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let done = options
        .open(&written)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| std::fs::rename(&written, path));
    if done.is_err() {
        let _ = std::fs::remove_file(&written);
    }
    done.map_err(Error::io("replace", path))
}

/// Each metric with its type, the field of the document, and what it means.
const METRICS: [(&str, &str, &str, &str); 12] = [
    ("events_total", "counter", "events", "Events that were told."),
    ("overflows_total", "counter", "overflows", "How often events were lost."),
    ("unresolved_total", "counter", "unresolved", "Events of directories without a path."),
    ("bad_lines_total", "counter", "bad_lines", "Lines of events that could not be read."),
    ("cache_hits_total", "counter", "cache_hits", "Directories whose path was known."),
    ("cache_misses_total", "counter", "cache_misses", "Directories whose path was asked for."),
    ("batches_total", "counter", "batches", "Batches that became part of the index."),
    ("suspects_applied_total", "counter", "suspects_applied", "Suspects in those batches."),
    ("requests_served_total", "counter", "requests_served", "Requests of users that were served."),
    ("requests_refused_total", "counter", "requests_refused", "Requests of users that were not."),
    ("generation", "gauge", "generation", "The last generation that was published."),
    ("written_seconds", "gauge", "written_s", "When this was written, since 1970."),
];

/// Like `METRICS`, for each source.
const METRICS_OF_SOURCES: [(&str, &str, &str); 2] = [
    ("lag_seconds", "lag_s", "How long the oldest change waits that is not in the index."),
    ("suspects", "suspects", "Directories that wait to be looked at again."),
];

fn metrics(document: &Value) -> String {
    let mut text = String::new();
    let head = |text: &mut String, name: &str, kind: &str, help: &str| {
        let _ = writeln!(text, "# HELP canopy_watch_{name} {help}");
        let _ = writeln!(text, "# TYPE canopy_watch_{name} {kind}");
    };
    for (name, kind, field, help) in METRICS {
        if let Some(number) = document[field].as_f64() {
            head(&mut text, name, kind, help);
            let _ = writeln!(text, "canopy_watch_{name} {number}");
        }
    }
    let sources = document["sources"].as_array().map_or(&[][..], Vec::as_slice);
    let namespaces = document["namespaces"].as_array().map_or(&[][..], Vec::as_slice);
    let label = |source: &Value| {
        let root = source["root"].as_str().or_else(|| source["namespace"].as_str());
        root.unwrap_or_default().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
    };
    for (name, field, help) in METRICS_OF_SOURCES {
        head(&mut text, name, "gauge", help);
        for source in sources {
            let number = source[field].as_f64().unwrap_or(0.0);
            let _ = writeln!(text, "canopy_watch_{name}{{source=\"{}\"}} {number}", label(source));
        }
    }
    head(&mut text, "followed_seconds", "gauge", "When the index last had all, since 1970.");
    for namespace in namespaces {
        if let Some(number) = namespace["followed_s"].as_f64() {
            let label = label(namespace);
            let _ = writeln!(text, "canopy_watch_followed_seconds{{source=\"{label}\"}} {number}");
        }
    }
    head(&mut text, "failing", "gauge", "1 if the last attempt to follow failed.");
    for source in sources.iter().chain(namespaces) {
        let failing = u8::from(source["last_error"].is_string());
        let _ = writeln!(text, "canopy_watch_failing{{source=\"{}\"}} {failing}", label(source));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::SourceState;
    use crate::requests::Counts;
    use canopy_model::Generation;

    fn snapshot() -> IntakeState {
        let heard =
            EventCounts { events: 5, cache_hits: 3, cache_misses: 1, ..EventCounts::default() };
        let source = SourceState {
            root: b"/a \"b\"".to_vec(),
            suspects: 2,
            lag: Some(Duration::from_millis(1500)),
            last_error: Some("locked".to_owned()),
        };
        IntakeState {
            sources: vec![source],
            heard,
            generation: Some(Generation(7)),
            batches: 1,
            applied: 4,
            journal_error: None,
            unresolved: None,
            requests: Counts { served: 6, refused: 2 },
            logs: Vec::new(),
        }
    }

    #[test]
    fn metrics_are_in_the_form_of_prometheus() {
        let mut document = Reporter::new("fanotify").document(&snapshot());
        assert_eq!(document["cache_hit_rate"], 0.75);
        document["namespaces"] = json!([
            { "namespace": "ns:/a", "followed_s": 12.5, "last_error": null },
            { "namespace": "ns:s3://b/c", "followed_s": null, "last_error": "gone" },
        ]);
        let text = metrics(&document);
        for line in [
            "# TYPE canopy_watch_events_total counter",
            "canopy_watch_events_total 5",
            "canopy_watch_generation 7",
            "canopy_watch_requests_served_total 6",
            "canopy_watch_requests_refused_total 2",
            "canopy_watch_lag_seconds{source=\"/a \\\"b\\\"\"} 1.5",
            "canopy_watch_suspects{source=\"/a \\\"b\\\"\"} 2",
            "canopy_watch_failing{source=\"/a \\\"b\\\"\"} 1",
            "canopy_watch_followed_seconds{source=\"ns:/a\"} 12.5",
            "canopy_watch_failing{source=\"ns:/a\"} 0",
            "canopy_watch_failing{source=\"ns:s3://b/c\"} 1",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("canopy_watch_followed_seconds{source=\"ns:s3"), "{text}");
    }

    #[test]
    fn existing_files_are_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("x.prom"), dir.path().join("victim"));
        let document = Reporter::new("fanotify").document(&snapshot());
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, written_beside(&path), fifo, mode, 0).unwrap();
        write_metrics(&path, &document).unwrap();
        std::fs::write(&victim, "kept").unwrap();
        std::fs::hard_link(&victim, written_beside(&path)).unwrap();
        write_metrics(&path, &document).unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), metrics(&document));
    }

    #[test]
    fn documents_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_document(dir.path()).unwrap(), None);
        let mut reporter = Reporter::new("fanotify");
        let document = reporter.document(&snapshot());
        write_document(dir.path(), &document).unwrap();
        assert_eq!(read_document(dir.path()).unwrap(), Some((document, true)));
        reporter.ended = true;
        write_document(dir.path(), &reporter.document(&snapshot())).unwrap();
        assert!(!read_document(dir.path()).unwrap().unwrap().1);
    }
}
