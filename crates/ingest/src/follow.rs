//! Follows a namespace: reads what has changed since it was read last, for the daemon, which asks
//! again and again.
//!
//! A checkpoint of the namespace identifies the state that the index has. `namespaces.json` of the
//! daemon's directory describes it. It is replaced after a generation was published: a process that
//! dies between the two reads the same changes once more. Without a checkpoint everything is read,
//! and unchanged entries stay.

use crate::Context;
use crate::context::NeedsDerivedTables;
use crate::daemon::state_directory;
use crate::faults::Faults;
use crate::listing::Scans;
use crate::observer::with_progress;
use crate::publishing::{publish_changes, warn_of};
use crate::scan::ScanRequest;
use crate::sources::{Followed, Namespaces, Reading};
use anyhow::Context as _;
use canopy_as_user::subordinate_uids;
use canopy_index::{Index, Writer, WriterOptions};
use canopy_model::{Generation, SourcePath, escape};
use canopy_read::to_path;
use canopy_scan::Selection;
use canopy_site::namespace_of;
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Known states of followed namespaces, by their names.
struct Known(BTreeMap<String, KnownNamespace>);

/// State of a namespace at the last read.
struct KnownNamespace {
    /// Place of its root, escaped.
    root: String,
    /// Permissions on the way to that place.
    way: String,
    /// Description of the state, made by [`Namespaces`].
    kept: String,
}

impl Known {
    /// Reads the file. States that cannot be read are unknown.
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        let all = serde_json::from_slice::<BTreeMap<String, [String; 3]>>(&bytes);
        let all = all.unwrap_or_default().into_iter();
        Known(
            all.map(|(name, [root, way, kept])| (name, KnownNamespace { root, way, kept }))
                .collect(),
        )
    }

    fn write(&self, path: &Path) -> anyhow::Result<()> {
        let failed = || format!("cannot write {}", path.display());
        if let Some(directory) = path.parent() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.with_context(failed)?;
        }
        let new = path.with_extension("new");
        let all = self.0.iter().map(|(name, one)| (name, [&one.root, &one.way, &one.kept]));
        let all = BTreeMap::from_iter(all);
        std::fs::write(&new, serde_json::to_vec(&all)?).with_context(failed)?;
        std::fs::rename(&new, path).with_context(failed)
    }
}

/// The file that keeps the followed state of a namespace.
struct NamespaceState<'a> {
    file: PathBuf,
    name: String,
    namespace: &'a Path,
    source: &'a dyn Namespaces,
}

impl NamespaceState<'_> {
    fn remember(&self, now: KnownNamespace) -> anyhow::Result<()> {
        let mut all = Known::read(&self.file);
        all.0.insert(self.name.clone(), now);
        all.write(&self.file)
    }

    /// Saves the state of the namespace, and releases the previous one.
    fn replace(&self, before: Option<KnownNamespace>, now: KnownNamespace) -> anyhow::Result<()> {
        self.remember(now)?;
        if let Some(before) = before {
            self.source.forget(self.namespace, &before.kept);
        }
        Ok(())
    }
}

/// The result of following a namespace once.
pub struct FollowResult {
    /// The generation that has the state of the namespace.
    pub generation: Generation,
    /// Entries and directories that were read, if anything had changed.
    pub read: Option<(u64, u64)>,
    /// Whether nothing is missing.
    pub is_complete: bool,
}

impl FollowResult {
    fn unchanged(generation: Option<Generation>) -> Self {
        let generation = generation.unwrap_or_default();
        FollowResult { generation, read: None, is_complete: true }
    }
}

/// Reads what has changed of the only namespace of a request since it was followed last, and
/// publishes it.
///
/// # Errors
///
/// If the namespace or the index cannot be read or written, or the index has derived tables.
pub fn follow(
    cx: &Context<'_>,
    location: &Path,
    request: &ScanRequest,
    source: &dyn Namespaces,
) -> anyhow::Result<FollowResult> {
    let [path] = &request.paths[..] else { anyhow::bail!("one namespace is followed at a time") };
    let namespace = namespace_of(path).context("a namespace is ns:PATH")?;
    let place = NamespaceState {
        file: state_directory(location).join("namespaces.json"),
        name: path.to_string_lossy().into_owned(),
        namespace,
        source,
    };
    let before = Known::read(&place.file).0.remove(&place.name);
    let asked = request.root.as_deref();
    let root = match (source.root_of(namespace, asked), &before) {
        // Where it was mounted before.
        (Err(_), Some(before)) if asked.is_none() => to_path(&before.root),
        (root, _) => root?,
    };
    let way = way(&root)?;
    let escaped = escape(root.as_os_str().as_bytes()).into_owned();
    let generation = generation_with(location, &escaped)?;
    let is_known = |known: &&KnownNamespace| {
        generation.is_some() && (&known.root, &known.way) == (&escaped, &way)
    };
    let known = before.as_ref().filter(is_known);
    let (tree, changed) = match source.follow(namespace, known.map(|known| known.kept.as_str()))? {
        Followed::Unchanged(kept) => {
            if let (Some(kept), Some(before)) = (kept, before) {
                place.remember(KnownNamespace { kept, ..before })?;
            }
            return Ok(FollowResult::unchanged(generation));
        }
        Followed::Changed(tree, changed) => (tree, changed),
    };
    if changed.as_ref().is_some_and(Vec::is_empty) {
        place.replace(before, KnownNamespace { root: escaped, way, kept: tree.keep() })?;
        return Ok(FollowResult::unchanged(generation));
    }
    let mut selection = Selection::default();
    match &changed {
        Some(changed) => changed.iter().for_each(|path| selection.add(path.as_path(), false)),
        None => selection.add(SourcePath::ROOT, true),
    }
    let mut writer = open_writer(cx, location, request)?;
    let scans =
        Scans::new(cx, &writer, request.memory_bytes, request.threads, None, Faults::default())?;
    let rules = cx.mount_rules(request.no_prune);
    let missing = scans.shortfalls(&writer, &rules);
    let record = request.record(&cx.site.settings, &root);
    let reading = Reading::new(cx, &writer, &rules, namespace, &*tree, root.clone(), record)?;
    let selection = generation.is_some().then_some(&selection);
    let read = || reading.take_in(&mut writer, &scans, selection);
    let (begun, read) = with_progress(cx.observer, &scans, read)?;
    drop(reading);
    if let Err(error) = read {
        writer.abandon(begun);
        return Err(error);
    }
    let missing = scans.shortfalls(&writer, &rules).since(&missing);
    match missing.is_empty() {
        true => {
            writer.forget_failure(&escaped);
        }
        false => writer.record_incomplete(&escaped, missing.join("; ")),
    }
    let (published, are_complete) = publish_changes(cx, writer, request.threads)?;
    place.replace(before, KnownNamespace { root: escaped, way, kept: tree.keep() })?;
    let is_shown = warn_of(cx, &published);
    let read = (scans.counts.progress(), scans.counts.directories.into_inner());
    Ok(FollowResult {
        generation: published.generation,
        read: Some(read),
        is_complete: is_shown && are_complete,
    })
}

/// Returns the generation of the index, if it has a source with this root, escaped.
fn generation_with(location: &Path, root: &str) -> anyhow::Result<Option<Generation>> {
    if !canopy_index::is_there(location).unwrap_or(false) {
        return Ok(None);
    }
    let index = Index::open(location)?;
    let is_source = index.sources().iter().any(|source| source.root == root);
    Ok(is_source.then(|| index.generation()))
}

/// Opens the index for the changes of a namespace. Derived tables cannot be computed meanwhile.
fn open_writer(cx: &Context<'_>, location: &Path, request: &ScanRequest) -> anyhow::Result<Writer> {
    let options = WriterOptions {
        memory_bytes: request.memory_bytes,
        threads: request.threads,
        holders: subordinate_uids(),
        copied_rows_max: request.copied_rows_max,
        keep_replaced: true,
        ..WriterOptions::default()
    };
    explained((Context { derived: None, ..*cx }).open_writer(location, options))
}

/// Explains why an index with derived tables cannot be written while a namespace is read.
pub(crate) fn explained(opened: anyhow::Result<Writer>) -> anyhow::Result<Writer> {
    match opened {
        Err(error) if error.is::<NeedsDerivedTables>() => anyhow::bail!(
            "the index has derived tables, which cannot be computed anew while a namespace is read: \
             index where the namespace is mounted"
        ),
        opened => opened,
    }
}

/// Formats the permissions of all directories above a path: they decide which users get there.
fn way(root: &Path) -> anyhow::Result<String> {
    let mut way = String::new();
    for directory in root.ancestors().skip(1) {
        let failed = || format!("cannot look at {}", directory.display());
        let about = directory.symlink_metadata().with_context(failed)?;
        let mut acl = vec![0; 1 << 16];
        let acl = match rustix::fs::getxattr(directory, "system.posix_acl_access", &mut acl[..]) {
            Ok(length) => &acl[..length],
            Err(_) => &[],
        };
        let (mode, uid, gid) = (about.mode(), about.uid(), about.gid());
        way += &format!("{} {mode:o} {uid} {gid} {acl:x?}\n", about.ino());
    }
    Ok(way)
}
