//! Sources of listings other than trees of a file system, and how a namespace becomes a source, for
//! [`scan`](mod@crate::scan) and [`follow`](crate::follow).

use crate::Context;
use crate::known::with_known;
use crate::listing::Scans;
use crate::sinks::Shards;
use canopy_index::{NewSource, ScanRecord, SelectedDirectory, SourceId, Writer};
use canopy_model::{Approach, Attributes, Audience, ClassTable, Device, SourcePathBuf, escape};
use canopy_scan::{
    Counts, FoundXattr, MountRules, Root, ScanError, ScanOptions, Selection, Subtree,
};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Opens namespaces.
pub trait Namespaces: Sync {
    /// Returns the place of the root of a namespace, absolute: the one that was asked for, or the
    /// one where the namespace is mounted.
    ///
    /// # Errors
    ///
    /// If none was asked for and the namespace is not mounted.
    fn root_of(&self, namespace: &Path, asked: Option<&Path>) -> anyhow::Result<PathBuf>;

    /// Opens a namespace.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn open(&self, namespace: &Path) -> anyhow::Result<Box<dyn ListingSource>>;

    /// Opens a namespace that is followed, unless it has not changed; nobody is kept from using it.
    /// `known` is the description that [`ListingSource::keep`] returned.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn follow(&self, namespace: &Path, known: Option<&str>) -> anyhow::Result<Followed>;

    /// Releases a state that was kept, by its description.
    fn forget(&self, namespace: &Path, known: &str);
}

/// The state of a namespace that is followed.
pub enum Followed {
    /// It has not changed. Its state may have another description from now on.
    Unchanged(Option<String>),
    /// It is open. Contains the paths of changed directories; without them, all may have changed.
    Changed(Box<dyn ListingSource>, Option<Vec<SourcePathBuf>>),
}

/// An open source of listings: a namespace, an import, later a published snapshot. Trees of a file
/// system are walked by `canopy_scan`, which can pause and resume.
pub trait ListingSource {
    /// Returns the attributes of the root, and the device of its files.
    fn about(&self) -> (Attributes, Device);

    /// Returns the users who may look up the root. `above` are those whom the directories above it
    /// let in, in the directory that it is treated as.
    fn approach(&self, above: Approach, classes: &ClassTable) -> Approach;

    /// Returns the extended attributes of the root, which `audience` may look up.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    fn xattrs(&self, audience: Audience, classes: &ClassTable) -> anyhow::Result<Vec<FoundXattr>>;

    /// Gives listings to the sinks, one thread each, and gives the sinks back. `root` is the
    /// directory that the root is treated as, `approach` who may look it up. Blocks.
    ///
    /// # Errors
    ///
    /// If the source cannot be read, or a sink takes in no more.
    fn list<'w>(
        &self,
        root: &Path,
        approach: &Approach,
        run: &SourceRun<'_>,
        sinks: Vec<Shards<'w>>,
    ) -> anyhow::Result<Vec<Shards<'w>>>;

    /// Keeps the state of the source, so that later changes can be found, and returns its
    /// description. Empty for sources that are not followed.
    fn keep(self: Box<Self>) -> String {
        String::new()
    }
}

/// How a source is listed.
pub struct SourceRun<'a> {
    /// Entries that are left out.
    pub options: &'a ScanOptions,
    /// Access classes of the index.
    pub classes: &'a ClassTable,
    /// Directories to list, if not all.
    pub part: Option<Subtree<'a>>,
    /// Counts of the run.
    pub counts: &'a Counts,
    /// Takes in errors of entries.
    pub on_error: &'a (dyn Fn(&ScanError) + Sync),
}

/// How an open namespace becomes a source.
pub(crate) struct Reading<'a> {
    cx: Context<'a>,
    tree: &'a dyn ListingSource,
    /// Place of its root.
    root: PathBuf,
    record: ScanRecord,
    /// The record of the source for the index.
    pub new: NewSource,
}

impl<'a> Reading<'a> {
    /// Finds the users who may look the root up, and applies the configuration of a namespace to
    /// `record`.
    ///
    /// # Errors
    ///
    /// If the way to the root, or its attributes, cannot be read.
    pub fn new(
        cx: &Context<'a>,
        writer: &Writer,
        rules: &MountRules,
        namespace: &Path,
        tree: &'a dyn ListingSource,
        root: PathBuf,
        mut record: ScanRecord,
    ) -> anyhow::Result<Self> {
        let above = match (root.parent(), root.file_name()) {
            (Some(above), Some(name)) => {
                let mut above = Root::open(above, writer.classes(), rules)?;
                above.approach_of(name, writer.classes())
            }
            _ => Approach::EVERYONE,
        };
        let approach = tree.approach(above, writer.classes());
        let configured = cx.site.settings.namespace(namespace);
        if let Some(configured) = configured {
            record.no_xattrs |= configured.no_xattrs;
            let excludes = configured.exclude.iter().filter(|_| !record.no_prune);
            record.excludes.extend(excludes.cloned());
        }
        let xattrs = match record.no_xattrs {
            true => Vec::new(),
            false => tree.xattrs(approach.audience, writer.classes())?,
        };
        let (attributes, dev) = tree.about();
        let new = NewSource {
            name: configured.and_then(|configured| configured.name.clone()),
            root: escape(root.as_os_str().as_bytes()).into_owned(),
            dev,
            scanned_ns: (cx.clock)(),
            attributes,
            approach,
            xattrs,
            scan: None,
        };
        Ok(Reading { cx: *cx, tree, root, record, new })
    }

    /// Begins a source and reads the namespace into it: all of it, or the selected part of a known
    /// source. Returns the number of the source, and the result of reading it.
    ///
    /// # Errors
    ///
    /// If the index cannot begin the source.
    pub fn take_in(
        &self,
        writer: &mut Writer,
        scans: &Scans<'_>,
        selection: Option<&Selection>,
    ) -> anyhow::Result<(SourceId, anyhow::Result<()>)> {
        let new = self.new.clone();
        let Some(selection) = selection else {
            let begun = writer.add_source(new)?;
            return Ok((begun, self.read(writer, scans, begun, None)));
        };
        let mut selected = Vec::new();
        selection.each(&mut |path, whole| {
            selected.push(SelectedDirectory { path: path.to_buf(), whole });
        });
        let begun = writer.refresh_source(new, selected)?;
        let read = |part: Subtree<'_>| self.read(writer, scans, begun, Some(part));
        Ok((begun, with_known(writer, begun, None, selection, read)))
    }

    fn read(
        &self,
        writer: &Writer,
        scans: &Scans<'_>,
        begun: SourceId,
        part: Option<Subtree<'_>>,
    ) -> anyhow::Result<()> {
        let root = &self.root;
        let run = SourceRun {
            options: &scans.options(&self.record, root)?,
            classes: writer.classes(),
            part,
            counts: &scans.counts,
            on_error: &|error| scans.faults.add(root, error),
        };
        let sinks = Shards::of(writer.shard_writers(begun), self.cx.cancel);
        let sinks = self.tree.list(&self.root, &self.new.approach, &run, sinks)?;
        writer.finish_shards(Shards::writers(sinks))?;
        Ok(())
    }
}
