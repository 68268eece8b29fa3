//! Versions of the cluster map in storage.
//!
//! A version is created once, after the one before it, and computed from that one alone. Old versions
//! are removed, and somebody who slept may create one again. So a map counts only if no greater
//! version is found after it was read: then it had never been removed.
//!
//! The greatest version is found by asking for names (`canopy_store::landmarks`), since listings of
//! a shared directory may miss it.

use super::codec::{PREFIX, decode, encode, name_of, version_of};
use super::map::ClusterMap;
use canopy_store::landmarks::{greatest, is_landmark};
use canopy_store::storage::{Created, Storage};
use canopy_store::{Error, Result};

/// Versions that stay beside the newest, so that an administrator can remove a damaged one.
const KEPT: u64 = 4;

/// Reads that others invalidate so many times give up.
const ATTEMPTS: u32 = 64;

/// Returns whether there is a version.
fn exists(storage: &dyn Storage, version: u64) -> Result<bool> {
    match storage.size(&name_of(version)) {
        Err(error) if error.is_not_found() => Ok(false),
        size => size.map(|_| true),
    }
}

/// Returns the greatest version at some moment since the call, which is `known` or was created later.
/// Asks for a name per zero bit of `known` if that is the greatest.
pub(super) fn greatest_version(storage: &dyn Storage, known: u64) -> Result<u64> {
    greatest(known, |version| exists(storage, version))
}

/// Returns the newest map at some moment since the call; nothing if there is none. `known` is a version
/// that was created, or 0.
///
/// # Errors
///
/// Fails with `Corrupt` if it is damaged, and as storage does.
pub fn newest_map(storage: &dyn Storage, known: u64) -> Result<Option<ClusterMap>> {
    let mut version = greatest_version(storage, known)?;
    for _ in 0..ATTEMPTS {
        if version == 0 {
            return Ok(None);
        }
        let bytes = storage.read(&name_of(version));
        let greater = greatest_version(storage, version)?;
        if greater == version {
            return decode(version, &bytes?).map(Some);
        }
        version = greater;
    }
    let error = std::io::Error::other("newer versions keep appearing");
    Err(Error::storage(name_of(version), error))
}

/// Creates the map's version, unless another map has it. Whatever this returns, only the newest map
/// counts: after an error, the version may be there or appear later.
pub(super) fn commit(storage: &dyn Storage, map: &ClusterMap) -> Result<Created> {
    storage.create(&name_of(map.version), encode(map)?.into())
}

/// Removes versions that no reader needs once `newest` was found to be the newest one.
pub(super) fn remove_old(storage: &dyn Storage, newest: u64) -> Result<()> {
    for listed in storage.list(PREFIX, "")? {
        let version = version_of(&listed.name);
        let version =
            version.filter(|one| one.saturating_add(KEPT) < newest && !is_landmark(*one, newest));
        if version.is_some() {
            storage.remove(&listed.name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::map::{Applied, ProcessId};
    use canopy_store::storage::MemoryStorage;
    use std::time::Duration;

    const LEASE: Duration = Duration::from_secs(1);

    #[test]
    fn the_newest_map_is_found_whatever_was_removed() {
        let storage = MemoryStorage::default();
        assert!(newest_map(&storage, 0).unwrap().is_none());
        let mut map = ClusterMap::default().joined(ProcessId(1), "one", LEASE, 4);
        for version in 1..=300 {
            assert_eq!(map.version, version);
            assert_eq!(commit(&storage, &map).unwrap(), Created::Now);
            assert_eq!(commit(&storage, &map).unwrap(), Created::ThereWasOne);
            remove_old(&storage, version).unwrap();
            for known in [0, 1, version / 2, version - 1, version] {
                assert_eq!(newest_map(&storage, known).unwrap().unwrap(), map);
            }
            map = map.promoted(&Applied::new());
        }
        let left = storage.list(PREFIX, "").unwrap().len();
        assert!(left < 24, "{left} versions are left");
    }

    #[test]
    fn a_version_that_is_created_again_counts_for_nobody() {
        let storage = MemoryStorage::default();
        let mut map = ClusterMap::default().joined(ProcessId(1), "one", LEASE, 4);
        let mut late = None;
        for version in 1..=100 {
            if version == 53 {
                late = Some(map.clone());
            }
            commit(&storage, &map).unwrap();
            remove_old(&storage, version).unwrap();
            map = map.promoted(&Applied::new());
        }
        let late = late.unwrap().joined(ProcessId(2), "another", LEASE, 0);
        let late = ClusterMap { version: 53, ..late };
        assert_eq!(commit(&storage, &late).unwrap(), Created::Now, "it had been removed");
        for known in [0, 52, 53, 99, 100] {
            assert_eq!(newest_map(&storage, known).unwrap().unwrap().version, 100);
        }
        remove_old(&storage, 100).unwrap();
        assert!(!exists(&storage, 53).unwrap(), "it goes again");
    }

    #[test]
    fn a_damaged_newest_map_is_an_error() {
        let storage = MemoryStorage::default();
        commit(&storage, &ClusterMap::default().joined(ProcessId(1), "one", LEASE, 4)).unwrap();
        storage.create(&name_of(2), b"CANOPYC2".to_vec().into()).unwrap();
        let error = newest_map(&storage, 0).unwrap_err().to_string();
        assert_eq!(error, "cluster/map/00000000000000000002: too short for a cluster map");
        // Once it is removed by hand, the version before counts.
        storage.remove(&name_of(2)).unwrap();
        assert_eq!(newest_map(&storage, 1).unwrap().unwrap().version, 1);
    }
}
