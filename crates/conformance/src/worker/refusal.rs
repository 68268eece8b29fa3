//! Reply of a call that failed.

use nix::errno::Errno;

/// Reason why a call has no value.
pub enum Refusal {
    /// An error of the kernel.
    Errno(Errno),
    /// The suite itself is wrong or could not do its part, which fails every case.
    Broken(String),
}

impl Refusal {
    /// Says that the suite is at fault.
    pub fn broken(reason: impl Into<String>) -> Self {
        Self::Broken(reason.into())
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<rustix::io::Errno> for Refusal {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Errno(Errno::from_raw(errno.raw_os_error()))
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::Errno(Errno::from_raw(errno)),
            None => Self::Broken(error.to_string()),
        }
    }
}

/// A call's value as text, empty for calls that have none.
pub type Answer = Result<String, Refusal>;

/// The answer of a call that has no value.
pub fn done<T, E: Into<Refusal>>(result: Result<T, E>) -> Answer {
    result.map(|_| String::new()).map_err(Into::into)
}

/// The answer of a call whose value is a number or the like.
pub fn value<T: ToString, E: Into<Refusal>>(result: Result<T, E>) -> Answer {
    result.map(|value| value.to_string()).map_err(Into::into)
}
