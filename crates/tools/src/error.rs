//! Errors of the tools.

use crate::find::quoted;
use canopy_model::ErrorKind;
use canopy_read::Lost;
use canopy_text::locale::is_utf8;
use canopy_text::{Quoting, Style};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a tool.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The index has no answer.
    #[error(transparent)]
    Read(#[from] canopy_read::Error),
    /// A failure of du, ls or stat on a path, in their words.
    #[error("cannot {what} {}: {why}", shell_quoted(path))]
    Cannot {
        /// Their name for the operation.
        what: &'static str,
        /// The path as it was given.
        path: Vec<u8>,
        /// The reason.
        why: Lost,
    },
    /// A start of a search leads to nothing that is known, in find's words.
    #[error("{}: {why}", quoted(path))]
    Start {
        /// The path as it was given.
        path: Vec<u8>,
        /// The reason.
        why: Lost,
    },
    /// A name of what is to be added up is empty.
    #[error("invalid zero-length file name")]
    NoName,
    /// Standard input is to be looked at, and is in no index.
    #[error("cannot stat standard input: it is not a file that is in an index")]
    StandardInput,
    /// An entry has no security context, or not for the caller to see.
    #[error("failed to get security context of {}: No data available", shell_quoted(.0))]
    NoContext(Vec<u8>),
    /// The format of an export needs directories.
    #[error("{0}: not a directory, which this format begins with")]
    NotADirectory(String),
    /// A report is about directories.
    #[error("{0}: not a directory")]
    NotDirectory(String),
    /// The format of an export tells paths by their last component.
    #[error("two paths end in '{0}', which this format cannot tell apart")]
    SameName(String),
    /// The format of an export shows one tree.
    #[error("this format shows one directory; name one PATH")]
    OneDirectory,
    /// A format has a directive that makes no sense.
    #[error("'{0}': invalid directive")]
    Directive(String),
    /// A directory lies in itself, by a mount or a symbolic link.
    #[error("{0}: not listing already-listed directory")]
    AlreadyListed(String),
    /// The searched records cannot be read.
    #[error("cannot read the records")]
    Records(#[source] std::io::Error),
    /// A text cannot be compared with a pattern.
    #[error(transparent)]
    Text(#[from] canopy_text::Error),
    /// Answers could not be written.
    #[error("cannot write the answer")]
    Output(#[from] std::io::Error),
}

impl Error {
    /// Returns the kind, by which a caller reacts to the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Read(error) => error.kind(),
            Error::Cannot { why, .. } | Error::Start { why, .. } => why.kind(),
            Error::NoContext(_) => ErrorKind::NotFound,
            Error::Records(source) | Error::Output(source) => ErrorKind::of_io(source),
            Error::Text(error) => error.kind(),
            Error::NoName
            | Error::StandardInput
            | Error::NotADirectory(_)
            | Error::NotDirectory(_)
            | Error::SameName(_)
            | Error::OneDirectory
            | Error::Directive(_)
            | Error::AlreadyListed(_) => ErrorKind::Invalid,
        }
    }

    /// Returns whether a path that the user gave has no answer, which leaves the answers for other
    /// paths.
    pub fn is_of_path(&self) -> bool {
        match self {
            Error::Read(error) => error.is_of_path(),
            Error::Cannot { .. } | Error::Start { .. } | Error::AlreadyListed(_) => true,
            _ => false,
        }
    }

    /// Returns what a tool says that cannot do something with a path.
    pub(crate) fn cannot(what: &'static str, error: canopy_read::Error) -> Self {
        match error {
            canopy_read::Error::Lost { path, why } => Error::Cannot { what, path, why },
            error => error.into(),
        }
    }

    /// Returns what find says of a start that has no answer.
    pub(crate) fn of_start(error: canopy_read::Error) -> Self {
        match error {
            canopy_read::Error::Lost { path, why } => Error::Start { path, why },
            error => error.into(),
        }
    }

    /// Returns why a symbolic link at a path cannot be looked through.
    pub(crate) fn of_link(given: &[u8], why: Lost) -> Self {
        Error::Cannot { what: "access", path: given.to_vec(), why }
    }

    /// Returns whether the reader of the answers has gone away, which is not a fault.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Error::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

/// Returns what was found of a path. Where that path has no answer, what is said of it is added to
/// `failed`; other errors are returned.
pub(crate) fn found_or_failed<T>(
    found: canopy_read::Result<T>,
    failed: &mut Vec<Error>,
    said: impl FnOnce(canopy_read::Error) -> Error,
) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_of_path() => {
            failed.push(said(error));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Quotes a path as du, ls and stat do in messages.
fn shell_quoted(path: &[u8]) -> String {
    let style = Style::ShellEscapeAlways;
    let quoting = Quoting { style, utf8: is_utf8(), ..Quoting::default() };
    String::from_utf8_lossy(&quoting.quote(path)).into_owned()
}

impl From<canopy_index::Error> for Error {
    fn from(error: canopy_index::Error) -> Self {
        Error::Read(error.into())
    }
}

impl From<parquet::errors::ParquetError> for Error {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Error::Output(canopy_index::parquet_write_error(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn errors_have_kinds() {
        let (name, path) = (|| "a".to_owned(), || b"a".to_vec());
        let (invalid, denied) = (ErrorKind::Invalid, ErrorKind::Denied);
        let size = canopy_text::Error::Size(name());
        for (error, kind) in [
            (canopy_index::Error::NoIndex("/i".into()).into(), ErrorKind::NotFound),
            (Error::Cannot { what: "access", path: path(), why: Lost::Denied }, denied),
            (Error::Start { path: path(), why: Lost::Missing }, ErrorKind::NotFound),
            (Error::NoContext(path()), ErrorKind::NotFound),
            (Error::Records(io::ErrorKind::PermissionDenied.into()), denied),
            (Error::Output(io::ErrorKind::StorageFull.into()), ErrorKind::Exhausted),
            (Error::Output(io::ErrorKind::BrokenPipe.into()), ErrorKind::Unavailable),
            (size.into(), invalid),
            (Error::NoName, invalid),
            (Error::StandardInput, invalid),
            (Error::NotADirectory(name()), invalid),
            (Error::NotDirectory(name()), invalid),
            (Error::SameName(name()), invalid),
            (Error::OneDirectory, invalid),
            (Error::Directive(name()), invalid),
            (Error::AlreadyListed(name()), invalid),
        ] {
            assert_eq!(error.kind(), kind, "{error}");
        }
    }
}
