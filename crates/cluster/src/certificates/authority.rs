//! The cluster's own key, which makes certificates.
//!
//! It is a file that only the administrator's machine needs: servers check certificates with the
//! certificate of the key, which is in storage. Nothing of a certificate but its public key comes from
//! elsewhere: names are written by `Identity::uri` alone.

use super::der::Fields;
use super::error::CertificateError;
use super::identity::{Certified, ClusterId, Identity, Serial};
use super::records::TrustedKey;
use super::{private_file, records};
use canopy_store::storage::{Created, Storage};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::{Path, PathBuf};
use time::OffsetDateTime;

/// Days for which a certificate is valid, unless somebody says otherwise.
pub const DAYS_DEFAULT: u32 = 365;

/// Days for which a certificate can be valid.
pub const DAYS: std::ops::RangeInclusive<u32> = 1..=3650;

const DAY_S: i64 = 86_400;

/// Certificates are valid from so long before they were made on: clocks of machines differ.
const SKEW_S: i64 = 3600;

/// The cluster's key is valid for so long: another one takes its place only by hand.
const AUTHORITY_S: i64 = 100 * 365 * DAY_S;

/// The cluster's own key.
pub struct Authority {
    cluster: ClusterId,
    issuer: Issuer<'static, KeyPair>,
    /// Certificates of all keys that are trusted, that of this one first.
    certificates: Vec<String>,
    number: u32,
}

/// A certificate that was just made, with its private key.
pub struct MadeCertificate {
    /// Its contents.
    pub certified: Certified,
    /// Certificate, private key and the certificates of the cluster's keys, in PEM.
    pub(super) text: String,
}

fn failed(error: rcgen::Error) -> CertificateError {
    CertificateError::Failed { task: "make a certificate", what: error.to_string() }
}

impl Authority {
    /// Opens the key of the cluster in a storage. The first time, it makes the key in a file that
    /// nobody else can read, and puts its certificate into storage.
    ///
    /// # Errors
    ///
    /// Fails with `Unfit` if the file is not the cluster's key or others can read it, with `Invalid` if
    /// there is a key already and it is not in this file, and as storage and the file system do.
    pub fn open(
        storage: &dyn Storage,
        key_file: &Path,
        now_s: i64,
    ) -> Result<Self, CertificateError> {
        let cluster = ClusterId::of(storage)?;
        let mut trusted = records::authorities(storage)?;
        let stored = trusted.pop();
        finish_replacing(key_file, stored.as_ref())?;
        let key = match private_file::read(key_file) {
            Err(error) if is_missing(&error) && stored.is_some() => {
                return Err(CertificateError::Invalid(format!(
                    "the cluster has a key, and it is not in {}: name its file with --key",
                    key_file.display()
                )));
            }
            Err(error) if is_missing(&error) => make_key(key_file)?,
            read => key_of(key_file, &read?)?,
        };
        let newest = match stored {
            Some(newest) => newest,
            None => publish(storage, 1, &self_signed(cluster, &key, now_s)?)?,
        };
        if !is_of(&key, &newest)? {
            let what = "it is not the key of this cluster".into();
            return Err(CertificateError::Unfit { path: key_file.to_owned(), what });
        }
        let issuer = Issuer::new(parameters(cluster, now_s)?, key);
        let older = trusted.into_iter().map(|one| one.certificate);
        let certificates = [newest.certificate].into_iter().chain(older).collect();
        Ok(Authority { cluster, issuer, certificates, number: newest.number })
    }

    /// Makes a new key in place of the one in a file, which signs from now on. Servers trust both, until
    /// the old one is retired ([`retire_keys`](super::retire_keys)). If this is interrupted, opening the
    /// key completes it.
    ///
    /// # Errors
    ///
    /// Fails as `open` does, with `Invalid` if an older key is still trusted, and if another process
    /// does the same.
    pub fn replace(
        storage: &dyn Storage,
        key_file: &Path,
        now_s: i64,
    ) -> Result<Self, CertificateError> {
        let current = Authority::open(storage, key_file, now_s)?;
        if current.certificates.len() > 1 {
            let what = "an older key is still trusted: retire that one first, with --retire-key";
            return Err(CertificateError::Invalid(what.into()));
        }
        let coming = coming(key_file);
        let key = match private_file::read(&coming) {
            Err(error) if is_missing(&error) => make_key(&coming)?,
            read => key_of(&coming, &read?)?,
        };
        let certificate = self_signed(current.cluster, &key, now_s)?;
        let stored = publish(storage, current.number + 1, &certificate)?;
        if !is_of(&key, &stored)? {
            let what = "another process has made a new key just now".into();
            return Err(CertificateError::Invalid(what));
        }
        Authority::open(storage, key_file, now_s)
    }

    /// Makes a certificate and its key, and notes it in storage.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if it is to be valid for less than a day or more than ten years, and as
    /// storage does.
    pub fn issue(
        &self,
        storage: &dyn Storage,
        identity: &Identity,
        days: u32,
        now_s: i64,
    ) -> Result<MadeCertificate, CertificateError> {
        if !DAYS.contains(&days) {
            let (least, most) = (DAYS.start(), DAYS.end());
            let what = format!("certificates are valid for {least} to {most} days");
            return Err(CertificateError::Invalid(what));
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let serial = Serial::random()?;
        let not_after_s = now_s + i64::from(days) * DAY_S;
        let certified =
            Certified { cluster: self.cluster, identity: identity.clone(), serial, not_after_s };
        let parameters = leaf(&certified, now_s)?;
        let certificate = parameters.signed_by(&key, &self.issuer).map_err(failed)?;
        // Servers will read it in the same way.
        if super::identify(certificate.der())? != certified {
            let what = "it does not say what it was made for".into();
            return Err(CertificateError::Failed { task: "make a certificate", what });
        }
        records::note(storage, &certified, self.number)?;
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        let text = format!("{certificate}{key}{}", self.certificates.concat());
        Ok(MadeCertificate { certified, text })
    }
}

impl MadeCertificate {
    /// Writes certificate and key into a file that nobody else can read. With `replaces`, it takes the
    /// place of another file.
    ///
    /// # Errors
    ///
    /// Fails as the file system does.
    pub fn write(&self, file: &Path, replaces: bool) -> Result<(), CertificateError> {
        private_file::write(file, &self.text, replaces)
    }
}

/// Checks that the file of a certificate can be made, before the certificate is.
///
/// # Errors
///
/// Fails as the file system does.
pub fn check_output(file: &Path) -> Result<(), CertificateError> {
    private_file::check(file)
}

fn is_missing(error: &CertificateError) -> bool {
    matches!(error, CertificateError::File { source, .. }
        if source.kind() == std::io::ErrorKind::NotFound)
}

fn make_key(file: &Path) -> Result<KeyPair, CertificateError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    match private_file::write(file, &key.serialize_pem(), false) {
        Err(CertificateError::File { source, .. })
            if source.kind() == std::io::ErrorKind::AlreadyExists =>
        {
            // Another process has made it meanwhile.
            key_of(file, &private_file::read(file)?)
        }
        written => written.map(|()| key),
    }
}

fn key_of(file: &Path, text: &str) -> Result<KeyPair, CertificateError> {
    let key = KeyPair::from_pem(text).ok();
    let fit = key.filter(|key| key.is_compatible(&PKCS_ECDSA_P256_SHA256));
    fit.ok_or_else(|| CertificateError::Unfit {
        path: file.to_owned(),
        what: "it does not have the key of a cluster".into(),
    })
}

/// Returns the file of a key that takes the place of another one.
fn coming(key_file: &Path) -> PathBuf {
    let mut name = key_file.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Puts a new key in its place, if the storage has its certificate already.
fn finish_replacing(key_file: &Path, newest: Option<&TrustedKey>) -> Result<(), CertificateError> {
    let coming = coming(key_file);
    let text = match private_file::read(&coming) {
        Err(error) if is_missing(&error) => return Ok(()),
        text => text?,
    };
    let Some(newest) = newest else { return Ok(()) };
    if is_of(&key_of(&coming, &text)?, newest)? {
        private_file::write(key_file, &text, true)?;
        // One that stays is the same key.
        let _ = std::fs::remove_file(coming);
    }
    Ok(())
}

/// Returns whether a certificate is that of a key.
fn is_of(key: &KeyPair, trusted: &TrustedKey) -> Result<bool, CertificateError> {
    Ok(public_key_of(trusted)? == key.subject_public_key_info())
}

/// Puts the certificate of a key into storage, or returns the one that is there.
fn publish(
    storage: &dyn Storage,
    number: u32,
    certificate: &str,
) -> Result<TrustedKey, CertificateError> {
    let name = records::authority_name(number);
    let certificate = match storage.create(&name, certificate.to_owned().into())? {
        Created::Now => certificate.to_owned(),
        Created::ThereWasOne => String::from_utf8_lossy(&storage.read(&name)?).into_owned(),
    };
    Ok(TrustedKey { number, certificate })
}

fn self_signed(cluster: ClusterId, key: &KeyPair, now_s: i64) -> Result<String, CertificateError> {
    let mut parameters = parameters(cluster, now_s)?;
    parameters.serial_number = Some(SerialNumber::from_slice(Serial::random()?.bytes()));
    Ok(parameters.self_signed(key).map_err(failed)?.pem())
}

/// Returns the contents of the certificate of the cluster's key.
fn parameters(cluster: ClusterId, now_s: i64) -> Result<CertificateParams, CertificateError> {
    let mut parameters = CertificateParams::default();
    let name = format!("Canopy cluster {cluster}");
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    // None below it makes certificates.
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    parameters.not_before = moment(now_s - SKEW_S)?;
    parameters.not_after = moment(now_s + AUTHORITY_S)?;
    Ok(parameters)
}

/// Returns the contents of a certificate. Only a server's is fit to answer connections.
fn leaf(certified: &Certified, now_s: i64) -> Result<CertificateParams, CertificateError> {
    let mut parameters = CertificateParams::default();
    let uri = certified.identity.uri(certified.cluster).try_into().map_err(failed)?;
    parameters.subject_alt_names = vec![SanType::URI(uri)];
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, certified.identity.to_string());
    parameters.serial_number = Some(SerialNumber::from_slice(certified.serial.bytes()));
    parameters.is_ca = IsCa::ExplicitNoCa;
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if certified.identity == Identity::Server {
        parameters.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    parameters.use_authority_key_identifier_extension = true;
    parameters.not_before = moment(now_s - SKEW_S)?;
    parameters.not_after = moment(certified.not_after_s)?;
    Ok(parameters)
}

fn moment(seconds: i64) -> Result<OffsetDateTime, CertificateError> {
    OffsetDateTime::from_unix_timestamp(seconds)
        .map_err(|_| CertificateError::Invalid("the clock of this machine is wrong".into()))
}

/// Returns the public key in a certificate of the cluster's.
fn public_key_of(trusted: &TrustedKey) -> Result<Vec<u8>, CertificateError> {
    let damaged = || CertificateError::Corrupt {
        object: records::authority_name(trusted.number),
        what: "it is not a certificate".into(),
    };
    let der = CertificateDer::from_pem_slice(trusted.certificate.as_bytes());
    let der = der.map_err(|_| damaged())?;
    Ok(Fields::read(&der).ok_or_else(damaged)?.public_key)
}
