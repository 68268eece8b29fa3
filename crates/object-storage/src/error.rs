//! Errors in the name of a storage or in its settings.

use canopy_store::{ErrorKind, Invalid};
use std::io;

/// Why a storage cannot be opened. The engine's error has it as [`Invalid::Setup`].
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The name is empty.
    #[error("no storage is named")]
    NoLocation,
    /// The name has a scheme that is not S3's.
    #[error("{location}: storage is a directory or s3://BUCKET/PREFIX, not {scheme}")]
    Scheme {
        /// The name.
        location: String,
        /// The scheme.
        scheme: String,
    },
    /// There is no such directory.
    #[error("{0}: no such directory")]
    NoDirectory(String),
    /// The name has no bucket.
    #[error("{0}: no bucket is named")]
    NoBucket(String),
    /// No variable has the keys for a bucket.
    #[error(
        "s3://{0}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and \
         AWS_ENDPOINT_URL unless the bucket is Amazon's"
    )]
    NoKeys(String),
    /// A bucket cannot have this name.
    #[error("{0:?} is not a name of a bucket")]
    BucketName(String),
    /// A variable has something else than the address of a server.
    #[error("{name} is {shown}; it must be http://HOST:PORT or https://HOST:PORT")]
    Endpoint {
        /// The variable.
        name: &'static str,
        /// Its value, without what may be a password.
        shown: String,
    },
    /// A variable has characters that no value of it has.
    #[error("{0} has characters that it may not have")]
    Variable(&'static str),
    /// A prefix has characters that names of objects cannot have.
    #[error(
        "the prefix {0:?} has characters that names of objects here may not have; use letters, \
         digits, '-', '_', '.' and '/'"
    )]
    Prefix(String),
    /// The system gives no thread.
    #[error("no thread for requests: {0}")]
    Thread(io::Error),
    /// The client of the bucket refuses its settings.
    #[error("{0}")]
    Client(object_store::Error),
}

impl SetupError {
    /// Returns the kind, by which a caller reacts to the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SetupError::NoDirectory(_) => ErrorKind::NotFound,
            SetupError::NoKeys(_) => ErrorKind::Denied,
            SetupError::Thread(error) => ErrorKind::of_io(error),
            SetupError::NoLocation
            | SetupError::Scheme { .. }
            | SetupError::NoBucket(_)
            | SetupError::BucketName(_)
            | SetupError::Endpoint { .. }
            | SetupError::Variable(_)
            | SetupError::Prefix(_)
            | SetupError::Client(_) => ErrorKind::Invalid,
        }
    }
}

impl From<SetupError> for canopy_store::Error {
    fn from(error: SetupError) -> Self {
        Invalid::Setup { kind: error.kind(), cause: Box::new(error) }.into()
    }
}
