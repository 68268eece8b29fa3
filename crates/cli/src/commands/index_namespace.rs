//! Reading the records of a namespace into the index, for `canopy index ns:PATH` and for what
//! follows one (`following`).

use super::building::Shards;
use super::scanning::Scans;
use super::update::with_known;
use crate::config::settings;
use crate::options::now_ns;
use canopy_index::{NewSource, ScanRecord, Writer};
use canopy_model::{Approach, Attributes, Audience, ClassTable, Grant, escape};
use canopy_scan::{
    Counts, FoundXattr, MountRules, Root, ScanError, ScanOptions, Selection, Subtree,
};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What reads namespaces, which only `canopy-ns` has.
pub struct NamespaceSource {
    /// Returns where the root of a namespace is, absolute: where that was asked for, or where the
    /// namespace is mounted.
    pub root: fn(&Path, Option<&Path>) -> anyhow::Result<PathBuf>,
    /// Opens a namespace.
    pub open: fn(&Path) -> anyhow::Result<Box<dyn NamespaceTree>>,
    /// Opens one that is followed, unless it is as it was; nobody is kept from using it. Knows how
    /// it was from what [`NamespaceTree::keep`] has said of it.
    pub follow: fn(&Path, Option<&str>) -> anyhow::Result<Followed>,
    /// Lets go what was kept, as [`NamespaceTree::keep`] has said.
    pub forget: fn(&Path, &str),
}

/// What has become of a namespace that is followed.
pub enum Followed {
    /// Nothing; how it was may have another description from now on.
    Unchanged(Option<String>),
    /// It is open. Of the directories that have changed the paths below the root are known, or all
    /// may have.
    Changed(Box<dyn NamespaceTree>, Option<Vec<Vec<u8>>>),
}

/// An open namespace, of which all records are read as they are at one moment.
pub trait NamespaceTree {
    /// Returns the attributes of its root, and the device of its files.
    fn about(&self) -> (Attributes, u64);
    /// Returns whether it is mounted so that nobody but root gets in, whatever permissions say.
    fn is_private(&self) -> bool;
    /// Returns the extended attributes of the root, whom `audience` may look up.
    fn xattrs(&self, audience: Audience, classes: &ClassTable) -> anyhow::Result<Vec<FoundXattr>>;
    /// Gives listings to the sinks, one thread each, and gives the sinks back. `root` is where the
    /// root counts as being, `approach` who may look it up. Blocks.
    fn scan<'w>(
        &self,
        root: &Path,
        approach: &Approach,
        run: &NamespaceScan<'_>,
        sinks: Vec<Shards<'w>>,
    ) -> anyhow::Result<Vec<Shards<'w>>>;
    /// Keeps how it is, so that what changes next can be told, and returns a description of that.
    fn keep(self: Box<Self>) -> String;
}

/// How a namespace is read.
pub struct NamespaceScan<'a> {
    /// What is left out.
    pub options: &'a ScanOptions,
    /// Who sees what.
    pub classes: &'a ClassTable,
    /// What is read, if that is not all.
    pub part: Option<Subtree<'a>>,
    /// What was read so far.
    pub counts: &'a Counts,
    /// Takes in what is wrong with entries.
    pub on_error: &'a (dyn Fn(&ScanError) + Sync),
}

/// How an open namespace becomes a source.
pub(super) struct Reading<'a> {
    tree: &'a dyn NamespaceTree,
    /// Where its root counts as being.
    root: PathBuf,
    record: ScanRecord,
    /// What the index is to keep of it.
    pub new: NewSource,
}

impl<'a> Reading<'a> {
    /// Finds out who may look the root up, and what is configured of a namespace besides `record`.
    pub fn new(
        writer: &Writer,
        rules: &MountRules,
        (namespace, tree): (&Path, &'a dyn NamespaceTree),
        root: PathBuf,
        mut record: ScanRecord,
    ) -> anyhow::Result<Self> {
        let mut approach = match (root.parent(), root.file_name()) {
            (Some(above), Some(name)) => {
                let mut above = Root::open(above, writer.classes(), rules)?;
                above.approach_of(name, writer.classes())
            }
            _ => Approach::EVERYONE,
        };
        if tree.is_private() {
            let nobody = [(Grant::nobody(), 0)];
            approach.audience = writer.classes().narrowed_audience(approach.audience, &nobody);
        }
        let configured = settings().namespace(namespace);
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
            scanned_ns: now_ns(),
            attributes,
            approach,
            xattrs,
            scan: None,
        };
        Ok(Reading { tree, root, record, new })
    }

    /// Begins a source and reads the namespace into it: all of it, or what is selected of one that
    /// the index has. Returns the source's number and how reading it ended.
    pub fn take_in(
        &self,
        writer: &mut Writer,
        scans: &Scans,
        selection: Option<&Selection>,
    ) -> anyhow::Result<(u32, anyhow::Result<()>)> {
        let new = self.new.clone();
        let Some(selection) = selection else {
            let begun = writer.add_source(new)?;
            return Ok((begun, self.read(writer, scans, begun, None)));
        };
        let mut selected = Vec::new();
        selection.each(&mut |path, whole| selected.push((path.to_owned(), whole)));
        let begun = writer.refresh_source(new, selected)?;
        let read = |part: Subtree<'_>| self.read(writer, scans, begun, Some(part));
        Ok((begun, with_known(writer, (begun, None), selection, read)))
    }

    fn read(
        &self,
        writer: &Writer,
        scans: &Scans,
        begun: u32,
        part: Option<Subtree<'_>>,
    ) -> anyhow::Result<()> {
        let root = &self.root;
        let scan = NamespaceScan {
            options: &scans.options(&self.record, root)?,
            classes: writer.classes(),
            part,
            counts: &scans.counts,
            on_error: &|error| scans.faults.add(root, error),
        };
        let sinks = writer.shard_writers(begun).into_iter().map(Shards).collect();
        let sinks = self.tree.scan(&self.root, &self.new.approach, &scan, sinks)?;
        writer.finish_shards(sinks.into_iter().map(|sink| sink.0).collect())?;
        Ok(())
    }
}
