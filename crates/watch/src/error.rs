//! Why following changes fails.

use canopy_model::ErrorKind;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// An error of following changes, with the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused something.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The attempted action, as in "cannot ...".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another daemon has this directory.
    #[error("{} is in use by another 'canopy watch'", .0.display())]
    Locked(PathBuf),
    /// The directory of the daemon can be read or written by others.
    #[error("{} must belong to uid {owner} and have mode 0700", path.display())]
    NotPrivate {
        /// The directory.
        path: PathBuf,
        /// The uid that must own it.
        owner: u32,
    },
    /// More directories than inotify may watch.
    #[error(
        "the limit of directories that inotify may watch is reached at {}: raise \
         fs.inotify.max_user_watches (see sysctl(8))",
        .0.display()
    )]
    WatchLimit(PathBuf),
}

/// The result of what this crate does.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    }

    pub(crate) fn errno(action: &'static str, path: &Path) -> impl FnOnce(Errno) -> Self {
        let made = Self::io(action, path);
        move |errno| made(errno.into())
    }

    /// Returns what a caller should make of it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Io { source, .. } => ErrorKind::of_io(source),
            Error::Locked(_) => ErrorKind::Taken,
            Error::WatchLimit(_) => ErrorKind::Exhausted,
            Error::NotPrivate { .. } => ErrorKind::Invalid,
        }
    }
}
