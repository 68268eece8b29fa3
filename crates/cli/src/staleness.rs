//! Age of answers: the footer on a terminal, and the output of `canopy info --max-age`.
//!
//! A source is as old as the last scan of it or of a part of it, or the last scan that found it
//! unchanged. Users see that last one only if they write the index. A source that a daemon follows
//! is as old as the oldest change that the daemon has not seen yet.

use crate::invocation::Invocation;
use canopy_index::{Index, SourceRecord};
use canopy_ingest::daemon::state_directory;
use canopy_ingest::now_ns;
use canopy_read::to_path;
use canopy_site::Opened;
use canopy_text::clock::age;
use canopy_text::safe::one_line;
use canopy_watch::requests::is_listening;
use canopy_watch::status;
use serde_json::Value;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Most sources that a footer names.
const NAMED_MAX: usize = 3;

/// Has the command end with a footer where what answers about these paths, or about all sources, is
/// old, and somebody looks at a terminal.
pub fn note(invocation: &Invocation, opened: &Opened, paths: &[OsString]) {
    if !std::io::stdout().is_terminal() || !std::io::stderr().is_terminal() {
        return;
    }
    let Some(stale_ns) = invocation.site.settings.stale_after.unwrap_or_default().0 else { return };
    let paths: Vec<PathBuf> = paths.iter().filter_map(|path| real(Path::new(path))).collect();
    let mut old = Vec::new();
    for index in opened.iter() {
        let mut own = old_sources(index, stale_ns, true);
        own.retain(|(root, _)| {
            let meets = |path: &PathBuf| path.starts_with(root) || root.starts_with(path);
            paths.is_empty() || paths.iter().any(meets)
        });
        old.append(&mut own);
    }
    old.sort_by_key(|(_, age_ns)| std::cmp::Reverse(*age_ns));
    if !old.is_empty() {
        invocation.set_footer(format!("this answer may be out of date: {}", listed(&old)));
    }
}

/// Returns a path without links, as far as it exists.
fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().or_else(|_| std::path::absolute(path)).ok()
}

/// Returns when a source was last scanned, updated or found as it was, in nanoseconds since 1970.
pub(super) fn last_ns(index: &Index, source: &SourceRecord) -> i64 {
    let checked = index.checked().unwrap_or_default();
    let own = checked.iter().find(|checked| checked.root == source.root);
    let checked_ns = own.map_or(i64::MIN, |checked| checked.scanned_ns);
    source.scanned_ns.max(source.updated_ns).max(checked_ns)
}

/// Returns the sources that are older than that and that no daemon follows, each with its age. To
/// those who may not see what a daemon does, one that listens follows all sources, or none.
pub(super) fn old_sources(
    index: &Index,
    stale_ns: i64,
    believes_listener: bool,
) -> Vec<(PathBuf, i64)> {
    let age_ns = |source: &SourceRecord| now_ns().saturating_sub(last_ns(index, source));
    let aged = index.sources().iter().map(|source| (source, age_ns(source)));
    let mut old: Vec<(&SourceRecord, i64)> =
        aged.filter(|(_, age_ns)| *age_ns > stale_ns).collect();
    if !old.is_empty() {
        let daemon = Daemon::of(index, believes_listener);
        old.retain(|(source, _)| !daemon.keeps(source, stale_ns));
    }
    old.into_iter().map(|(source, age_ns)| (to_path(&source.root), age_ns)).collect()
}

/// The daemon that follows an index, as far as the caller may see it.
enum Daemon {
    /// Its last status document, and whether it runs.
    Document(Value, bool),
    /// The document is readable by writers of the index alone. Whether to assume that the daemon
    /// follows all sources.
    Hidden(bool),
}

impl Daemon {
    fn of(index: &Index, believes_listener: bool) -> Self {
        match status::read_document(&state_directory(index.path())) {
            Ok(Some((document, is_running))) => Daemon::Document(document, is_running),
            Ok(None) => Daemon::Hidden(false),
            Err(_) => Daemon::Hidden(believes_listener && is_listening(index.path())),
        }
    }

    /// Returns whether the daemon has seen all changes of a source up to this age.
    fn keeps(&self, source: &SourceRecord, stale_ns: i64) -> bool {
        let (document, is_running) = match self {
            Daemon::Document(document, is_running) => (document, *is_running),
            Daemon::Hidden(follows) => return *follows,
        };
        let ns = |value: &Value| value.as_f64().map(|seconds| (seconds * 1e9) as i64);
        let mut sources = document["sources"].as_array().into_iter().flatten();
        let own = sources.find(|one| one["root"] == source.root.as_str());
        let lag_ns = own.and_then(|own| ns(&own["lag_s"]));
        match (lag_ns, ns(&document["written_s"])) {
            (Some(lag_ns), Some(written_ns)) => {
                let age_ns = now_ns().saturating_sub(written_ns).saturating_add(lag_ns);
                is_running && document["deaf"].is_null() && age_ns <= stale_ns
            }
            _ => false,
        }
    }
}

/// Names sources with their ages.
pub(super) fn listed(old: &[(PathBuf, i64)]) -> String {
    let one = |(root, age_ns): &(PathBuf, i64)| {
        format!("{} was indexed {} ago", one_line(&root.display().to_string()), age(*age_ns))
    };
    let named: Vec<String> = old.iter().take(NAMED_MAX).map(one).collect();
    match old.len().saturating_sub(NAMED_MAX) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
