//! Objects about certificates in the cluster's storage. Each is created once and never changed:
//!
//! ```text
//! cluster/authority             the certificate of the cluster's first key, in PEM
//! cluster/authority-NUMBER      that of a later key, numbered from 2 on: the newest one signs
//! cluster/retired/NUMBER        "AT\n": the key of this number is not trusted since that time
//! cluster/certificates/SERIAL   "NAME UNTIL KEY\n": the name in a certificate, the end of its validity
//!                               in seconds since 1970, and the number of the key that signed it (not in
//!                               old records); written before the certificate is given out
//! cluster/revoked/SERIAL        "AT\n": it was revoked at that time
//! ```
//!
//! Revocations and keys are never removed, so a listing that misses what is created meanwhile still has
//! all earlier ones.

use super::error::CertificateError;
use super::identity::{Certified, ClusterId, Identity, Serial};
use canopy_store::storage::{Created, Storage};
use std::collections::HashSet;

pub(super) const AUTHORITY: &str = "cluster/authority";
const RETIRED: &str = "cluster/retired/";
const ISSUED: &str = "cluster/certificates/";
const REVOKED: &str = "cluster/revoked/";

/// A certificate that was made, as storage lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// Its contents.
    pub certified: Certified,
    /// Whether it was revoked.
    pub is_revoked: bool,
    /// Whether the key that signed it was retired, as far as that is recorded.
    pub is_retired: bool,
}

fn corrupt(object: &str, what: &str) -> CertificateError {
    CertificateError::Corrupt { object: object.to_owned(), what: what.to_owned() }
}

fn text_of(storage: &dyn Storage, object: &str) -> Result<String, CertificateError> {
    let bytes = storage.read(object)?;
    String::from_utf8(bytes.into()).map_err(|_| corrupt(object, "it is not text"))
}

/// Notes a certificate that is about to be given out, with the number of the key that signed it.
///
/// # Errors
///
/// Fails as storage does, and if there is a certificate of this number.
pub(super) fn note(
    storage: &dyn Storage,
    certified: &Certified,
    key: u32,
) -> Result<(), CertificateError> {
    let name = certified.identity.uri(certified.cluster);
    let text = format!("{name} {} {key}\n", certified.not_after_s);
    match storage.create(&format!("{ISSUED}{}", certified.serial), text.into())? {
        Created::Now => Ok(()),
        Created::ThereWasOne => Err(CertificateError::Failed {
            task: "make a certificate",
            what: "its serial number was given before".into(),
        }),
    }
}

/// Returns the certificates of a cluster, by their serial numbers.
///
/// # Errors
///
/// Fails with `Corrupt` if an object is damaged, and as storage does.
pub fn issued(storage: &dyn Storage) -> Result<Vec<Issued>, CertificateError> {
    let cluster = ClusterId::of(storage)?;
    let revoked = revoked(storage)?;
    let trusted = HashSet::<u32>::from_iter(authorities(storage)?.iter().map(|key| key.number));
    let mut all = Vec::new();
    for serial in serials(storage, ISSUED)? {
        let object = format!("{ISSUED}{serial}");
        let text = text_of(storage, &object)?;
        let noted = parse(&text, serial).filter(|(certified, _)| certified.cluster == cluster);
        let (certified, key) = noted.ok_or_else(|| corrupt(&object, "it names no certificate"))?;
        let is_retired = key.is_some_and(|key| !trusted.contains(&key));
        all.push(Issued { certified, is_revoked: revoked.contains(&serial), is_retired });
    }
    Ok(all)
}

/// Reads the record of a certificate, and the number of its key.
fn parse(text: &str, serial: Serial) -> Option<(Certified, Option<u32>)> {
    let (name, rest) = text.strip_suffix('\n')?.split_once(' ')?;
    let (until, key) = match rest.split_once(' ') {
        Some((until, key)) => (until, Some(key.parse().ok()?)),
        None => (rest, None),
    };
    let (cluster, identity) = Identity::parse(name)?;
    Some((Certified { cluster, identity, serial, not_after_s: until.parse().ok()? }, key))
}

/// Revokes a certificate for good. Returns whether it was not revoked before.
///
/// # Errors
///
/// Fails with `Invalid` if the cluster made no such certificate, and as storage does.
pub fn revoke(storage: &dyn Storage, serial: Serial, now_s: i64) -> Result<bool, CertificateError> {
    match storage.read(&format!("{ISSUED}{serial}")) {
        Err(error) if error.is_not_found() => {
            let what = format!("the cluster made no certificate with the serial number {serial}");
            return Err(CertificateError::Invalid(what));
        }
        noted => noted?,
    };
    let created = storage.create(&format!("{REVOKED}{serial}"), format!("{now_s}\n").into())?;
    Ok(created == Created::Now)
}

/// Returns the serial numbers of all certificates that were revoked.
///
/// # Errors
///
/// Fails with `Corrupt` if one has another name than revocations have, and as storage does.
pub(super) fn revoked(storage: &dyn Storage) -> Result<HashSet<Serial>, CertificateError> {
    Ok(serials(storage, REVOKED)?.into_iter().collect())
}

fn serials(storage: &dyn Storage, prefix: &str) -> Result<Vec<Serial>, CertificateError> {
    let serial = |name: &str| {
        let serial = name.strip_prefix(prefix).and_then(Serial::parse);
        serial.ok_or_else(|| corrupt(name, "its name is not a serial number"))
    };
    storage.list(prefix, "")?.iter().map(|listed| serial(&listed.name)).collect()
}

/// A key of the cluster that is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TrustedKey {
    /// The number of the key, from 1 on.
    pub(super) number: u32,
    /// Its certificate, in PEM.
    pub(super) certificate: String,
}

/// Returns the name of the object with the certificate of a key.
pub(super) fn authority_name(number: u32) -> String {
    match number {
        1 => AUTHORITY.to_owned(),
        number => format!("{AUTHORITY}-{number}"),
    }
}

/// Returns the keys of the cluster that are trusted, the newest one last; none if it has none yet.
///
/// # Errors
///
/// Fails with `Corrupt` if an object has a name that none has, and as storage does.
pub(super) fn authorities(storage: &dyn Storage) -> Result<Vec<TrustedKey>, CertificateError> {
    let number_of = |name: &str| match name.strip_prefix(AUTHORITY)? {
        "" => Some(1),
        rest => rest.strip_prefix('-')?.parse::<u32>().ok().filter(|number| *number > 1),
    };
    // A key is retired once there is a newer one: in this order, one is always found.
    let retired = storage.list(RETIRED, "")?;
    let retired = HashSet::<&str>::from_iter(retired.iter().map(|listed| listed.name.as_str()));
    let mut trusted = Vec::new();
    for listed in storage.list(AUTHORITY, "")? {
        let number = number_of(&listed.name);
        let number = number.ok_or_else(|| corrupt(&listed.name, "it is not the name of a key"))?;
        if !retired.contains(format!("{RETIRED}{number}").as_str()) {
            trusted.push(TrustedKey { number, certificate: text_of(storage, &listed.name)? });
        }
    }
    trusted.sort_by_key(|one| one.number);
    Ok(trusted)
}

/// Has no server trust any key but the newest one from now on. Returns how many were trusted before
/// beside it.
///
/// # Errors
///
/// Fails as storage does.
pub fn retire_keys(storage: &dyn Storage, now_s: i64) -> Result<usize, CertificateError> {
    let trusted = authorities(storage)?;
    let old = trusted.len().saturating_sub(1);
    for one in &trusted[..old] {
        storage.create(&format!("{RETIRED}{}", one.number), format!("{now_s}\n").into())?;
    }
    Ok(old)
}
