//! Scanning the trees of one run: each becomes a source, or stays as it was.

use super::notes::{self, Notes};
use super::progress::TreeProgress;
use super::{ScanRequest, root_of};
use crate::Context;
use crate::faults::{Faults, Shortfalls};
use crate::known::scan_part;
use crate::listing::Scans;
use crate::observer::{Progress, with_progress};
use crate::sinks::damaged_file;
use crate::sources::{Namespaces, Reading};
use anyhow::Context as _;
use canopy_index::{
    NewSource, ScanRecord, SelectedDirectory, SourceId, Unfinished, UnfinishedSource, Writer,
};
use canopy_model::{SourcePath, SourcePathBuf, escape, unescape};
use canopy_scan::{MountRules, Root, Selection};
use canopy_site::{check_links, namespace_of};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// One run over all its sources.
pub(super) struct Run<'a> {
    cx: Context<'a>,
    request: &'a ScanRequest,
    namespaces: Option<&'a dyn Namespaces>,
    pub(super) rules: MountRules,
    pub(super) scans: Scans<'a>,
    progress: TreeProgress,
}

impl<'a> Run<'a> {
    /// Prepares a run that goes on with another one, if there is one, and for which this was asked.
    pub(super) fn new(
        cx: &Context<'a>,
        writer: &Writer,
        request: &'a ScanRequest,
        asked: &str,
        resumed: Option<&Unfinished>,
        namespaces: Option<&'a dyn Namespaces>,
        root_of: &dyn Fn(&Path) -> String,
    ) -> anyhow::Result<Self> {
        let begun_ns = resumed.map(|resumed| resumed.begun_ns);
        let faults = Faults::new(request.errors.as_deref(), writer.path(), begun_ns)?;
        let mut scans = Scans::new(
            cx,
            writer,
            request.memory_bytes,
            request.threads,
            request.rate_max,
            faults,
        )?;
        if let Some(before) = resumed {
            notes::add_counts(&scans.counts, before);
        }
        let notes = Notes::new(cx, asked.to_owned(), request.noted_every, resumed);
        let notes = scans.notes.insert(notes);
        let left = request.paths.iter().filter(|path| !notes.is_done(&root_of(path)));
        let progress = TreeProgress::new(cx, writer.path(), left.count());
        let rules = cx.mount_rules(request.no_prune);
        Ok(Run { cx: *cx, request, namespaces, rules, scans, progress })
    }

    /// Scans all trees while the progress is shown; returns those that failed.
    pub(super) fn scan(
        &self,
        writer: &mut Writer,
        resumed: Option<&Unfinished>,
    ) -> anyhow::Result<Vec<(PathBuf, anyhow::Error)>> {
        let source = resumed.and_then(|it| it.source.as_ref());
        with_progress(self.cx.observer, self, || self.index_all(writer, source))
    }

    /// Returns how a tree is scanned: by the options and the configuration, and with `--incremental`
    /// in the layout that it has.
    fn record(&self, writer: &Writer, path: &Path) -> ScanRecord {
        let mut record = self.request.record(&self.cx.site.settings, path);
        let root = path.canonicalize().map(|root| escape(root.as_os_str().as_bytes()).into_owned());
        if self.request.layout.is_none()
            && self.request.incremental
            && let Ok(root) = root
            && let Some((_, Some(known))) =
                writer.sources().into_iter().find(|(source, _)| source.root == root)
        {
            record.layout = known.layout;
        }
        record
    }

    pub(super) fn notes(&self) -> &Notes<'a> {
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
        for path in &self.request.paths {
            let root = root_of(path, self.namespaces, self.request.root.as_deref());
            if !self.notes().is_done(&root) && !self.cx.cancel.is_requested() {
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
        let identity = notes::identity(&root)?;
        anyhow::ensure!(identity == source.identity, "{} was replaced", path.display());
        let record = new.scan.clone().unwrap_or_default();
        let mut selection = Selection::default();
        for directory in &source.remaining {
            selection.add(directory.path.as_path(), directory.is_whole());
        }
        self.progress.begin(&root.path, &source.root, &self.scans.counts);
        let begun = writer.resume_source(new, source)?;
        if source.trusts_times {
            writer.trust_directory_times(begun)?;
        }
        let partial = self.scans.counts.partial.load(Ordering::Relaxed);
        self.notes().begin(source.clone(), before.clone(), partial);
        let scanned = scan_part(writer, &self.scans, begun, root, &selection, &self.rules, &record);
        if source.is_partial || self.scans.counts.partial.load(Ordering::Relaxed) > partial {
            writer.note_partial(begun);
        }
        self.ended(writer, begun, &source.root, &before, &source.missing, scanned)
    }

    /// Scans a tree and adds it to the next generation. After an error, the generation has nothing of
    /// it. If the index has damaged data of the tree, lists all of it.
    fn index(&self, writer: &mut Writer, path: &Path) -> anyhow::Result<()> {
        if let (Some(source), Some(namespace)) = (self.namespaces, namespace_of(path)) {
            return self.index_namespace(writer, source, namespace);
        }
        let counted = self.scans.counts.now();
        let indexed = self.index_tree(writer, path, self.request.incremental);
        match indexed.as_ref().err().and_then(damaged_file) {
            Some(file) if self.request.incremental && !self.cx.cancel.is_requested() => {
                let (file, path) = (file.display(), path.display());
                self.cx.note(format_args!("{file} is damaged: all of {path} is scanned anew"));
            }
            _ => return indexed,
        }
        self.scans.counts.set_back(counted);
        self.index_tree(writer, path, false)
    }

    fn index_tree(&self, writer: &mut Writer, path: &Path, compares: bool) -> anyhow::Result<()> {
        check_links(path)?;
        let before = self.scans.shortfalls(writer, &self.rules);
        let record = self.record(writer, path);
        let (root, new) = self.scans.open(writer, path, &self.rules, &record)?;
        let escaped = root.escaped_path();
        let record = new.scan.clone().unwrap_or_default();
        self.progress.begin(&root.path, &escaped, &self.scans.counts);
        let known = writer.sources().into_iter().find(|(source, _)| source.root == new.root);
        let keeps_name = known.is_some() && self.request.incremental;
        let has_layout = |known: &Option<ScanRecord>| {
            known.as_ref().map(|known| known.layout).unwrap_or_default() == record.layout
        };
        let known = known.filter(|(_, known)| compares && has_layout(known));
        let is_same = known.as_ref().is_some_and(|(_, known)| known.as_ref() == Some(&record));
        let partial = self.scans.counts.partial.load(Ordering::Relaxed);
        let source = UnfinishedSource {
            root: escaped.clone(),
            identity: notes::identity(&root)?,
            scanned_ns: new.scanned_ns,
            trusts_times: self.request.trusts_directory_times && is_same,
            ..UnfinishedSource::default()
        };
        self.notes().begin(source, before.clone(), partial);
        let (begun, scanned) = if let Some((known, _)) = known {
            if let Some(name) = self.request.name.as_ref().filter(|&name| *name != known.name) {
                writer.rename_source(&known.name, name)?;
            }
            writer.check_files(known.id, true)?;
            let begun = writer.refresh_source(
                new,
                [SelectedDirectory { path: SourcePathBuf::root(), whole: true }],
            )?;
            if self.request.trusts_directory_times && !is_same {
                self.cx.note(format_args!(
                    "all directories of {} are read: the index has some as other options made \
                     them, or not all of some",
                    path.display()
                ));
            }
            (begun, self.scan_again(writer, begun, is_same, root, &record))
        } else {
            let name = match keeps_name {
                true => self.request.name.clone(),
                false => self.request.name_of(&self.cx.site.settings, path),
            };
            let begun = writer.add_source(NewSource { name, ..new })?;
            (begun, self.scans.scan(writer, begun, root, None, &self.rules, &record))
        };
        if self.scans.counts.partial.load(Ordering::Relaxed) > partial {
            writer.note_partial(begun);
        }
        self.ended(writer, begun, &escaped, &before, &[], scanned)
    }

    /// Scans a tree that is a source; `is_same` says whether the index has it by the same options.
    fn scan_again(
        &self,
        writer: &mut Writer,
        begun: SourceId,
        is_same: bool,
        root: Root,
        record: &ScanRecord,
    ) -> anyhow::Result<()> {
        if self.request.trusts_directory_times && is_same {
            writer.trust_directory_times(begun)?;
        }
        let mut whole = Selection::default();
        whole.add(SourcePath::ROOT, true);
        scan_part(writer, &self.scans, begun, root, &whole, &self.rules, record)
    }

    /// Reads the records of a namespace and adds it to the next generation.
    fn index_namespace(
        &self,
        writer: &mut Writer,
        source: &dyn Namespaces,
        namespace: &Path,
    ) -> anyhow::Result<()> {
        let root = source.root_of(namespace, self.request.root.as_deref())?;
        let before = self.scans.shortfalls(writer, &self.rules);
        let tree = source.open(namespace)?;
        let record = self.request.record(&self.cx.site.settings, &root);
        let (cx, rules) = (&self.cx, &self.rules);
        let mut reading = Reading::new(cx, writer, rules, namespace, &*tree, root.clone(), record)?;
        let escaped = reading.new.root.clone();
        self.progress.begin(&root, &escaped, &self.scans.counts);
        let known = writer.sources().into_iter().find(|(source, _)| source.root == escaped);
        let known = known.filter(|_| self.request.incremental);
        let mut whole = Selection::default();
        whole.add(SourcePath::ROOT, true);
        let selection = known.is_some().then_some(&whole);
        if let Some(name) = &self.request.name {
            if let Some((known, _)) = known.filter(|(known, _)| known.name != *name) {
                writer.rename_source(&known.name, name)?;
            }
            reading.new.name = Some(name.clone());
        }
        let (begun, read) = reading.take_in(writer, &self.scans, selection)?;
        self.ended(writer, begun, &escaped, &before, &[], read)
    }

    /// Records the result of the scan of a source. `interrupted` is what was missing before an
    /// interruption.
    fn ended(
        &self,
        writer: &mut Writer,
        source: SourceId,
        root: &str,
        before: &Shortfalls,
        interrupted: &[String],
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

impl Progress for Run<'_> {
    fn line(&self, _: Duration) -> String {
        self.progress.shown(&self.scans)
    }

    fn done(&self) -> u64 {
        self.scans.counts.progress()
    }
}
