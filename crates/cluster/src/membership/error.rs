//! Errors of a membership.

use super::map::{MapProcess, ProcessId, Terms};
use canopy_store::ErrorKind;
use std::io;
use std::time::Duration;

/// An error of a process' membership.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// Storage failed, or the map in it is damaged.
    #[error(transparent)]
    Storage(#[from] canopy_store::Error),
    /// A living process of the cluster has this address.
    #[error("{address} is the address of process {process}, which is running")]
    AddressTaken {
        /// The address.
        address: String,
        /// The process that has it.
        process: ProcessId,
    },
    /// A living process of the cluster has a lease of another length.
    #[error(
        "the lease of {address}, which is running, lasts {seconds} s, and all processes need one length: \
         start this one with --lease {seconds}, or end all others first",
        seconds = .lease.as_secs_f64()
    )]
    OtherLease {
        /// The address of that process.
        address: String,
        /// The length of its lease.
        lease: Duration,
    },
    /// A living process of the cluster has a certificate and this one has none, or the reverse.
    #[error(
        "{address}, which is running, has {other} certificate, and this process has {own}: all processes of \
         a cluster need certificates, or none; end all others first",
        other = article(*.has_certificate),
        own = if *.has_certificate { "none" } else { "one" },
    )]
    OtherCertificates {
        /// The address of that process.
        address: String,
        /// Whether that process has a certificate.
        has_certificate: bool,
    },
    /// An address or a number is beyond its limit.
    #[error("{0}")]
    Limit(String),
    /// It did not happen in time.
    #[error("after {} s, the process still waits to {what}{}", .limit.as_secs_f32(), because(.cause))]
    TimedOut {
        /// The event that did not happen.
        what: &'static str,
        /// How long it was waited for.
        limit: Duration,
        /// Last failure of storage or of a server, if any.
        cause: Option<String>,
    },
}

fn because(cause: &Option<String>) -> String {
    cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default()
}

fn article(has_certificate: bool) -> &'static str {
    if has_certificate { "a" } else { "no" }
}

impl MembershipError {
    /// Returns the error of a process whose terms differ from those of a living one.
    pub(super) fn other_terms(own: Terms, living: &MapProcess) -> Self {
        let MapProcess { address, has_certificate, .. } = living.clone();
        match has_certificate == own.has_certificate {
            true => MembershipError::OtherLease { address, lease: living.lease() },
            false => MembershipError::OtherCertificates { address, has_certificate },
        }
    }

    /// Returns whether storage can be read and not be written, by this process or by any.
    pub(super) fn forbids_writing(&self) -> bool {
        let MembershipError::Storage(canopy_store::Error::Storage { source, .. }) = self else {
            return false;
        };
        [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem]
            .contains(&source.kind())
    }

    /// Returns the kind, by which a caller reacts to the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            MembershipError::Storage(error) => error.kind(),
            MembershipError::AddressTaken { .. } | MembershipError::TimedOut { .. } => {
                ErrorKind::Busy
            }
            MembershipError::Limit(_)
            | MembershipError::OtherLease { .. }
            | MembershipError::OtherCertificates { .. } => ErrorKind::Invalid,
        }
    }
}
