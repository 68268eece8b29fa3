//! Errors of a namespace, each with its kind and its errno.

use crate::operation::Target;
use crate::quota::Shortage;
use canopy_model::ErrorKind;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Outcomes of operations.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation did nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The error of POSIX for such a call.
    #[error("{0}")]
    Posix(Errno),
    /// The table could not be read or written.
    #[error(transparent)]
    Store(#[from] canopy_store::Error),
    /// A file of the local directory for contents could not be read or written.
    #[error("{what}: {source}")]
    Io {
        /// The attempted operation, with the path.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Another process has the directory of a cache.
    #[error("{}: another process uses this cache", .0.display())]
    CacheInUse(PathBuf),
    /// Records that no namespace has.
    #[error("damaged: {0}")]
    Corrupt(String),
    /// A wrong request, and what would be right.
    #[error("{0}")]
    Invalid(String),
    /// An operation on what another tablet holds. Nothing was changed.
    #[error("{0} is not in this tablet")]
    NotHere(Target),
    /// An operation on what several tablets hold, and which none of them can execute alone. Nothing
    /// was changed.
    #[error("{0} concerns several tablets, which is not possible yet")]
    AcrossTablets(&'static str),
    /// A change of a session that was executed before. A client that gets this has had the reply.
    #[error("the change was executed before")]
    Repeated,
    /// A change for which the shares of this table do not suffice. Nothing was changed. Other tables
    /// may have room.
    #[error("{}", Errno::DQUOT)]
    Short(Vec<Shortage>),
    /// An error of a server that executed an operation.
    #[error("{}", .0.message)]
    Elsewhere(Failure),
}

/// An error as a message, with what a caller reacts to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Whether it is what POSIX says of such a call, and nothing more.
    is_of_posix: bool,
    kind: ErrorKind,
    errno: i32,
    message: String,
}

impl Failure {
    /// Returns the failure of a server that could not be asked, or did not answer.
    pub fn unavailable(why: &dyn std::fmt::Display) -> Self {
        let (kind, errno) = (ErrorKind::Unavailable, Errno::IO.raw_os_error());
        Failure { is_of_posix: false, kind, errno, message: why.to_string() }
    }

    /// Returns the failure of a client whose files are those of a former state of the namespace.
    pub fn stale(why: &dyn std::fmt::Display) -> Self {
        let (kind, errno) = (ErrorKind::NotFound, Errno::STALE.raw_os_error());
        Failure { is_of_posix: false, kind, errno, message: why.to_string() }
    }

    /// Returns the failure of an operation that is not possible there.
    pub fn unsupported(why: &dyn std::fmt::Display) -> Self {
        let (kind, errno) = (ErrorKind::Invalid, Errno::OPNOTSUPP.raw_os_error());
        Failure { is_of_posix: false, kind, errno, message: why.to_string() }
    }

    /// Returns the number that a system call fails with. A message may say anything.
    fn errno(&self) -> Errno {
        match self.errno {
            1..4096 => Errno::from_raw_os_error(self.errno),
            _ => Errno::IO,
        }
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let is_of_posix = matches!(error, Error::Posix(_) | Error::Short(_));
        let message = if is_of_posix { String::new() } else { error.to_string() };
        Failure { is_of_posix, kind: error.kind(), errno: error.errno().raw_os_error(), message }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure.is_of_posix {
            true => Error::Posix(failure.errno()),
            false => Error::Elsewhere(failure),
        }
    }
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Error::Io { what, source }
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Error::Corrupt(what.into())
    }

    /// Returns whether records are damaged, or files that have them.
    pub fn is_damage(&self) -> bool {
        match self {
            Error::Store(error) => error.is_damage(),
            Error::Corrupt(_) => true,
            Error::Elsewhere(failure) => failure.kind == ErrorKind::Corrupt,
            _ => false,
        }
    }

    /// Returns the kind, by which a caller reacts to the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Posix(errno) => kind_of(*errno),
            Error::Short(_) => kind_of(Errno::DQUOT),
            Error::Store(error) => match error.kind() {
                // The namespace has asked for an object of its own.
                ErrorKind::NotFound => ErrorKind::Corrupt,
                // The request was the namespace's, and not the caller's.
                ErrorKind::Invalid => ErrorKind::Internal,
                kind => kind,
            },
            Error::Io { source, .. } => ErrorKind::of_io(source),
            Error::CacheInUse(_) | Error::NotHere(_) => ErrorKind::Taken,
            Error::Corrupt(_) => ErrorKind::Corrupt,
            Error::Invalid(_) | Error::AcrossTablets(_) | Error::Repeated => ErrorKind::Invalid,
            Error::Elsewhere(failure) => failure.kind,
        }
    }

    /// Returns the number that a system call fails with.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Posix(errno) => *errno,
            Error::Short(_) => Errno::DQUOT,
            Error::Elsewhere(failure) => failure.errno(),
            // The number of the system says more than a kind.
            Error::Io { source, .. } => {
                source.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
            }
            // Other numbers would be about files of the storage, and callers took them for an answer
            // about theirs. There is none where a server refused the process.
            Error::Store(
                canopy_store::Error::Storage { source, .. }
                | canopy_store::Error::Deferred { source, .. },
            ) => match source.raw_os_error().map(Errno::from_raw_os_error) {
                Some(full @ (Errno::NOSPC | Errno::DQUOT | Errno::ROFS)) => full,
                _ => Errno::IO,
            },
            // Programs copy a file that they cannot rename.
            Error::AcrossTablets(_) => Errno::XDEV,
            Error::Store(_)
            | Error::CacheInUse(_)
            | Error::Corrupt(_)
            | Error::Invalid(_)
            | Error::Repeated
            | Error::NotHere(_) => errno_of(self.kind()),
        }
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Error::Posix(errno)
    }
}

/// Returns the kind of what POSIX says of a call.
fn kind_of(errno: Errno) -> ErrorKind {
    match errno {
        Errno::NOENT | Errno::NODATA | Errno::NXIO | Errno::STALE => ErrorKind::NotFound,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => ErrorKind::Denied,
        Errno::EXIST
        | Errno::NOTDIR
        | Errno::ISDIR
        | Errno::NOTEMPTY
        | Errno::INVAL
        | Errno::BADF
        | Errno::NAMETOOLONG
        | Errno::LOOP
        | Errno::XDEV
        | Errno::RANGE
        | Errno::TOOBIG
        | Errno::FBIG
        | Errno::OPNOTSUPP => ErrorKind::Invalid,
        Errno::BUSY | Errno::AGAIN | Errno::INTR => ErrorKind::Busy,
        Errno::NOSPC | Errno::DQUOT | Errno::MLINK | Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
            ErrorKind::Exhausted
        }
        _ => ErrorKind::Unavailable,
    }
}

/// Returns the number that a system call fails with for an error of this kind.
fn errno_of(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::NotFound => Errno::NOENT,
        ErrorKind::Denied => Errno::ACCESS,
        ErrorKind::Invalid => Errno::INVAL,
        ErrorKind::Exhausted => Errno::NOSPC,
        // Programs take other numbers for an answer about the file, or try again for ever.
        ErrorKind::Corrupt
        | ErrorKind::Busy
        | ErrorKind::Taken
        | ErrorKind::Unavailable
        | ErrorKind::Internal => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::keys::FileId;
    use canopy_store::{Contended, Error as StoreError, Fenced, Invalid};
    use std::io;

    #[test]
    fn kinds_have_numbers() {
        let numbers = ErrorKind::ALL.map(errno_of);
        let io = Errno::IO;
        let first = [Errno::NOENT, Errno::ACCESS, Errno::INVAL];
        assert_eq!(numbers, [&first[..], &[io, io, io, Errno::NOSPC, io, io]].concat()[..]);
    }

    #[test]
    fn errors_arrive_with_kind_and_number() {
        let invalid = || Error::Invalid("a wrong name".into());
        let posix = Error::from(Failure::from(&Error::Posix(Errno::NOTEMPTY)));
        assert!(matches!(posix, Error::Posix(Errno::NOTEMPTY)));
        for error in [invalid(), Error::corrupt("an inode"), Error::CacheInUse("/x".into())] {
            let arrived = Error::from(Failure::from(&error));
            assert_eq!((arrived.kind(), arrived.errno()), (error.kind(), error.errno()));
            assert_eq!(arrived.to_string(), error.to_string());
            assert_eq!(arrived.is_damage(), error.is_damage());
        }
        let senseless = Failure { errno: -7, ..Failure::from(&invalid()) };
        assert_eq!(Error::from(senseless).errno(), Errno::IO);
    }

    #[test]
    fn answers_of_posix_have_kinds() {
        for (errno, kind) in [
            (Errno::NOENT, ErrorKind::NotFound),
            (Errno::STALE, ErrorKind::NotFound),
            (Errno::ACCESS, ErrorKind::Denied),
            (Errno::PERM, ErrorKind::Denied),
            (Errno::ROFS, ErrorKind::Denied),
            (Errno::EXIST, ErrorKind::Invalid),
            (Errno::NOTEMPTY, ErrorKind::Invalid),
            (Errno::XDEV, ErrorKind::Invalid),
            (Errno::BUSY, ErrorKind::Busy),
            (Errno::NOSPC, ErrorKind::Exhausted),
            (Errno::DQUOT, ErrorKind::Exhausted),
            (Errno::MLINK, ErrorKind::Exhausted),
            (Errno::IO, ErrorKind::Unavailable),
        ] {
            let error = Error::from(errno);
            assert_eq!((error.kind(), error.errno()), (kind, errno), "{errno:?}");
        }
    }

    #[test]
    fn errors_have_kinds_and_numbers() {
        let raw = || io::Error::from(Errno::ROFS);
        let numberless = || io::Error::from(io::ErrorKind::PermissionDenied);
        let storage = |source| StoreError::storage("a", source);
        let ended = Fenced::Ended { kind: ErrorKind::Exhausted, said: "a: full".into() };
        let busy = || io::Error::from(Errno::BUSY);
        for (error, kind, errno) in [
            (Error::io("open")(raw()), ErrorKind::Unavailable, Errno::ROFS),
            (Error::io("open")(busy()), ErrorKind::Busy, Errno::BUSY),
            (Error::io("open")(numberless()), ErrorKind::Denied, Errno::IO),
            (Error::CacheInUse("/c".into()), ErrorKind::Taken, Errno::IO),
            (Error::corrupt("a record"), ErrorKind::Corrupt, Errno::IO),
            (Error::NotHere(Target::File(FileId(7))), ErrorKind::Taken, Errno::IO),
            (Error::AcrossTablets("a rename"), ErrorKind::Invalid, Errno::XDEV),
            (Error::Invalid("a name".into()), ErrorKind::Invalid, Errno::INVAL),
            (storage(Errno::NOSPC.into()).into(), ErrorKind::Exhausted, Errno::NOSPC),
            (storage(Errno::NOTDIR.into()).into(), ErrorKind::Unavailable, Errno::IO),
            (storage(io::Error::other("down")).into(), ErrorKind::Unavailable, Errno::IO),
            (storage(numberless()).into(), ErrorKind::Denied, Errno::IO),
            (StoreError::NotFound("a".into()).into(), ErrorKind::Corrupt, Errno::IO),
            (StoreError::corrupt("a", "torn").into(), ErrorKind::Corrupt, Errno::IO),
            (StoreError::from(Fenced::WriterClosed).into(), ErrorKind::Taken, Errno::IO),
            (StoreError::from(Fenced::RunsChanged).into(), ErrorKind::Busy, Errno::IO),
            (StoreError::from(ended).into(), ErrorKind::Unavailable, Errno::IO),
            (StoreError::from(Invalid::OutOfRange).into(), ErrorKind::Internal, Errno::IO),
            (StoreError::from(Invalid::ForgetfulStorage).into(), ErrorKind::Unavailable, Errno::IO),
            (StoreError::from(Contended::Table(table())).into(), ErrorKind::Busy, Errno::IO),
        ] {
            assert_eq!((error.kind(), error.errno()), (kind, errno), "{error}");
        }
    }

    fn table() -> canopy_store::TableId {
        canopy_store::TableId::parse(&"0".repeat(32)).expect("an id")
    }

    #[test]
    fn a_cache_in_use_is_named() {
        let error = Error::CacheInUse("/c".into());
        assert_eq!(error.to_string(), "/c: another process uses this cache");
    }
}
