//! Kinds of errors, by which a caller reacts to an error of any library.

use serde::{Deserialize, Serialize};
use std::io;

/// The kind of an error, by which a caller reacts to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
    /// The requested thing does not exist.
    NotFound,
    /// The user may not do this.
    Denied,
    /// The request itself is wrong.
    Invalid,
    /// Data on disk is damaged or of another version.
    Corrupt,
    /// Others are at work on the same thing. The same request may succeed in a moment.
    Busy,
    /// Another process has taken over what was asked for, or has it. That process can do it.
    Taken,
    /// Space, a quota or another limit is used up. Somebody has to make room first.
    Exhausted,
    /// Storage or a service does not answer. Another one may, or this one later.
    Unavailable,
    /// A fault of Canopy.
    Internal,
}

/// Where a request that failed is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// At the same place, after a short wait.
    Here,
    /// At another place first: another process, host or storage. The same place may work later.
    Elsewhere,
    /// Nowhere, until somebody has changed the request, the data, the rights or the limits.
    Nowhere,
}

impl ErrorKind {
    /// All kinds.
    pub const ALL: [ErrorKind; 9] = [
        ErrorKind::NotFound,
        ErrorKind::Denied,
        ErrorKind::Invalid,
        ErrorKind::Corrupt,
        ErrorKind::Busy,
        ErrorKind::Taken,
        ErrorKind::Exhausted,
        ErrorKind::Unavailable,
        ErrorKind::Internal,
    ];

    /// Returns where a caller should try the same request again.
    pub fn retry(self) -> Retry {
        match self {
            ErrorKind::Busy => Retry::Here,
            ErrorKind::Taken | ErrorKind::Unavailable => Retry::Elsewhere,
            ErrorKind::NotFound
            | ErrorKind::Denied
            | ErrorKind::Invalid
            | ErrorKind::Corrupt
            | ErrorKind::Exhausted
            | ErrorKind::Internal => Retry::Nowhere,
        }
    }

    /// Returns the kind of an error of the operating system that a library met with its own files.
    /// Such an error does not describe the request.
    pub fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Exhausted,
            io::ErrorKind::WouldBlock
            | io::ErrorKind::Interrupted
            | io::ErrorKind::ResourceBusy
            | io::ErrorKind::ExecutableFileBusy
            | io::ErrorKind::Deadlock => ErrorKind::Busy,
            _ => ErrorKind::Unavailable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_says_where_to_try_again() {
        let retry =
            |retry: Retry| ErrorKind::ALL.into_iter().filter(move |kind| kind.retry() == retry);
        assert_eq!(Vec::from_iter(retry(Retry::Here)), [ErrorKind::Busy]);
        let elsewhere = [ErrorKind::Taken, ErrorKind::Unavailable];
        assert_eq!(Vec::from_iter(retry(Retry::Elsewhere)), elsewhere);
        assert_eq!(retry(Retry::Nowhere).count(), ErrorKind::ALL.len() - 3);
    }

    #[test]
    fn errors_of_the_system_have_kinds() {
        for (error, kind) in [
            (io::ErrorKind::NotFound, ErrorKind::NotFound),
            (io::ErrorKind::PermissionDenied, ErrorKind::Denied),
            (io::ErrorKind::StorageFull, ErrorKind::Exhausted),
            (io::ErrorKind::QuotaExceeded, ErrorKind::Exhausted),
            (io::ErrorKind::ResourceBusy, ErrorKind::Busy),
            (io::ErrorKind::Interrupted, ErrorKind::Busy),
            (io::ErrorKind::TimedOut, ErrorKind::Unavailable),
            (io::ErrorKind::ConnectionRefused, ErrorKind::Unavailable),
            (io::ErrorKind::Other, ErrorKind::Unavailable),
        ] {
            assert_eq!(ErrorKind::of_io(&error.into()), kind, "{error:?}");
        }
    }
}
