//! The root of a source: where it is, and who may reach it.

use crate::directory::{Directory, Moves, Narrowing, Place};
use crate::faults::{Fault, ScanError, Step};
use crate::inode::{open_dir, stat_open};
use crate::rules::MountRules;
use crate::xattrs::{FoundXattr, XattrReader};
use canopy_model::{Approach, Attributes, Audience, ClassTable, ErrorKind, Grant, escape};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The opened root of a source.
#[derive(Debug)]
pub struct Root {
    /// Its real path.
    pub path: PathBuf,
    /// Its attributes.
    pub attributes: Attributes,
    /// Device that holds it.
    pub dev: u64,
    /// Those who may look it up: who may search every directory above it.
    pub approach: Approach,
    pub(crate) directory: Arc<Directory>,
    /// How often it and what is above was looked at again.
    pub(crate) rounds: u64,
}

/// Why a source cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open {}", path.display())]
pub struct RootError {
    /// The directory at fault.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl RootError {
    /// Returns what a caller should make of it.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of_io(&self.source)
    }
}

impl Root {
    /// Opens the directory at `path`, whose symbolic links are followed once, here. `rules` are
    /// those of the mounts on the way.
    pub fn open(path: &Path, classes: &ClassTable, rules: &MountRules) -> Result<Self, RootError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |errno: rustix::io::Errno| RootError { path, source: errno.into() }
        };
        let real = path.canonicalize();
        let real = real.map_err(|source| RootError { path: path.to_owned(), source })?;
        let take_in = |place, fd: OwnedFd, approach: &Approach, path: &Path| {
            let stat = stat_open(&fd).map_err(at(path))?;
            let rules = rules.of(&fd, stat.mount, stat.dev);
            Ok(Directory::new(place, fd, &stat, rules, classes, approach))
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut above = PathBuf::from("/");
        let mut approach = Approach::EVERYONE;
        let slash = rustix::fs::openat(CWD, c"/", flags, Mode::empty()).map_err(at(&above))?;
        let mut directory = take_in(Place::Top, slash, &approach, &above)?;
        for component in real.components().skip(1) {
            above.push(component);
            approach = classes
                .below(&directory.access, || escape(above.as_os_str().as_bytes()).into_owned());
            let name =
                CString::new(component.as_os_str().as_bytes()).expect("a real path has no NUL");
            let fd = open_to_search(&directory.fd, &name, above == real).map_err(at(&above))?;
            directory = take_in(Place::Above(directory), fd, &approach, &above)?;
        }
        let (attributes, dev) = (directory.attributes, directory.dev);
        let mut root = Root { path: real, attributes, dev, approach, directory, rounds: 0 };
        root.look_again(classes);
        Ok(root)
    }

    /// Takes those out whom directories above no longer let in.
    fn look_again(&mut self, classes: &ClassTable) {
        self.approach.audience = self.narrowed(self.approach.audience, classes);
    }

    /// Returns those of an audience whom this directory and those above it still let in.
    fn narrowed(&mut self, audience: Audience, classes: &ClassTable) -> Audience {
        self.rounds += 1;
        let narrowing = self.directory.narrowing(self.rounds, &Moves::default());
        let grants = match narrowing {
            None => return audience,
            Some(Narrowing::ToThose(grants)) => grants,
            Some(Narrowing::Gone(_)) => Arc::new(vec![(Grant::nobody(), 0)]),
        };
        classes.narrowed_audience(audience, &grants)
    }

    /// Returns those who may look up a name in this directory, whether or not there is one.
    pub fn approach_of(&mut self, name: &OsStr, classes: &ClassTable) -> Approach {
        let child = self.path.join(name);
        let child = || escape(child.as_os_str().as_bytes()).into_owned();
        let mut approach = classes.below(&self.directory.access, child);
        approach.audience = self.narrowed(approach.audience, classes);
        approach
    }

    /// Returns the extended attributes of the root, each with those who may see its value, and what
    /// failed if not all could be read.
    pub fn xattrs(&mut self, classes: &ClassTable) -> (Vec<FoundXattr>, Option<ScanError>) {
        let mut reader = XattrReader::default();
        let mut found = Vec::new();
        let failed = |errno| {
            let fault = Fault::Failed(Step::Xattrs, errno);
            Some(ScanError { path: Vec::new(), fault })
        };
        let attributes = match reader.read(&self.directory.fd) {
            Ok(attributes) => attributes,
            Err(errno) => return (found, failed(errno)),
        };
        self.look_again(classes);
        let (rules, audience) = (self.directory.rules(), self.approach.audience);
        reader.found(&attributes, rules, audience, classes, |xattr| {
            let value = xattr.value.map(|(value, audience)| (value.to_vec(), audience));
            found.push((xattr.key.to_owned(), value));
        });
        (found, failed(Errno::TOOBIG).filter(|_| reader.has_too_many()))
    }

    /// Returns the path, escaped.
    pub fn escaped_path(&self) -> String {
        escape(self.path.as_os_str().as_bytes()).into_owned()
    }
}

/// Opens the root itself for reading, and a directory above it so that it works even where the
/// caller may only search it. (An ACL cannot be read then; the caller has no privilege and builds
/// an index for itself alone.)
fn open_to_search(parent: &OwnedFd, name: &CString, is_root: bool) -> rustix::io::Result<OwnedFd> {
    match open_dir(parent, name) {
        Err(rustix::io::Errno::ACCESS) if !is_root => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(parent, name, flags, Mode::empty())
        }
        other => other,
    }
}
