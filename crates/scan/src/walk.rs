//! The parallel walk. Directories that are still to be read are the pieces of work that `stealing`
//! shares among threads. A directory keeps its descriptor open as long as a subdirectory waits to
//! be opened relative to it.

use crate::exclude::Excludes;
use crate::inode::{access, look_at, look_at_open, open_dir};
use crate::root::Root;
use crate::stealing::{Stack, share};
use crate::xattrs::XattrReader;
use canopy_model::{
    Access, Approach, Attributes, ClassTable, ErrorKind, FileType, Listing, Rows, Sink, Xattr,
    escape, join, join_absolute, unescape,
};
use rustix::fd::OwnedFd;
use rustix::fs::RawDir;
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries after which the listing of a directory is handed over and goes on as another part.
const PART_ROWS: usize = 64 * 1024;

/// Bytes of names, targets and extended attributes after which it is.
const PART_BYTES: usize = 64 << 20;

/// Bytes asked of one getdents64.
const DIRENT_BYTES: usize = 64 * 1024;

/// How to walk.
#[derive(Clone, Debug, Default)]
pub struct ScanOptions {
    /// Whether to stay on the file system of the root.
    pub one_file_system: bool,
    /// What to leave out.
    pub excludes: Excludes,
    /// Directories whose contents are left out, as device and inode: the index itself.
    pub skipped: Vec<(u64, u64)>,
    /// Whether extended attributes are left out.
    pub no_xattrs: bool,
}

/// What was done with an entry when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Opening or reading a directory.
    List,
    /// Looking at an entry.
    Look,
    /// Reading where a symbolic link points.
    ReadLink,
    /// Reading extended attributes.
    Xattrs,
}

/// An entry that is missing from the listings, or whose listing is missing or incomplete.
#[derive(Clone, Debug)]
pub struct ScanError {
    /// Its path below the root.
    pub path: Vec<u8>,
    /// What was tried.
    pub step: Step,
    /// What the system said.
    pub errno: Errno,
}

impl ScanError {
    /// Returns what a caller should make of it.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of_io(&self.errno.into())
    }

    /// Returns whether the entry went away during the walk.
    pub fn vanished(&self) -> bool {
        self.errno == Errno::NOENT || (self.step == Step::List && self.errno == Errno::NOTDIR)
    }
}

/// What a walk has found so far. Can be read by others while it goes on.
#[derive(Debug, Default)]
pub struct Counts {
    /// Entries, directories among them, without the root.
    pub entries: AtomicU64,
    /// Directories listed.
    pub directories: AtomicU64,
    /// Entries that could not be read.
    pub failed: AtomicU64,
    /// Entries that went away.
    pub vanished: AtomicU64,
}

/// Walks the tree of `root`, one thread a sink, and gives the sinks back. Errors of single entries
/// are counted and told to `on_error`; the error of a sink ends the walk. Blocks.
pub fn scan<S: Sink>(
    root: Root,
    options: &ScanOptions,
    classes: &ClassTable,
    counts: &Counts,
    on_error: &(dyn Fn(&ScanError) + Sync),
    sinks: Vec<S>,
) -> Result<Vec<S>, S::Error> {
    let walk = Walk {
        options,
        classes,
        counts,
        on_error,
        root_dev: root.dev,
        root_path: root.escaped_path(),
    };
    let first = Task {
        location: Location::Root(root.directory),
        path: String::new(),
        depth: 0,
        approach: root.approach,
    };
    share(first, sinks, |sink, stack| Thread::new(&walk, sink, stack).run()).into_iter().collect()
}

/// A directory that is still to be read.
struct Task {
    location: Location,
    path: String,
    depth: u32,
    /// Those who may look it up.
    approach: Approach,
}

enum Location {
    Root(OwnedFd),
    Below(Arc<OwnedFd>, CString),
}

struct Walk<'a> {
    options: &'a ScanOptions,
    classes: &'a ClassTable,
    counts: &'a Counts,
    on_error: &'a (dyn Fn(&ScanError) + Sync),
    root_dev: u64,
    /// Absolute path of the root, escaped.
    root_path: String,
}

impl Walk<'_> {
    fn fail(&self, path: &str, step: Step, errno: Errno) {
        let error = ScanError { path: unescape(path).into_owned(), step, errno };
        let count = if error.vanished() { &self.counts.vanished } else { &self.counts.failed };
        count.fetch_add(1, Ordering::Relaxed);
        (self.on_error)(&error);
    }
}

struct Thread<'a, S> {
    walk: &'a Walk<'a>,
    sink: S,
    stack: &'a Stack<'a, Task>,
    rows: Rows,
    names: Names,
    subdirs: Vec<CString>,
    buffer: Vec<MaybeUninit<u8>>,
    xattrs: XattrReader,
}

/// Names read ahead of looking at them, each with its NUL.
#[derive(Default)]
struct Names {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Names {
    fn push(&mut self, name: &CStr) {
        self.text.extend_from_slice(name.to_bytes_with_nul());
        self.ends.push(self.text.len());
    }

    fn get(&self, at: usize) -> &CStr {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        CStr::from_bytes_with_nul(&self.text[start..self.ends[at]])
            .expect("names are kept with one NUL")
    }

    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }
}

/// A directory that is being read.
struct Opened {
    directory: Arc<OwnedFd>,
    attributes: Attributes,
    dev: u64,
    access: Access,
    path: String,
    depth: u32,
}

impl<'a, S: Sink> Thread<'a, S> {
    fn new(walk: &'a Walk<'a>, sink: S, stack: &'a Stack<'a, Task>) -> Self {
        Thread {
            walk,
            sink,
            stack,
            rows: Rows::default(),
            names: Names::default(),
            subdirs: Vec::new(),
            buffer: vec![MaybeUninit::uninit(); DIRENT_BYTES],
            xattrs: XattrReader::default(),
        }
    }

    fn run(mut self) -> Result<S, S::Error> {
        while let Some(task) = self.stack.take(|| ()) {
            if let Err(error) = self.read(task) {
                self.stack.stop();
                return Err(error);
            }
        }
        Ok(self.sink)
    }

    /// Reads one directory, hands its listing over and puts its subdirectories on the stack.
    fn read(&mut self, task: Task) -> Result<(), S::Error> {
        let path = task.path.clone();
        let opened = match self.open(task) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(()),
            Err(errno) => {
                self.walk.fail(&path, Step::List, errno);
                return Ok(());
            }
        };
        self.subdirs.clear();
        let mut part = 0;
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut entries = RawDir::new(&*opened.directory, &mut buffer);
        let mut outcome = Ok(());
        while outcome.is_ok() {
            let more = self.fill(&opened, &mut entries);
            if more || part == 0 || !self.rows.is_empty() {
                outcome = self.hand_over(&opened, part);
            }
            part += 1;
            if !more {
                break;
            }
        }
        self.buffer = buffer;
        outcome?;
        self.walk.counts.directories.fetch_add(1, Ordering::Relaxed);
        self.put_subdirs(opened);
        Ok(())
    }

    /// Opens a directory. `None` if its contents are to be left out.
    fn open(&self, task: Task) -> Result<Option<Opened>, Errno> {
        let directory = match task.location {
            Location::Root(directory) => directory,
            Location::Below(parent, name) => open_dir(&*parent, &name)?,
        };
        let (attributes, dev) = look_at_open(&directory)?;
        let options = self.walk.options;
        if options.skipped.contains(&(dev, attributes.ino)) {
            return Ok(None);
        }
        if options.one_file_system && dev != self.walk.root_dev {
            return Ok(None);
        }
        let access = access(self.walk.classes, &task.approach, &directory, &attributes);
        let directory = Arc::new(directory);
        Ok(Some(Opened { directory, attributes, dev, access, path: task.path, depth: task.depth }))
    }

    /// Reads entries into `rows`, as many as a part may have. Returns whether there may be more.
    fn fill(&mut self, opened: &Opened, entries: &mut RawDir<'_, &OwnedFd>) -> bool {
        self.rows.clear();
        let mut more = true;
        while more && self.rows.len() < PART_ROWS && self.rows.bytes() < PART_BYTES {
            self.names.clear();
            // All names of one system call, then their inodes.
            loop {
                match entries.next() {
                    Some(Ok(entry)) => {
                        let name = entry.file_name();
                        if !matches!(name.to_bytes(), b"." | b"..") {
                            self.names.push(name);
                        }
                    }
                    Some(Err(Errno::INTR)) => continue,
                    Some(Err(errno)) => {
                        self.walk.fail(&opened.path, Step::List, errno);
                        more = false;
                    }
                    None => more = false,
                }
                if !more || entries.is_buffer_empty() {
                    break;
                }
            }
            self.look(opened);
        }
        more
    }

    /// Looks at the inodes of the names that were read.
    fn look(&mut self, opened: &Opened) {
        let mut with_xattrs = !self.walk.options.no_xattrs && !self.names.ends.is_empty();
        if with_xattrs && let Err(errno) = self.xattrs.enter(&opened.directory) {
            self.walk.fail(&opened.path, Step::Xattrs, errno);
            with_xattrs = false;
        }
        for at in 0..self.names.ends.len() {
            let name = self.names.get(at);
            let bytes = name.to_bytes();
            let escaped = escape(bytes);
            let full_path = || join(&opened.path, &escaped);
            if self.walk.options.excludes.matches(bytes, || unescape(&full_path()).into_owned()) {
                continue;
            }
            let attributes = match look_at(&*opened.directory, name, false) {
                Ok((attributes, _)) => attributes,
                Err(errno) => {
                    self.walk.fail(&full_path(), Step::Look, errno);
                    continue;
                }
            };
            match attributes.file_type() {
                FileType::Directory => {
                    self.subdirs.push(name.to_owned());
                    self.rows.push(&escaped, attributes, "");
                }
                FileType::Symlink => {
                    match rustix::fs::readlinkat(&*opened.directory, name, Vec::new()) {
                        Ok(target) => {
                            self.rows.push(&escaped, attributes, &escape(target.to_bytes()))
                        }
                        Err(errno) => {
                            self.walk.fail(&full_path(), Step::ReadLink, errno);
                            self.rows.push(&escaped, attributes, "");
                        }
                    }
                }
                _ => self.rows.push(&escaped, attributes, ""),
            }
            if with_xattrs {
                let (rows, classes) = (&mut self.rows, self.walk.classes);
                let add = |xattr: Xattr<'_>| rows.push_xattr(xattr);
                if let Err(errno) =
                    self.xattrs.read(name, &attributes, opened.access.listing, classes, add)
                {
                    self.walk.fail(&full_path(), Step::Xattrs, errno);
                }
            }
        }
    }

    fn hand_over(&mut self, opened: &Opened, part: u32) -> Result<(), S::Error> {
        self.walk.counts.entries.fetch_add(self.rows.len() as u64, Ordering::Relaxed);
        self.sink.listing(&Listing {
            path: &opened.path,
            depth: opened.depth,
            part,
            dev: opened.dev,
            directory: &opened.attributes,
            access: &opened.access,
            rows: &self.rows,
        })
    }

    /// Puts the subdirectories on the stack so that they are read in the order of their names.
    fn put_subdirs(&mut self, opened: Opened) {
        self.subdirs.sort_unstable_by(|a, b| b.cmp(a));
        for name in self.subdirs.drain(..) {
            let path = join(&opened.path, &escape(name.as_bytes()));
            let absolute = || join_absolute(&self.walk.root_path, &path);
            self.stack.put(Task {
                approach: self.walk.classes.below(&opened.access, absolute),
                path,
                depth: opened.depth + 1,
                location: Location::Below(opened.directory.clone(), name),
            });
        }
    }
}
