//! Errors of certificates.

use canopy_model::ErrorKind;
use std::io;
use std::path::{Path, PathBuf};

/// An error of keys and certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The system could not read or write a file.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file is not fit to be used: others can read it, or it contains something else.
    #[error("{}: {what}", .path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// Storage failed.
    #[error(transparent)]
    Storage(#[from] canopy_store::Error),
    /// The storage has no cluster, or its list of servers cannot be read.
    #[error("{0}")]
    Cluster(String),
    /// An object of the cluster in storage is damaged.
    #[error("{object}: {what}")]
    Corrupt {
        /// Name of the object.
        object: String,
        /// Description of the damage.
        what: String,
    },
    /// The caller asked for a certificate that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// A certificate is refused.
    #[error("the certificate is refused: {0}")]
    Refused(Refusal),
    /// The library that makes or uses certificates failed.
    #[error("cannot {task}: {what}")]
    Failed {
        /// The task that failed.
        task: &'static str,
        /// The reason.
        what: String,
    },
}

/// Reason to refuse a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not in the encoding of certificates.
    #[error("it is damaged")]
    Encoding,
    /// It came with certificates between it and the cluster's key, which there never are.
    #[error("certificates of others came with it")]
    Chain,
    /// Its name is not exactly one that a cluster gives.
    #[error("it does not name one server, node or user")]
    Name,
    /// Its serial number is not one that a cluster gives.
    #[error("its serial number is not one of a cluster")]
    Serial,
    /// It is of another cluster.
    #[error("it is of another cluster")]
    OtherCluster,
    /// It was revoked.
    #[error("it was revoked")]
    Revoked,
    /// It is no longer valid.
    #[error("it has expired")]
    Expired,
    /// The key that has signed it is not trusted, or not any more.
    #[error("no key that the cluster trusts has signed it")]
    Key,
    /// A server is asked for, and it is for a node or a user.
    #[error("it is not a server's")]
    NotServer,
}

impl CertificateError {
    /// Names the file of a certificate that is refused.
    pub(crate) fn of_file(self, file: &Path) -> Self {
        let CertificateError::Refused(refusal) = self else { return self };
        let advice = match refusal {
            Refusal::Expired => "; 'canopy cluster certificate --replace' renews it",
            _ => "",
        };
        let what = format!("the certificate is refused: {refusal}{advice}");
        CertificateError::Unfit { path: file.into(), what }
    }

    /// Returns the kind, by which a caller reacts to the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CertificateError::File { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => ErrorKind::NotFound,
                io::ErrorKind::PermissionDenied => ErrorKind::Denied,
                _ => ErrorKind::Unavailable,
            },
            CertificateError::Storage(error) => error.kind(),
            CertificateError::Unfit { .. }
            | CertificateError::Cluster(_)
            | CertificateError::Invalid(_) => ErrorKind::Invalid,
            CertificateError::Corrupt { .. } => ErrorKind::Corrupt,
            CertificateError::Refused(_) => ErrorKind::Denied,
            CertificateError::Failed { .. } => ErrorKind::Internal,
        }
    }
}

impl From<Refusal> for CertificateError {
    fn from(refusal: Refusal) -> Self {
        CertificateError::Refused(refusal)
    }
}
