//! Plans of scans: trees that would be scanned, and entries that would be left out. Nothing is written.

use crate::Context;
use crate::held::count;
use crate::scan::{ScanRequest, root_of};
use crate::sources::Namespaces;
use canopy_index::{Index, SourceRecord};
use canopy_model::{Device, Generation, unescape};
use canopy_scan::{Mount, mounts};
use canopy_site::{check_links, namespace_of, prune_reasons};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Effects that a scan would have.
pub struct Plan {
    /// The index.
    pub index: PathBuf,
    /// Its generation, if it is there.
    pub generation: Option<Generation>,
    /// Threads that scan.
    pub threads: usize,
    /// Memory for building, in bytes.
    pub memory_bytes: usize,
    /// The trees and namespaces.
    pub sources: Vec<PlannedSource>,
}

/// A tree or a namespace that would be scanned.
pub struct PlannedSource {
    /// Its root.
    pub path: PathBuf,
    /// Its name, if the request or the configuration has one.
    pub name: Option<String>,
    /// Its state in the index, or the reason why it cannot be scanned.
    pub state: anyhow::Result<PlannedState>,
    /// Whether the scan stays on the file system of the root.
    pub one_file_system: bool,
    /// Whether extended attributes and ACLs are left out.
    pub no_xattrs: bool,
    /// Patterns of entries that are left out, each with the origin of the rule.
    pub left_out: Vec<(String, &'static str)>,
    /// Mounts that are not scanned, or are for root alone: place, file system and reason.
    pub mounts: Vec<(PathBuf, String, &'static str)>,
}

/// State of a source in the index before a scan.
pub enum PlannedState {
    /// The index lacks it.
    New,
    /// It is a source.
    Indexed {
        /// Number of its entries.
        entries: i64,
        /// Time of the scan, in nanoseconds since 1970.
        scanned_ns: i64,
    },
    /// It is a part of the source with this root.
    Within(PathBuf),
}

/// Returns what a scan would do.
///
/// # Errors
///
/// If the index, the configuration or the table of mounts cannot be used.
pub fn plan(
    cx: &Context<'_>,
    location: &Path,
    request: &ScanRequest,
    namespaces: Option<&dyn Namespaces>,
) -> anyhow::Result<Plan> {
    let rules = cx.mount_rules(request.no_prune);
    let is_there = canopy_index::is_there(location).unwrap_or(true);
    let index = is_there.then(|| Index::open(location)).transpose()?;
    let mounted = mounts().unwrap_or_default();
    let source = |path: &PathBuf| -> anyhow::Result<PlannedSource> {
        let root = PathBuf::from(std::ffi::OsString::from_vec(
            unescape(&root_of(path, namespaces, request.root.as_deref())).into_owned(),
        ));
        let record = request.record(&cx.site.settings, path);
        let is_namespace = namespace_of(path).is_some();
        let mut left_out: Vec<(String, &str)> =
            record.excludes.iter().map(|pattern| (pattern.clone(), "--exclude")).collect();
        if !request.no_prune && !is_namespace {
            let pruned = prune_reasons(&cx.site.settings, &root)?;
            for path in &pruned.unusable {
                cx.warn(format_args!(
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
        let closed = |mount: &Mount| {
            let point = PathBuf::from(OsStr::from_bytes(&mount.point));
            let is_other = record.one_file_system && Some(mount.dev) != device;
            let why = rules.reason(mount, around).or(is_other.then_some("on another file system"));
            Some((point, mount.file_system.clone(), why?))
        };
        let state = match is_namespace {
            true => Ok(state(index.as_ref(), &root)?),
            false => match check(path, &root) {
                Ok(()) => Ok(state(index.as_ref(), &root)?),
                Err(error) => Err(error),
            },
        };
        let mut mounts: Vec<_> = points.filter_map(closed).collect();
        // A mount on another one hides it.
        mounts.sort();
        mounts.dedup_by(|one, other| one.0 == other.0);
        Ok(PlannedSource {
            name: request.name_of(&cx.site.settings, path),
            state,
            one_file_system: record.one_file_system,
            no_xattrs: record.no_xattrs,
            left_out,
            mounts,
            path: root,
        })
    };
    Ok(Plan {
        index: location.to_owned(),
        generation: index.as_ref().map(Index::generation),
        threads: request.threads,
        memory_bytes: request.memory_bytes,
        sources: request.paths.iter().map(source).collect::<anyhow::Result<_>>()?,
    })
}

/// Returns the state of a tree in the index.
fn state(index: Option<&Index>, root: &Path) -> anyhow::Result<PlannedState> {
    let Some(index) = index else { return Ok(PlannedState::New) };
    let root_of = |source: &SourceRecord| canopy_read::to_path(&source.root);
    let around = index.sources().iter().filter(|source| root.starts_with(root_of(source)));
    let Some(source) = around.max_by_key(|source| source.root.len()) else {
        return Ok(PlannedState::New);
    };
    if root_of(source) != root {
        return Ok(PlannedState::Within(root_of(source)));
    }
    let entries = count(index, Some(source.id))?.entries();
    Ok(PlannedState::Indexed { entries, scanned_ns: source.scanned_ns })
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
