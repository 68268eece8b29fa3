//! The root of a source: where it is, and who may reach it.

use crate::directory::{Directory, Known, Moves, Narrowing, OpenAt, Round, Seen};
use crate::faults::{Fault, ScanError, Step};
use crate::handle::Shared;
use crate::inode::{open_dir, open_to_search};
use crate::rules::MountRules;
use crate::xattrs::{FoundXattr, XattrReader};
use canopy_model::{
    Approach, Attributes, Audience, ClassTable, Device, ErrorKind, Grant, SourcePathBuf, escape,
};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often a root that changes is looked at, and its extended attributes are read.
const TRIES: usize = 5;

/// Longest time that a change time may stay constant while an inode changes.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// The opened root of a source.
#[derive(Debug)]
pub struct Root {
    /// Its real path.
    pub path: PathBuf,
    /// Its attributes.
    pub attributes: Attributes,
    /// Device that holds it.
    pub dev: Device,
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
    /// The system's error.
    pub source: io::Error,
}

impl RootError {
    /// Returns the kind, by which callers handle the error.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of_io(&self.source)
    }
}

impl Root {
    /// Opens the directory at `path`, whose symbolic links are followed once, here. `rules` are
    /// those of the mounts on the way. Where all on the way changes all the time, root alone sees it.
    pub fn open(path: &Path, classes: &ClassTable, rules: &MountRules) -> Result<Self, RootError> {
        let mut root = Self::open_once(path, classes, rules)?;
        for _ in 1..TRIES {
            if root.directory.is_proven() {
                return Ok(root);
            }
            std::thread::sleep(TICK);
            root = Self::open_once(path, classes, rules)?;
        }
        if !root.directory.is_proven() {
            root.approach.audience = to_root(root.approach.audience, classes);
        }
        Ok(root)
    }

    fn open_once(path: &Path, classes: &ClassTable, rules: &MountRules) -> Result<Self, RootError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |errno: rustix::io::Errno| RootError { path, source: errno.into() }
        };
        let real = path.canonicalize();
        let real = real.map_err(|source| RootError { path: path.to_owned(), source })?;
        let shared = Shared::new();
        let begun = shared.clock.now();
        let take_in = |place, fd: OwnedFd, approach: &Approach, since, path: &Path| {
            let seen = Seen::of(&fd).map_err(at(path))?;
            let (mount, dev) = (seen.stat.mount, seen.stat.dev);
            let (rules, lag_ns) = (rules.of(&fd, mount, dev), rules.lag_ns(mount, dev));
            let known = Known { rules, lag_ns, approach, since, is_shown: true };
            Ok(Directory::new(place, fd, seen, &known, classes, &shared))
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut above = PathBuf::from("/");
        let mut approach = Approach::EVERYONE;
        let slash = rustix::fs::openat(CWD, c"/", flags, Mode::empty()).map_err(at(&above))?;
        let mut directory = take_in(OpenAt::Top, slash, &approach, begun, &above)?;
        for component in real.components().skip(1) {
            above.push(component);
            approach = classes
                .below(&directory.access, || escape(above.as_os_str().as_bytes()).into_owned());
            let bytes = component.as_os_str().as_bytes();
            let name = CString::new(bytes).expect("a real path has no NUL");
            let (since, fd) = (directory.moment(), directory.fd().map_err(at(&above))?);
            let opened =
                if above == real { open_dir(&fd, &name) } else { open_to_search(&fd, &name) };
            let place = OpenAt::Above(directory, escape(bytes).into());
            directory = take_in(place, opened.map_err(at(&above))?, &approach, since, &above)?;
            if shared.has_too_many_open() {
                directory.close_above();
            }
        }
        let (attributes, dev) = (directory.attributes, directory.dev);
        let mut root = Root { path: real, attributes, dev, approach, directory, rounds: 0 };
        root.approach.audience = root.narrowed(root.approach.audience, classes);
        Ok(root)
    }

    /// Returns those of an audience whom this directory and those above it still let in.
    fn narrowed(&mut self, audience: Audience, classes: &ClassTable) -> Audience {
        let moment = self.directory.handle.shared().clock.now();
        self.rounds += 1;
        let round = Round { number: self.rounds, moment };
        match self.directory.narrowing(round, &Moves::default()).narrowing {
            None => audience,
            Some(Narrowing::ToThose(grants)) => classes.narrowed_audience(audience, &grants),
            Some(Narrowing::Gone(_)) => to_root(audience, classes),
        }
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
            Some(ScanError { path: SourcePathBuf::root(), fault })
        };
        let mut is_proven = false;
        let mut attributes = self.attributes;
        for _ in 0..TRIES {
            let since = self.directory.moment();
            let fd = match self.directory.fd() {
                Ok(fd) => fd,
                Err(errno) => return (found, failed(errno)),
            };
            attributes = match reader.read(&*fd) {
                Ok(attributes) => attributes,
                Err(errno) => return (found, failed(errno)),
            };
            self.approach.audience = self.narrowed(self.approach.audience, classes);
            is_proven = since.is_after(self.directory.change_of(&attributes));
            if is_proven {
                break;
            }
            std::thread::sleep(TICK);
        }
        let (rules, audience) = (self.directory.rules(), self.approach.audience);
        let audience = if is_proven { audience } else { to_root(audience, classes) };
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

fn to_root(audience: Audience, classes: &ClassTable) -> Audience {
    classes.narrowed_audience(audience, &[(Grant::nobody(), 0)])
}
