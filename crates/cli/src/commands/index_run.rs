//! Scanning the trees of one run of `canopy index`: each becomes a source, or stays as it was.

use super::building::{damaged_file, with_progress_reported};
use super::index::{Arguments, root_of};
use super::index_faults::{Faults, Shortfalls};
use super::index_namespace::{NamespaceSource, Reading};
use super::index_progress::Progress;
use super::resuming::{self, Notes};
use super::scanning::Scans;
use super::update::scan_part;
use crate::config::{namespace_of, settings};
use crate::outcome::note;
use crate::{interrupt, places};
use anyhow::Context;
use canopy_index::{NewSource, ScanRecord, Unfinished, UnfinishedSource, Writer};
use canopy_model::{escape, unescape};
use canopy_scan::{MountRules, Root, Selection};
use std::ffi::OsStr;
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// What the sources of one run have in common.
pub(super) struct Run<'a> {
    pub(super) arguments: &'a Arguments,
    namespaces: Option<&'a NamespaceSource>,
    pub(super) rules: MountRules,
    pub(super) scans: Scans,
    progress: Progress,
}

impl<'a> Run<'a> {
    /// Prepares a run that goes on with another one, if there is one, and for which this was asked.
    pub(super) fn new(
        writer: &Writer,
        (arguments, threads): (&'a Arguments, usize),
        (asked, resumed): (&str, Option<&Unfinished>),
        (namespaces, root_of): (Option<&'a NamespaceSource>, &dyn Fn(&Path) -> String),
    ) -> anyhow::Result<Self> {
        let begun_ns = resumed.map(|resumed| resumed.begun_ns);
        let faults = Faults::new(arguments.errors.as_deref(), writer.path(), begun_ns)?;
        let memory = (arguments.memory, threads);
        let mut scans = Scans::new(writer, memory, arguments.max_rate, faults)?;
        if let Some(before) = resumed {
            resuming::add_counts(&scans.counts, before);
        }
        let noted_every = arguments.noted_every.map(NonZeroU64::get);
        let notes = scans.notes.insert(Notes::new(asked.to_owned(), noted_every, resumed));
        let left = arguments.paths.iter().filter(|path| !notes.is_done(&root_of(path)));
        let progress = Progress::new(writer.path(), left.count());
        let trusted = settings().trust_fs.clone().unwrap_or_default();
        let rules = MountRules::new(trusted, arguments.no_prune);
        Ok(Run { arguments, namespaces, rules, scans, progress })
    }

    /// Scans all trees while the progress is shown; returns those that failed.
    pub(super) fn scan(
        &self,
        writer: &mut Writer,
        resumed: Option<&Unfinished>,
    ) -> anyhow::Result<Vec<(PathBuf, anyhow::Error)>> {
        let mut index_all = || self.index_all(writer, resumed.and_then(|it| it.source.as_ref()));
        match self.arguments.quiet {
            true => index_all(),
            false => {
                let done_so_far = || self.scans.counts.progress();
                with_progress_reported(|_| self.progress.shown(&self.scans), done_so_far, index_all)
            }
        }
    }

    /// Returns how a tree is scanned: by the options and the configuration, and with `--incremental`
    /// in the layout that it has.
    fn record(&self, writer: &Writer, path: &Path) -> ScanRecord {
        let mut record = self.arguments.record(path);
        let root = path.canonicalize().map(|root| escape(root.as_os_str().as_bytes()).into_owned());
        if self.arguments.layout.is_none()
            && self.arguments.incremental
            && let Ok(root) = root
            && let Some((_, Some(known))) =
                writer.sources().into_iter().find(|(source, _)| source.root == root)
        {
            record.layout = known.layout;
        }
        record
    }

    pub(super) fn notes(&self) -> &Notes {
        self.scans.notes.as_ref().expect("a run has notes")
    }

    /// Scans all trees, first the rest of the one that was interrupted; returns those that failed.
    fn index_all(
        &self,
        writer: &mut Writer,
        interrupted: Option<&UnfinishedSource>,
    ) -> anyhow::Result<Vec<(PathBuf, anyhow::Error)>> {
        if let Some(source) = interrupted {
            let kept = "nothing was published; what was scanned is kept: the same command goes on, \
                        with --restart it scans all anew";
            self.go_on(writer, source).context(kept)?;
        }
        let mut failed = Vec::new();
        for path in &self.arguments.paths {
            let root = root_of(path, self.namespaces, self.arguments.root.as_deref());
            if !self.notes().is_done(&root) && !interrupt::asked() {
                let error = self.index(writer, path).err();
                failed.extend(error.map(|error| (path.clone(), error)));
            }
        }
        Ok(failed)
    }

    /// Scans the rest of a tree whose scan was interrupted.
    fn go_on(&self, writer: &mut Writer, source: &UnfinishedSource) -> anyhow::Result<()> {
        let path = PathBuf::from(OsStr::from_bytes(&unescape(&source.root)));
        let before = self.scans.shortfalls(writer, &self.rules);
        let record = self.record(writer, &path);
        let (root, new) = self.scans.open(writer, &path, &self.rules, &record)?;
        let identity = resuming::identity(&root)?;
        anyhow::ensure!(identity == source.identity, "{} was replaced", path.display());
        let record = new.scan.clone().unwrap_or_default();
        let mut selection = Selection::default();
        for directory in &source.remaining {
            selection.add(&directory.path, directory.is_whole());
        }
        self.progress.begin(&root.path, &source.root, &self.scans.counts);
        let begun = writer.resume_source(new, source)?;
        if source.trusts_times {
            writer.trust_directory_times(begun)?;
        }
        let partial = self.scans.counts.partial.load(Ordering::Relaxed);
        self.notes().begin(source.clone(), before.clone(), partial);
        let part = (root, &selection);
        let scanned = scan_part(writer, &self.scans, begun, part, &self.rules, &record);
        if source.is_partial || self.scans.counts.partial.load(Ordering::Relaxed) > partial {
            writer.note_partial(begun);
        }
        self.ended(writer, begun, &source.root, (&before, &source.missing), scanned)
    }

    /// Scans a tree and adds it to what is published next. After an error, nothing of it is. Where
    /// the index has damaged data of it, all of it is listed anew.
    fn index(&self, writer: &mut Writer, path: &Path) -> anyhow::Result<()> {
        if let (Some(source), Some(namespace)) = (self.namespaces, namespace_of(path)) {
            return self.index_namespace(writer, source, namespace);
        }
        let counted = self.scans.counts.now();
        let indexed = self.index_tree(writer, path, self.arguments.incremental);
        match indexed.as_ref().err().and_then(damaged_file) {
            Some(file) if self.arguments.incremental && !interrupt::asked() => {
                let (file, path) = (file.display(), path.display());
                note(format_args!("{file} is damaged: all of {path} is scanned anew"));
            }
            _ => return indexed,
        }
        self.scans.counts.set_back(counted);
        self.index_tree(writer, path, false)
    }

    fn index_tree(&self, writer: &mut Writer, path: &Path, compares: bool) -> anyhow::Result<()> {
        places::check_links(path)?;
        let before = self.scans.shortfalls(writer, &self.rules);
        let record = self.record(writer, path);
        let (root, new) = self.scans.open(writer, path, &self.rules, &record)?;
        let escaped = root.escaped_path();
        let record = new.scan.clone().unwrap_or_default();
        self.progress.begin(&root.path, &escaped, &self.scans.counts);
        let known = writer.sources().into_iter().find(|(source, _)| source.root == new.root);
        let keeps_name = known.is_some() && self.arguments.incremental;
        let has_layout = |known: &Option<ScanRecord>| {
            known.as_ref().map(|known| known.layout).unwrap_or_default() == record.layout
        };
        let known = known.filter(|(_, known)| compares && has_layout(known));
        let is_same = known.as_ref().is_some_and(|(_, known)| known.as_ref() == Some(&record));
        let partial = self.scans.counts.partial.load(Ordering::Relaxed);
        let source = UnfinishedSource {
            root: escaped.clone(),
            identity: resuming::identity(&root)?,
            scanned_ns: new.scanned_ns,
            trusts_times: self.arguments.trust_directory_times && is_same,
            ..UnfinishedSource::default()
        };
        self.notes().begin(source, before.clone(), partial);
        let (begun, scanned) = if let Some((known, _)) = known {
            if let Some(name) = self.arguments.name.as_ref().filter(|&name| *name != known.name) {
                writer.rename_source(&known.name, name)?;
            }
            writer.check_files(known.id, true)?;
            let begun = writer.refresh_source(new, [(String::new(), true)])?;
            if self.arguments.trust_directory_times && !is_same {
                note(format_args!(
                    "all directories of {} are read: the index has some as other options made \
                     them, or not all of some",
                    path.display()
                ));
            }
            (begun, self.scan_again(writer, (begun, is_same), root, &record))
        } else {
            let name = match keeps_name {
                true => self.arguments.name.clone(),
                false => self.arguments.name_of(path),
            };
            let begun = writer.add_source(NewSource { name, ..new })?;
            (begun, self.scans.scan(writer, begun, (root, None), &self.rules, &record))
        };
        if self.scans.counts.partial.load(Ordering::Relaxed) > partial {
            writer.note_partial(begun);
        }
        self.ended(writer, begun, &escaped, (&before, &[]), scanned)
    }

    /// Scans a tree that is a source; `is_same` says whether the index has it by the same options.
    fn scan_again(
        &self,
        writer: &mut Writer,
        (begun, is_same): (u32, bool),
        root: Root,
        record: &ScanRecord,
    ) -> anyhow::Result<()> {
        if self.arguments.trust_directory_times && is_same {
            writer.trust_directory_times(begun)?;
        }
        let mut whole = Selection::default();
        whole.add("", true);
        scan_part(writer, &self.scans, begun, (root, &whole), &self.rules, record)
    }

    /// Reads the records of a namespace likewise.
    fn index_namespace(
        &self,
        writer: &mut Writer,
        source: &NamespaceSource,
        namespace: &Path,
    ) -> anyhow::Result<()> {
        let root = (source.root)(namespace, self.arguments.root.as_deref())?;
        let before = self.scans.shortfalls(writer, &self.rules);
        let tree = (source.open)(namespace)?;
        let record = self.arguments.record(&root);
        let about = (namespace, &*tree);
        let mut reading = Reading::new(writer, &self.rules, about, root.clone(), record)?;
        let escaped = reading.new.root.clone();
        self.progress.begin(&root, &escaped, &self.scans.counts);
        let known = writer.sources().into_iter().find(|(source, _)| source.root == escaped);
        let known = known.filter(|_| self.arguments.incremental);
        let mut whole = Selection::default();
        whole.add("", true);
        let selection = known.is_some().then_some(&whole);
        if let Some(name) = &self.arguments.name {
            if let Some((known, _)) = known.filter(|(known, _)| known.name != *name) {
                writer.rename_source(&known.name, name)?;
            }
            reading.new.name = Some(name.clone());
        }
        let (begun, read) = reading.take_in(writer, &self.scans, selection)?;
        self.ended(writer, begun, &escaped, (&before, &[]), read)
    }

    /// Notes how the scan of a source ended, of which this was missing when it was interrupted.
    fn ended(
        &self,
        writer: &mut Writer,
        source: u32,
        root: &str,
        (before, interrupted): (&Shortfalls, &[String]),
        scanned: anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.notes().end(scanned.is_ok());
        match scanned {
            Ok(()) => {
                let mut missing = interrupted.to_vec();
                missing.extend(self.scans.shortfalls(writer, &self.rules).since(before));
                if !missing.is_empty() {
                    writer.record_incomplete(root, missing.join("; "));
                }
                writer.forget_failure(root);
            }
            Err(_) => writer.abandon(source),
        }
        scanned
    }
}
