//! The root of a source: where it is, and who may reach it.

use crate::inode::{access, look_at_open, open_dir};
use crate::xattrs::{FoundXattr, XattrReader};
use canopy_model::{Approach, Attributes, ClassTable, ErrorKind, escape};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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
    pub(crate) directory: OwnedFd,
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
    /// Opens the directory at `path`, whose symbolic links are followed once, here.
    pub fn open(path: &Path, classes: &ClassTable) -> Result<Self, RootError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| RootError { path, source }
        };
        let real = path.canonicalize().map_err(at(path))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let slash = rustix::fs::openat(CWD, c"/", flags, Mode::empty());
        let mut directory = slash.map_err(|errno| at(Path::new("/"))(errno.into()))?;
        let mut approach = Approach::EVERYONE;
        let mut above = PathBuf::from("/");
        for component in real.components().skip(1) {
            let errno = |errno: rustix::io::Errno| at(&above)(errno.into());
            let (attributes, _) = look_at_open(&directory).map_err(errno)?;
            let access = access(classes, &approach, &directory, &attributes);
            above.push(component);
            approach = classes.below(&access, || escape(above.as_os_str().as_bytes()).into_owned());
            let name =
                CString::new(component.as_os_str().as_bytes()).expect("a real path has no NUL");
            directory = open_to_search(&directory, &name, above == real)
                .map_err(|e| at(&above)(e.into()))?;
        }
        let (attributes, dev) =
            look_at_open(&directory).map_err(|errno| at(&real)(errno.into()))?;
        Ok(Root { path: real, attributes, dev, approach, directory })
    }

    /// Returns the extended attributes of the root, each with those who may see its value. What
    /// cannot be read is left out.
    pub fn xattrs(&self, classes: &ClassTable) -> Vec<FoundXattr> {
        let mut reader = XattrReader::staying();
        let mut found = Vec::new();
        if reader.enter(&self.directory).is_ok() {
            // A root without them, or on a file system that has none, is no error.
            let audience = self.approach.audience;
            let _ = reader.read(c".", &self.attributes, audience, classes, |xattr| {
                let value = xattr.value.map(|(value, audience)| (value.to_vec(), audience));
                found.push((xattr.key.to_owned(), value));
            });
        }
        found
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
