//! Errors of arguments of GUFI's functions.

use datafusion::error::DataFusionError;

/// A result of a function.
pub(super) type Result<T> = std::result::Result<T, Error>;

/// Reason why a function has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// A text is not a histogram that could be added.
    #[error("not a histogram of this kind: '{0}'")]
    Histogram(String),
    /// A text is not a histogram of ages that could be added.
    #[error("not a histogram of ages from one reference: '{0}'")]
    Ages(String),
    /// A histogram of powers cannot be begun.
    #[error("bad base or number of buckets of a histogram: {base}, {buckets}")]
    Buckets {
        /// The base of the powers.
        base: u64,
        /// How many powers there are.
        buckets: u64,
    },
    /// Histograms of powers do not fit each other.
    #[error("histograms of different bases or numbers of buckets")]
    OtherBuckets,
    /// A unit of blocksize() that there is not.
    #[error("bad unit of blocksize(): '{0}'")]
    BlockUnit(String),
    /// A size below zero.
    #[error("bad size of blocksize(): {0}")]
    Size(i64),
    /// A form of times that there is not.
    #[error("bad format of a time: '{0}'")]
    TimeFormat(String),
    /// A time that no calendar has.
    #[error("bad time: {0}")]
    Time(i64),
    /// Values are of a type that cannot be read.
    #[error("{}", .0.strip_backtrace())]
    Values(#[from] DataFusionError),
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        DataFusionError::Execution(error.to_string())
    }
}
