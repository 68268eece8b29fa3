//! Namespaces as sources of the index: `canopy index ns:PATH`. Records become listings, one a
//! directory, with the users who may see them; no mount is asked.
//!
//! 1. Threads share the directories (`Thread::read`). They read a part of a large directory at a
//!    time, so that few subdirectories wait.
//! 2. Its own permissions, and the users who may look it up, decide who sees a directory, as in a
//!    scan. All records are of one moment, so nothing has to be looked at again.
//!
//! 3. If a namespace is followed, only selected directories are listed, and directories that differ
//!    from the known ones, with all below them. `canopy_scan::Selection` has the rules.
//!
//! Its invariant: names and places in records cannot lead astray. Each directory is entered once,
//! and names are single components.

use crate::place;
use crate::records::attributes;
use crate::viewed::{self, Known as KnownState, Now, Viewed};
use anyhow::{Context, bail};
use canopy_ingest::{Followed, ListingSource, Namespaces, Shards, SourceRun, Stopped};
use canopy_model::{
    Access, Acl, Approach, Attributes, Audience, ClassTable, Device, Grant, Listing, Permissions,
    Rows, Sink, SourcePathBuf, Xattr, escape,
};
use canopy_namespace::inode::flag;
use canopy_namespace::{FileId, Inode, ROOT, ReadView};
use canopy_scan::{Fault, FoundXattr, Known, ScanError, Selection, Stack, Step, share};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Entries after which the listing of a directory is handed over and goes on as another part.
const PART_ROWS: usize = 64 * 1024;

/// Bytes of values of one inode after which the others are left out, as in a scan.
const VALUES_BYTES_MAX: usize = 1 << 20;

/// If more directories have changed, all are looked at.
const CHANGED_MAX: usize = 100_000;

/// Opens namespaces for the index.
pub struct Source;

impl Namespaces for Source {
    fn root_of(&self, namespace: &Path, asked: Option<&Path>) -> anyhow::Result<PathBuf> {
        root_of(namespace, asked)
    }

    fn open(&self, namespace: &Path) -> anyhow::Result<Box<dyn ListingSource>> {
        let opened = || -> anyhow::Result<Tree> {
            let viewed = Viewed::open(namespace)?;
            let root = viewed.view.root()?;
            Ok(Tree { viewed, root, namespace: namespace.to_owned() })
        };
        Ok(Box::new(opened().map_err(|error| place::advised(Some(namespace), error))?))
    }

    fn follow(&self, namespace: &Path, known: Option<&str>) -> anyhow::Result<Followed> {
        follow_known(namespace, known).map_err(|error| place::advised(Some(namespace), error))
    }

    fn forget(&self, namespace: &Path, known: &str) {
        viewed::forget(namespace, known);
    }
}

/// Returns where the root of a namespace is.
fn root_of(namespace: &Path, asked: Option<&Path>) -> anyhow::Result<PathBuf> {
    let place = match (asked, viewed::mounted(namespace)?) {
        (Some(asked), _) => asked.to_owned(),
        (None, Some(mount)) => PathBuf::from(OsStr::from_bytes(&mount.point)),
        (None, None) => {
            place::check(namespace)?;
            bail!("{} is not mounted: say with --root where its files will be", namespace.display())
        }
    };
    let absolute = std::path::absolute(&place)?;
    let (Some(above), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Ok(absolute);
    };
    // The links on the way are followed as a scan does; what lies there may be missing.
    match absolute.canonicalize() {
        Ok(real) => Ok(real),
        Err(_) => Ok(above.canonicalize().with_context(|| above.display().to_string())?.join(name)),
    }
}

/// Opens a namespace unless nothing has changed since `known`.
fn follow_known(namespace: &Path, known: Option<&str>) -> anyhow::Result<Followed> {
    let known = known.and_then(KnownState::parse);
    Ok(match Viewed::follow(namespace, known)? {
        Now::Same(renewed) => Followed::Unchanged(renewed.map(|known| known.to_string())),
        Now::Other(viewed, before) => {
            let changed = match before {
                Some(before) => viewed.view.changed_directories(&before, CHANGED_MAX)?,
                None => None,
            };
            let root = viewed.view.root()?;
            let namespace = namespace.to_owned();
            let escaped = |path: Vec<u8>| SourcePathBuf::escaped(escape(&path).into_owned());
            let changed = changed.map(|paths| paths.into_iter().map(escaped).collect());
            Followed::Changed(Box::new(Tree { viewed: *viewed, root, namespace }), changed)
        }
    })
}

/// A namespace that is to be indexed.
struct Tree {
    viewed: Viewed,
    root: Inode,
    /// The namespace, as errors call it.
    namespace: PathBuf,
}

impl ListingSource for Tree {
    fn about(&self) -> (Attributes, Device) {
        let dev = self.viewed.mount.as_ref().map_or(Device(0), |mount| mount.dev);
        (attributes(&self.root), dev)
    }

    fn approach(&self, mut above: Approach, classes: &ClassTable) -> Approach {
        let mount = self.viewed.mount.as_ref();
        // Nobody but root gets into such a mount, whatever permissions say.
        if mount.is_some_and(|mount| !mount.has_option("allow_other")) {
            let nobody = [(Grant::nobody(), 0)];
            above.audience = classes.narrowed_audience(above.audience, &nobody);
        }
        above
    }

    fn xattrs(&self, audience: Audience, classes: &ClassTable) -> anyhow::Result<Vec<FoundXattr>> {
        let mut found = Vec::new();
        let mut read = XattrReader::default();
        read.read(&self.viewed.view, &self.root)?;
        read.found(&attributes(&self.root), audience, classes, |xattr| {
            let value = xattr.value.map(|(value, audience)| (value.to_vec(), audience));
            found.push((xattr.key.to_owned(), value));
        });
        Ok(found)
    }

    fn keep(self: Box<Self>) -> String {
        self.viewed.keep().map(|known| known.to_string()).unwrap_or_default()
    }

    fn list<'w>(
        &self,
        root: &Path,
        approach: &Approach,
        run: &SourceRun<'_>,
        sinks: Vec<Shards<'w>>,
    ) -> anyhow::Result<Vec<Shards<'w>>> {
        let walk = Walk {
            view: &self.viewed.view,
            dev: self.about().1,
            root: escape(root.as_os_str().as_bytes()).into_owned(),
            run,
            known: run.part.map(|part| part.known),
            entered: Mutex::new(HashSet::from([ROOT])),
        };
        let access = walk.access(&self.root, approach)?;
        let first = Arc::new(Directory {
            above: None,
            name: Box::default(),
            depth: 0,
            path_bytes: 0,
            attributes: attributes(&self.root),
            access,
        });
        let selected = match run.part {
            Some(part) => Selected::Part(part.selection),
            None => Selected::Whole,
        };
        let Some(selected) = walk.settle(&first, selected) else { return Ok(sinks) };
        let first = Task { directory: first, after: None, part: 0, selected };
        let (done, _) =
            share(vec![vec![first]], sinks, |sink, stack| Thread::new(&walk, sink, stack).run());
        let done: anyhow::Result<_> = done.into_iter().collect();
        done.map_err(|error| place::advised(Some(&self.namespace), error))
    }
}

/// A directory whose entries are read.
struct Directory {
    /// The directory that it is in; the root has none.
    above: Option<Arc<Directory>>,
    /// Its name there, escaped.
    name: Box<str>,
    depth: u32,
    /// Length of its path below the root, escaped.
    path_bytes: usize,
    attributes: Attributes,
    access: Access,
}

impl Directory {
    /// Returns the path below the root, escaped.
    fn path(&self) -> SourcePathBuf {
        let way = std::iter::successors(Some(self), |directory| directory.above.as_deref());
        let mut names: Vec<&str> =
            way.take(self.depth as usize).map(|directory| &*directory.name).collect();
        names.reverse();
        SourcePathBuf::escaped(names.join("/"))
    }

    fn path_bytes_of(&self, name: &str) -> usize {
        self.path_bytes + usize::from(self.depth > 0) + name.len()
    }
}

/// A directory to read, from the start or behind a name.
struct Task<'a> {
    directory: Arc<Directory>,
    after: Option<Vec<u8>>,
    part: u32,
    selected: Selected<'a>,
}

/// The part of a directory to list.
#[derive(Clone, Copy)]
enum Selected<'a> {
    /// It and all below.
    Whole,
    /// The selected directories.
    Part(&'a Selection),
    /// It and all below, unless it is as it was known.
    IfChanged,
}

struct Walk<'a> {
    view: &'a ReadView,
    dev: Device,
    /// Absolute path of the root, escaped.
    root: String,
    run: &'a SourceRun<'a>,
    /// Known listings of the index, if only a part is listed.
    known: Option<&'a dyn Known>,
    /// Directories that were met.
    entered: Mutex<HashSet<FileId>>,
}

impl<'a> Walk<'a> {
    /// Returns what of a directory is listed: of one that is not as it was known all that is below
    /// it, since others may see that. None for nothing.
    fn settle(&self, directory: &Directory, selected: Selected<'a>) -> Option<Selected<'a>> {
        let Some(known) = self.known else { return Some(Selected::Whole) };
        let is_whole = match selected {
            Selected::Whole => true,
            Selected::Part(selection) => selection.is_whole(),
            Selected::IfChanged => false,
        };
        if is_whole {
            return Some(Selected::Whole);
        }
        let path = directory.path();
        if known.has(path.as_path(), self.dev, directory.attributes.ino, &directory.access) {
            return Some(selected).filter(|selected| matches!(selected, Selected::Part(_)));
        }
        known.replaces(path.as_path());
        Some(Selected::Whole)
    }

    /// Returns whether an entry is left out.
    fn leaves_out(&self, directory: &Directory, name: &[u8]) -> bool {
        self.run.options.excludes.matches(name, || {
            let above = canopy_model::unescape(directory.path().as_str()).into_owned();
            if above.is_empty() { name.to_vec() } else { [&above, &b"/"[..], name].concat() }
        })
    }

    /// Returns the access to a directory for users with this approach.
    fn access(&self, inode: &Inode, approach: &Approach) -> canopy_namespace::Result<Access> {
        let acl = match inode.has(flag::XATTRS) {
            true => self.view.xattr(inode.id, Acl::XATTR_NAME.as_bytes())?,
            false => None,
        };
        let acl = acl.map(|acl| Acl::decode(&acl));
        let attributes = attributes(inode);
        let permissions = Permissions::of_inode(&attributes, acl.as_ref().map(|acl| acl.as_ref()));
        Ok(self.run.classes.access(approach, permissions))
    }

    /// Notes that something is wrong with an entry of a directory.
    fn report(&self, directory: &Directory, name: &[u8], fault: Fault) {
        let path = directory.path().as_path().child(&escape(name));
        let counts = self.run.counts;
        let count = match fault {
            Fault::LongPath => &counts.long_paths,
            _ => &counts.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        (self.run.on_error)(&ScanError { path, fault });
    }
}

struct Thread<'a, 's, S> {
    walk: &'a Walk<'s>,
    stack: &'a Stack<'a, Task<'s>>,
    sink: S,
    rows: Rows,
    subdirs: Vec<(Vec<u8>, Inode)>,
    xattrs: XattrReader,
}

impl<'a, 's, S: Sink<Error = Stopped>> Thread<'a, 's, S> {
    fn new(walk: &'a Walk<'s>, sink: S, stack: &'a Stack<'a, Task<'s>>) -> Self {
        let (rows, subdirs, xattrs) = (Rows::default(), Vec::new(), XattrReader::default());
        Thread { walk, stack, sink, rows, subdirs, xattrs }
    }

    fn run(mut self) -> anyhow::Result<S> {
        while let Some(task) = self.stack.take(|| {}) {
            if let Err(error) = self.read(task) {
                self.stack.stop();
                return Err(error);
            }
        }
        Ok(self.sink)
    }

    /// Reads one part of a directory, hands it over, and puts the rest and the subdirectories on
    /// the stack, the latter on top.
    fn read(&mut self, task: Task<'s>) -> anyhow::Result<()> {
        let Task { directory, after, part, selected } = task;
        let (walk, options) = (self.walk, self.walk.run.options);
        if let Selected::Part(selection) = selected
            && !selection.is_listed()
            && self.pass(&directory, selection)?
        {
            return Ok(());
        }
        self.rows.clear();
        self.subdirs.clear();
        let (mut last, mut outcome) = (None, Ok(()));
        let id = directory.attributes.ino;
        walk.view.list(FileId(id), after.as_deref(), |name, inode| {
            outcome = self.entry(&directory, name, inode);
            let is_full = self.rows.len() >= PART_ROWS || self.rows.bytes() >= options.part_bytes;
            if is_full {
                last = Some(name.to_vec());
            }
            outcome.is_ok() && !is_full
        })?;
        outcome?;
        let counts = walk.run.counts;
        if part == 0 || !self.rows.is_empty() {
            counts.entries.fetch_add(self.rows.len() as u64, Ordering::Relaxed);
            self.sink.listing(&Listing {
                path: directory.path().as_path(),
                depth: directory.depth,
                part,
                dev: walk.dev,
                directory: &directory.attributes,
                access: &directory.access,
                rows: &self.rows,
            })?;
        }
        match last {
            Some(name) => {
                let part = part.checked_add(1).context("a directory has too many parts")?;
                let directory = directory.clone();
                self.stack.put(Task { directory, after: Some(name), part, selected });
            }
            None => {
                counts.directories.fetch_add(1, Ordering::Relaxed);
            }
        }
        let known = match (walk.known, selected) {
            (Some(known), Selected::Part(_)) if !self.subdirs.is_empty() => {
                known.subdirectories(directory.path().as_path())
            }
            _ => HashMap::new(),
        };
        for (name, inode) in std::mem::take(&mut self.subdirs) {
            let below = match selected {
                Selected::Part(selection) => match selection.child(&name) {
                    Some(child) => Selected::Part(child),
                    None if is_same(known.get(&*escape(&name)), &inode) => continue,
                    None => Selected::IfChanged,
                },
                whole => whole,
            };
            self.put(&directory, &name, &inode, below)?;
        }
        Ok(())
    }

    /// Continues with the selected entries below a directory, which is not read itself. Returns
    /// false if one of them is no longer a directory: then it has to be read.
    fn pass(&self, directory: &Arc<Directory>, selection: &'s Selection) -> anyhow::Result<bool> {
        let mut children = Vec::new();
        for (name, child) in selection.children() {
            let inode = self.walk.view.lookup(FileId(directory.attributes.ino), name)?;
            match inode.filter(|inode| inode.is_directory()) {
                Some(inode) if !self.walk.leaves_out(directory, name) => {
                    children.push((name, inode, child));
                }
                _ => return Ok(false),
            }
        }
        for (name, inode, child) in children {
            self.put(directory, name, &inode, Selected::Part(child))?;
        }
        Ok(true)
    }

    /// Adds an entry to the rows.
    fn entry(
        &mut self,
        directory: &Arc<Directory>,
        name: &[u8],
        inode: Inode,
    ) -> anyhow::Result<()> {
        let (walk, options) = (self.walk, self.walk.run.options);
        let is_name =
            !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0);
        if !is_name {
            walk.report(directory, name, Fault::Failed(Step::Look, Errno::INVAL));
            return Ok(());
        }
        if walk.leaves_out(directory, name) {
            return Ok(());
        }
        let attributes = attributes(&inode);
        self.rows.push(&escape(name), attributes, &escape(&inode.target));
        if inode.has(flag::XATTRS) && !options.no_xattrs {
            self.xattrs.read(walk.view, &inode)?;
            let (rows, listing) = (&mut self.rows, directory.access.listing);
            self.xattrs.found(&attributes, listing, walk.run.classes, |xattr| {
                rows.push_xattr(xattr);
            });
        }
        if inode.is_directory() {
            self.subdirs.push((name.to_vec(), inode));
        }
        Ok(())
    }

    /// Puts a directory on the stack.
    fn put(
        &self,
        above: &Arc<Directory>,
        name: &[u8],
        inode: &Inode,
        selected: Selected<'s>,
    ) -> anyhow::Result<()> {
        let walk = self.walk;
        let escaped = escape(name);
        let path_bytes = above.path_bytes_of(&escaped);
        if path_bytes > walk.run.options.path_bytes_max {
            walk.report(above, name, Fault::LongPath);
            return Ok(());
        }
        if !walk.entered.lock().insert(inode.id) {
            walk.report(above, name, Fault::Failed(Step::List, Errno::LOOP));
            return Ok(());
        }
        let path = || {
            let path = above.path().as_path().child(&escaped);
            path.as_path().absolute(&walk.root)
        };
        let approach = walk.run.classes.below(&above.access, path);
        let access = walk.access(inode, &approach)?;
        let directory = Arc::new(Directory {
            above: Some(above.clone()),
            name: escaped.into(),
            depth: above.depth + 1,
            path_bytes,
            attributes: attributes(inode),
            access,
        });
        if let Some(selected) = walk.settle(&directory, selected) {
            self.stack.put(Task { directory, after: None, part: 0, selected });
        }
        Ok(())
    }
}

/// Returns whether a directory is as it was when the one above was listed before.
fn is_same(known: Option<&Attributes>, inode: &Inode) -> bool {
    let place = |of: &Attributes| (of.ino, of.mode, of.uid, of.gid, of.ctime_ns);
    known.is_some_and(|known| place(known) == place(&attributes(inode)))
}

/// The extended attributes of one inode.
#[derive(Default)]
struct XattrReader {
    names: Vec<Vec<u8>>,
    /// Those that are kept.
    values: Vec<Option<Vec<u8>>>,
}

impl XattrReader {
    fn read(&mut self, view: &ReadView, inode: &Inode) -> canopy_namespace::Result<()> {
        self.names.clear();
        self.values.clear();
        let mut bytes = 0;
        if !inode.has(flag::XATTRS) {
            return Ok(());
        }
        view.xattrs(inode.id, |name, value| {
            // The ACL, which says for whom the values are, is always kept.
            let is_kept = bytes < VALUES_BYTES_MAX || name == Acl::XATTR_NAME.as_bytes();
            bytes += value.len();
            self.names.push(name.to_vec());
            self.values.push(is_kept.then(|| value.to_vec()));
        })
    }

    /// Calls `each` with every attribute of the inode, which `audience` may look up.
    fn found(
        &self,
        attributes: &Attributes,
        audience: Audience,
        classes: &ClassTable,
        mut each: impl FnMut(Xattr<'_>),
    ) {
        let all = || self.names.iter().zip(&self.values);
        let acl = all().find(|(name, _)| *name == Acl::XATTR_NAME.as_bytes());
        let acl = acl.map(|(_, value)| Acl::decode(value.as_deref().unwrap_or_default()));
        let permissions = Permissions::of_inode(attributes, acl.as_ref().map(|acl| acl.as_ref()));
        for (name, value) in all() {
            let key = escape(name);
            let audience = classes.value_audience(audience, &key, permissions);
            let value = value.as_deref().map(|value| (value, audience));
            each(Xattr { key: &key, value });
        }
    }
}
