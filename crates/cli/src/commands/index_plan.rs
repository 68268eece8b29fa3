//! `canopy index --dry-run`: what would be scanned and left out, and by which configuration. Nothing
//! is written.

use super::index_summary::shown_time;
use crate::outcome::{Outcome, message, without_numbers};
use canopy_index::{Index, SourceRecord};
use canopy_ingest::count;
use canopy_ingest::scan::ScanRequest;
use canopy_model::{Device, Generation, unescape};
use canopy_scan::{Mount, MountRules, mounts};
use canopy_site::{Settings, check_links, namespace_of, prune_reasons};
use canopy_text::counted;
use canopy_text::human_size;
use canopy_text::safe::message_line;
use canopy_tools::json::exact;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a run would do.
pub(super) struct Plan<'a> {
    settings: &'a Settings,
    index: PathBuf,
    generation: Option<Generation>,
    threads: usize,
    memory_bytes: usize,
    sources: Vec<PlannedSource>,
}

struct PlannedSource {
    path: PathBuf,
    name: Option<String>,
    /// What the index has of it, or why it cannot be scanned.
    state: Result<State, String>,
    one_file_system: bool,
    no_xattrs: bool,
    /// What is left out, each with who says so.
    left_out: Vec<(String, &'static str)>,
    /// Where something is mounted that is not scanned, or is for root alone.
    mounts: Vec<(PathBuf, String, &'static str)>,
}

enum State {
    New,
    /// Of a generation with so many entries, scanned then.
    Indexed {
        entries: i64,
        scanned_ns: i64,
    },
    /// A part of the source with this root.
    Within(PathBuf),
}

impl<'a> Plan<'a> {
    /// Finds out what a run would do that writes the index at `location`.
    pub(super) fn new(
        settings: &'a Settings,
        location: &Path,
        (request, rules): (&ScanRequest, &MountRules),
        root_of: &dyn Fn(&Path) -> String,
    ) -> anyhow::Result<Self> {
        let is_there = canopy_index::is_there(location).unwrap_or(true);
        let index = is_there.then(|| Index::open(location)).transpose()?;
        let mounted = mounts().unwrap_or_default();
        let source = |path: &PathBuf| -> anyhow::Result<PlannedSource> {
            let root =
                PathBuf::from(std::ffi::OsString::from_vec(unescape(&root_of(path)).into_owned()));
            let record = request.record(settings, path);
            let is_namespace = namespace_of(path).is_some();
            let mut left_out: Vec<(String, &str)> =
                record.excludes.iter().map(|pattern| (pattern.clone(), "--exclude")).collect();
            if !request.no_prune && !is_namespace {
                let pruned = prune_reasons(settings, &root)?;
                for path in &pruned.unusable {
                    message(format_args!(
                        "warning: {} is not UTF-8 and is not left out",
                        path.display()
                    ));
                }
                left_out.extend(pruned.patterns);
            }
            let points = mounted.iter().filter(|mount| {
                let point = Path::new(OsStr::from_bytes(&mount.point));
                !is_namespace && point != root && point.starts_with(&root)
            });
            let device = root.metadata().ok().map(|about| Device(about.dev()));
            let around = mount_of(&mounted, &root);
            let told = |mount: &Mount| {
                let point = PathBuf::from(OsStr::from_bytes(&mount.point));
                let is_other = record.one_file_system && Some(mount.dev) != device;
                let why =
                    rules.reason(mount, around).or(is_other.then_some("on another file system"));
                Some((point, mount.file_system.clone(), why?))
            };
            let state = match is_namespace {
                true => Ok(state(index.as_ref(), &root)?),
                false => match check(path, &root) {
                    Ok(()) => Ok(state(index.as_ref(), &root)?),
                    Err(error) => Err(without_numbers(&format!("{error:#}"))),
                },
            };
            let mut mounts: Vec<_> = points.filter_map(told).collect();
            // What is mounted on another mount hides it.
            mounts.sort();
            mounts.dedup_by(|one, other| one.0 == other.0);
            Ok(PlannedSource {
                name: request.name_of(settings, path),
                state,
                one_file_system: record.one_file_system,
                no_xattrs: record.no_xattrs,
                left_out,
                mounts,
                path: root,
            })
        };
        Ok(Plan {
            settings,
            index: location.to_owned(),
            generation: index.as_ref().map(Index::generation),
            threads: request.threads,
            memory_bytes: request.memory_bytes,
            sources: request.paths.iter().map(source).collect::<anyhow::Result<_>>()?,
        })
    }

    /// Prints it. A tree that cannot be scanned makes the answer partial.
    pub(super) fn print(&self, as_json: bool) -> anyhow::Result<Outcome> {
        let mut output = std::io::stdout().lock();
        if as_json {
            writeln!(output, "{:#}", exact(self.as_json()))?;
        } else {
            self.print_text(&mut output)?;
        }
        let is_whole = self.sources.iter().all(|source| source.state.is_ok());
        Ok(if is_whole { Outcome::Complete } else { Outcome::Partial })
    }

    fn print_text(&self, output: &mut impl Write) -> anyhow::Result<()> {
        for source in &self.sources {
            writeln!(output, "{}", shown(&source.path))?;
            writeln!(output, "  {}", source.describe())?;
            if let Some(name) = &source.name {
                writeln!(output, "  name: {}", message_line(name))?;
            }
            let flags = [
                (source.one_file_system, "stays on its file system"),
                (source.no_xattrs, "without extended attributes and ACLs"),
            ];
            for (_, flag) in flags.iter().filter(|(is_set, _)| *is_set) {
                writeln!(output, "  {flag}")?;
            }
            for (pattern, why) in &source.left_out {
                writeln!(output, "  without {} ({why})", message_line(pattern))?;
            }
            for (point, file_system, why) in &source.mounts {
                writeln!(output, "  without {} ({file_system}: {why})", shown(point))?;
            }
        }
        let generation = match self.generation {
            Some(generation) => format!("generation {generation} would be replaced"),
            None => "none yet".to_owned(),
        };
        writeln!(output, "index: {} ({generation})", shown(&self.index))?;
        let memory = human_size(i64::try_from(self.memory_bytes).unwrap_or(i64::MAX));
        writeln!(output, "threads: {}, memory: {memory}", self.threads)?;
        let files: Vec<String> = self.settings.files.iter().map(|file| shown(file)).collect();
        let files = if files.is_empty() { "none".to_owned() } else { files.join(", ") };
        writeln!(output, "configuration: {files}")?;
        // Of sources all is told above.
        for (key, value) in
            self.settings.of_scans().into_iter().filter(|(key, _)| *key != "sources")
        {
            writeln!(output, "  {key} = {}", message_line(&value.to_string()))?;
        }
        writeln!(output, "Nothing was written.")?;
        Ok(())
    }

    fn as_json(&self) -> Value {
        let source = |source: &PlannedSource| {
            let (entries, scanned_ns) = match source.state {
                Ok(State::Indexed { entries, scanned_ns }) => (Some(entries), Some(scanned_ns)),
                _ => (None, None),
            };
            let within = match &source.state {
                Ok(State::Within(root)) => Some(root.to_string_lossy()),
                _ => None,
            };
            let left_out = source.left_out.iter();
            let mounts = source.mounts.iter();
            json!({
                "path": source.path.to_string_lossy(),
                "name": source.name,
                "error": source.state.as_ref().err(),
                "entries": entries,
                "scanned_ns": scanned_ns,
                "within": within,
                "one_file_system": source.one_file_system,
                "no_xattrs": source.no_xattrs,
                "left_out": left_out
                    .map(|(pattern, why)| json!({ "pattern": pattern, "by": why }))
                    .collect::<Vec<_>>(),
                "mounts": mounts
                    .map(|(point, file_system, why)| json!({
                        "path": point.to_string_lossy(),
                        "file_system": file_system,
                        "reason": why,
                    }))
                    .collect::<Vec<_>>(),
            })
        };
        let configured: serde_json::Map<String, Value> = self
            .settings
            .of_scans()
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        json!({
            "index": self.index.to_string_lossy(),
            "generation": self.generation,
            "threads": self.threads,
            "memory_bytes": self.memory_bytes,
            "sources": self.sources.iter().map(source).collect::<Vec<_>>(),
            "configuration_files":
                self.settings.files.iter().map(|file| file.to_string_lossy()).collect::<Vec<_>>(),
            "configuration": configured,
        })
    }
}

impl PlannedSource {
    fn describe(&self) -> String {
        match &self.state {
            Err(error) => format!("cannot be scanned: {}", message_line(error)),
            Ok(State::New) => "new".to_owned(),
            Ok(State::Within(root)) => format!("a part of the source {}", shown(root)),
            Ok(State::Indexed { entries, scanned_ns }) => {
                format!(
                    "in the index: {}, scanned {}",
                    counted(entries, "entry"),
                    shown_time(*scanned_ns)
                )
            }
        }
    }
}

/// Returns what the index has of a tree.
fn state(index: Option<&Index>, root: &Path) -> anyhow::Result<State> {
    let Some(index) = index else { return Ok(State::New) };
    let root_of = |source: &SourceRecord| canopy_read::to_path(&source.root);
    let around = index.sources().iter().filter(|source| root.starts_with(root_of(source)));
    let Some(source) = around.max_by_key(|source| source.root.len()) else {
        return Ok(State::New);
    };
    if root_of(source) != root {
        return Ok(State::Within(root_of(source)));
    }
    let entries = count(index, Some(source.id))?.entries();
    Ok(State::Indexed { entries, scanned_ns: source.scanned_ns })
}

/// Fails where a tree cannot be scanned, as far as that shows at its root.
fn check(path: &Path, root: &Path) -> anyhow::Result<()> {
    check_links(path)?;
    std::fs::read_dir(root)?;
    Ok(())
}

/// Returns the mount that a path is on.
fn mount_of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(OsStr::from_bytes(&mount.point)));
    above.max_by_key(|mount| mount.point.len())
}

fn shown(path: &Path) -> String {
    message_line(&path.to_string_lossy()).into_owned()
}
