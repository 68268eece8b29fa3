//! Certificates of a cluster: its own key makes one for each server, node and user, and each
//! connection between machines needs one at both ends.
//!
//! | to change | read |
//! | --- | --- |
//! | names in certificates, and who may act for whom | `identity` |
//! | the cluster's key; contents of certificates | `authority` |
//! | fields of certificates in DER | `der` |
//! | the file of a holder | `credentials` |
//! | which certificates are accepted | `trust` |
//! | objects in storage: what was made and revoked | `records` |
//!
//! Invariants:
//!
//! - A certificate is accepted if a key of the cluster that was not retired has signed it, it names one holder of this
//!   cluster in its one spelling, it is valid now, and no revocation of it is known.
//! - A private key is read only from a file that nobody else can read.
//! - An identity is never taken from anything but a certificate: not from a message or an address.

mod authority;
mod credentials;
mod der;
mod error;
mod identity;
mod private_file;
mod records;
mod trust;

pub use authority::{Authority, DAYS, DAYS_DEFAULT, MadeCertificate, check_output};
pub use credentials::Credentials;
pub use error::{CertificateError, Refusal};
pub use identity::{Certified, ClusterId, Identity, NodeName, Serial, identify};
pub use records::{Issued, issued, retire_keys, revoke};
pub use trust::{Trust, client_config, is_of_newest_key, server_config};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use std::sync::Arc;

/// Returns the cryptography of all connections: the one that buckets use already.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
