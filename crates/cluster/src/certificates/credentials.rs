//! The file of a holder: a certificate, its private key, and the certificates of the cluster's keys that
//! were trusted when it was made, in PEM and in this order. Only its owner may be able to read it.

use super::authority::MadeCertificate;
use super::error::{CertificateError, Refusal};
use super::identity::{Certified, identify};
use super::{private_file, provider};
use parking_lot::RwLock;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Keys of a cluster that are trusted at once, at most.
const KEYS_MAX: usize = 2;

/// A certificate with its private key, as a process uses it.
#[derive(Debug)]
pub struct Credentials {
    file: PathBuf,
    current: RwLock<Current>,
}

#[derive(Clone, Debug)]
struct Current {
    certified: Certified,
    key: Arc<CertifiedKey>,
    /// Certificates of the cluster's keys.
    authorities: Vec<CertificateDer<'static>>,
}

impl Credentials {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Fails with `Unfit` if it has something else, or if others can read it, and as the file system
    /// does.
    pub fn open(file: &Path) -> Result<Arc<Self>, CertificateError> {
        let current = RwLock::new(read(file, &private_file::read(file)?)?);
        Ok(Arc::new(Credentials { file: file.to_owned(), current }))
    }

    /// Takes a certificate that was just made, without a file of its own.
    ///
    /// # Errors
    ///
    /// Fails if the library cannot use its key.
    pub fn of_made(made: &MadeCertificate) -> Result<Arc<Self>, CertificateError> {
        let current = RwLock::new(read(Path::new(""), &made.text)?);
        Ok(Arc::new(Credentials { file: PathBuf::new(), current }))
    }

    /// Reads the file again, so that a certificate that was renewed counts from the next connection on.
    /// Returns whether it changed. If the file is wrong now, the one that was read before stays.
    ///
    /// # Errors
    ///
    /// Fails as `open` does, and with `Refused` if the file is of another cluster or holder, or all keys
    /// of the cluster are others.
    pub fn reload(&self) -> Result<bool, CertificateError> {
        if self.file.as_os_str().is_empty() {
            return Ok(false);
        }
        let new = read(&self.file, &private_file::read(&self.file)?)?;
        let mut current = self.current.write();
        let is_known = new.authorities.iter().any(|one| current.authorities.contains(one));
        if new.certified.cluster != current.certified.cluster || !is_known {
            return Err(Refusal::OtherCluster.into());
        }
        if new.certified.identity != current.certified.identity {
            return Err(Refusal::Name.into());
        }
        let has_changed = new.certified.serial != current.certified.serial;
        if has_changed {
            *current = new;
        }
        Ok(has_changed)
    }

    /// Returns the contents of the certificate.
    pub fn certified(&self) -> Certified {
        self.current.read().certified.clone()
    }

    /// Returns the certificates of the cluster's keys.
    pub(super) fn authorities(&self) -> Vec<CertificateDer<'static>> {
        self.current.read().authorities.clone()
    }

    /// Returns the certificate.
    pub(super) fn leaf(&self) -> Option<CertificateDer<'static>> {
        self.key().cert.first().cloned()
    }

    fn key(&self) -> Arc<CertifiedKey> {
        self.current.read().key.clone()
    }
}

fn read(file: &Path, text: &str) -> Result<Current, CertificateError> {
    let unfit = |what: &str| CertificateError::Unfit { path: file.to_owned(), what: what.into() };
    let odd = || unfit("it does not have a certificate, its key and the cluster's certificate");
    let certificates =
        CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    let mut authorities = certificates.map_err(|_| odd())?;
    if !(2..=1 + KEYS_MAX).contains(&authorities.len()) {
        return Err(odd());
    }
    let leaf = authorities.remove(0);
    let keys = PrivateKeyDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    let Ok([key]) = <[_; 1]>::try_from(keys.map_err(|_| odd())?) else { return Err(odd()) };
    let certified = identify(&leaf)?;
    let key = CertifiedKey::from_der(vec![leaf], key, &provider())
        .map_err(|_| unfit("its key does not belong to its certificate"))?;
    Ok(Current { certified, key: Arc::new(key), authorities })
}

impl ResolvesServerCert for Credentials {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.key())
    }
}

impl ResolvesClientCert for Credentials {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.key())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
