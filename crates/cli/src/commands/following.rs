//! Has the index follow a namespace: reads what has changed since that was done last, for `canopy
//! watch`, which runs it again and again.
//!
//! What is in the index is known by a checkpoint of the namespace, described in `namespaces.json`
//! of the daemon's directory. It is replaced after a generation was published: whoever dies between
//! the two reads the same changes once more. Without one all is read, and what is as it was stays.

use super::building::{publish_changes, with_progress_reported};
use super::index::Arguments;
use super::index_faults::Faults;
use super::index_namespace::{Followed, NamespaceSource, Reading};
use super::scanning::{Scans, scan_threads};
use super::update::UNCHANGED;
use crate::config::{namespace_of, settings};
use crate::outcome::{Outcome, say, warn_of};
use crate::{counted, interrupt, places};
use anyhow::Context;
use canopy_as_user::subordinate_uids;
use canopy_index::{Index, Writer, WriterOptions};
use canopy_model::{Generation, escape};
use canopy_read::to_path;
use canopy_scan::{MountRules, Selection};
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What is known of namespaces that are followed, by their names.
struct Known(BTreeMap<String, KnownNamespace>);

/// How a namespace was when it was read last.
struct KnownNamespace {
    /// Where its root counted as being, escaped.
    root: String,
    /// Who got there.
    way: String,
    /// Described by what reads namespaces.
    kept: String,
}

impl Known {
    /// Reads what is known; what cannot be read is not.
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
    source: &'a NamespaceSource,
}

impl NamespaceState<'_> {
    fn remember(&self, now: KnownNamespace) -> anyhow::Result<()> {
        let mut all = Known::read(&self.file);
        all.0.insert(self.name.clone(), now);
        all.write(&self.file)
    }

    /// Remembers how the namespace is, and lets go how it was.
    fn replace(&self, before: Option<KnownNamespace>, now: KnownNamespace) -> anyhow::Result<()> {
        self.remember(now)?;
        if let Some(before) = before {
            (self.source.forget)(self.namespace, &before.kept);
        }
        Ok(())
    }
}

fn print_unchanged(generation: Option<Generation>) -> anyhow::Result<Outcome> {
    say(format_args!("{UNCHANGED}generation {}", generation.unwrap_or_default()))?;
    Ok(Outcome::Complete)
}

/// Carries `canopy index --follow ns:PATH` out.
#[expect(clippy::too_many_lines, reason = "one course of steps")]
pub fn run(
    index: Option<PathBuf>,
    arguments: &Arguments,
    source: &NamespaceSource,
) -> anyhow::Result<Outcome> {
    let [path] = &arguments.paths[..] else { anyhow::bail!("one namespace is followed at a time") };
    let namespace = namespace_of(path).context("a namespace is ns:PATH")?;
    let location = places::to_write(index)?;
    places::check_links(&location)?;
    interrupt::watch()?;
    let place = NamespaceState {
        file: location.join("watch").join("namespaces.json"),
        name: path.to_string_lossy().into_owned(),
        namespace,
        source,
    };
    let before = Known::read(&place.file).0.remove(&place.name);
    let asked = arguments.root.as_deref();
    let root = match ((source.root)(namespace, asked), &before) {
        // Where it was mounted before.
        (Err(_), Some(before)) if asked.is_none() => to_path(&before.root),
        (root, _) => root?,
    };
    let way = way(&root)?;
    let escaped = escape(root.as_os_str().as_bytes()).into_owned();
    let generation = match canopy_index::is_there(&location).unwrap_or(false) {
        true => {
            let index = Index::open(&location)?;
            let is_source = index.sources().iter().any(|source| source.root == escaped);
            is_source.then(|| index.generation())
        }
        false => None,
    };
    let is_known = |known: &&KnownNamespace| {
        generation.is_some() && (&known.root, &known.way) == (&escaped, &way)
    };
    let known = before.as_ref().filter(is_known);
    let (tree, changed) = match (source.follow)(namespace, known.map(|known| known.kept.as_str()))?
    {
        Followed::Unchanged(kept) => {
            if let (Some(kept), Some(before)) = (kept, before) {
                place.remember(KnownNamespace { kept, ..before })?;
            }
            return print_unchanged(generation);
        }
        Followed::Changed(tree, changed) => (tree, changed),
    };
    if changed.as_ref().is_some_and(Vec::is_empty) {
        place.replace(before, KnownNamespace { root: escaped, way, kept: tree.keep() })?;
        return print_unchanged(generation);
    }
    let mut selection = Selection::default();
    match &changed {
        Some(changed) => changed.iter().for_each(|path| selection.add(&escape(path), false)),
        None => selection.add("", true),
    }
    let threads = scan_threads(None);
    let options = WriterOptions {
        memory_bytes: arguments.memory,
        threads,
        holders: subordinate_uids(),
        copied_rows_max: arguments.copied_rows,
        keep_replaced: true,
        ..WriterOptions::default()
    };
    let mut writer = Writer::open(&location, options)?;
    anyhow::ensure!(
        !writer.has_derived_tables(),
        "the index has derived tables, which cannot be computed anew while a namespace is read: \
         index where the namespace is mounted"
    );
    let faults = Faults::default();
    let scans = Scans::new(&writer, (arguments.memory, threads), None, faults)?;
    let rules =
        MountRules::new(settings().trust_fs.clone().unwrap_or_default(), arguments.no_prune);
    let missing = scans.shortfalls(&writer, &rules);
    let about = (namespace, &*tree);
    let reading = Reading::new(&writer, &rules, about, root.clone(), arguments.record(&root))?;
    let (begun, read) = with_progress_reported(
        |_| counted(scans.counts.progress(), "entry"),
        || scans.counts.progress(),
        || reading.take_in(&mut writer, &scans, generation.is_some().then_some(&selection)),
    )?;
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
    let (published, outcome) = publish_changes(writer, None, threads)?;
    place.replace(before, KnownNamespace { root: escaped, way, kept: tree.keep() })?;
    let told = warn_of(&published);
    let counts = scans.counts;
    say(format_args!(
        "generation {}: {} in {} looked at",
        published.generation,
        counted(counts.progress(), "entry"),
        counted(counts.directories.into_inner(), "directory"),
    ))?;
    Ok(if told == Outcome::Complete { outcome } else { told })
}

/// Returns what decides who gets to a directory: the permissions of those above it.
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
