//! Bytes of a cluster map, and names of its versions.
//!
//! ```text
//! "CANOPYC3"   8 bytes: kind of the object and version of the format
//! CRC-32       4 bytes, little-endian: of all that follows
//! ClusterMap   postcard
//! ```
//!
//! A reader checks in this order: length, kind, checksum, structure, and that numbers agree. An
//! object is created whole, so a crash tears nothing.

use super::map::{ADDRESS_BYTES_MAX, ClusterMap, PROCESSES_MAX, ProcessState, SERVERS_MAX};
use canopy_store::{Error, Result};

const MAGIC: &[u8; 8] = b"CANOPYC3";
const HEAD: usize = 12;

/// Names of all versions begin so.
pub(super) const PREFIX: &str = "cluster/map/";

/// Versions above this one are damage.
const VERSION_MAX: u64 = u64::MAX / 2;

/// Returns the name of the object of a version.
pub(super) fn name_of(version: u64) -> String {
    format!("{PREFIX}{version:020}")
}

/// Returns the version that has this name.
pub(super) fn version_of(name: &str) -> Option<u64> {
    let version = name.strip_prefix(PREFIX)?.parse().ok()?;
    (name_of(version) == name).then_some(version)
}

/// Returns the bytes of a map.
pub(super) fn encode(map: &ClusterMap) -> Result<Vec<u8>> {
    let name = name_of(map.version);
    if let Some(what) = unsound(map) {
        return Err(Error::corrupt(name, what));
    }
    let head = [&MAGIC[..], &[0; 4]].concat();
    let mut bytes = postcard::to_extend(map, head)
        .map_err(|error| Error::corrupt(name, format!("cannot be encoded: {error}")))?;
    let crc = crc32fast::hash(&bytes[HEAD..]);
    bytes[8..HEAD].copy_from_slice(&crc.to_le_bytes());
    Ok(bytes)
}

/// Returns the map of a version, given the bytes of its object.
pub(super) fn decode(version: u64, bytes: &[u8]) -> Result<ClusterMap> {
    let corrupt = |what: &str| Error::corrupt(name_of(version), what);
    let Some((head, body)) = bytes.split_at_checked(HEAD) else {
        return Err(corrupt("too short for a cluster map"));
    };
    if head[..8] != *MAGIC {
        return Err(corrupt("not a cluster map that this version knows"));
    }
    if head[8..] != crc32fast::hash(body).to_le_bytes() {
        return Err(corrupt("its checksum is wrong"));
    }
    let (map, rest): (ClusterMap, _) = postcard::take_from_bytes(body)
        .map_err(|error| corrupt(&format!("not a cluster map: {error}")))?;
    if !rest.is_empty() {
        return Err(corrupt("bytes follow the cluster map"));
    }
    match unsound(&map) {
        Some(what) => Err(corrupt(what)),
        None if map.version != version => Err(corrupt("has the version of another object")),
        None => Ok(map),
    }
}

fn unsound(map: &ClusterMap) -> Option<&'static str> {
    let is_given_soundly = |one: &super::Assignment| {
        let is_serving = |process| map.is(process, ProcessState::Serving);
        one.process.is_none_or(is_serving) && one.since <= map.version
    };
    let is_long = |address: &str| address.is_empty() || address.len() > ADDRESS_BYTES_MAX;
    match () {
        () if map.version == 0 || map.version > VERSION_MAX => Some("its version is impossible"),
        () if map.processes.len() > PROCESSES_MAX => Some("more than 4096 processes"),
        () if map.servers.len() > SERVERS_MAX => Some("more than 4096 logical servers"),
        () if map.processes.values().any(|one| is_long(&one.address)) => {
            Some("an address is empty or longer than 256 bytes")
        }
        () if !map.servers.iter().all(is_given_soundly) => {
            Some("a server belongs to a process that does not serve")
        }
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::map::{Applied, ProcessId};
    use std::time::Duration;

    const LEASE: Duration = Duration::from_secs(1);

    fn map() -> ClusterMap {
        let map = ClusterMap::default().joined(ProcessId(7), "10.1.0.5:7040", LEASE, 3);
        map.joined(ProcessId(9), "10.1.0.6:7040", LEASE, 0).promoted(&Applied::new())
    }

    #[test]
    fn maps_are_read_as_they_were_written() {
        let map = map();
        assert_eq!(decode(3, &encode(&map).unwrap()).unwrap(), map);
        assert!(decode(4, &encode(&map).unwrap()).is_err(), "it is another version's object");
        assert_eq!(version_of(&name_of(3)), Some(3));
        for name in ["cluster/map/3", "cluster/map/+0000000000000000003", "cluster/tables"] {
            assert_eq!(version_of(name), None, "{name}");
        }
    }

    #[test]
    fn damaged_maps_are_refused() {
        let bytes = encode(&map()).unwrap();
        for at in 0..bytes.len() {
            assert!(decode(3, &bytes[..at]).is_err(), "the first {at} bytes");
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            assert!(decode(3, &changed).is_err(), "byte {at}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(decode(3, &longer).is_err());
    }

    #[test]
    fn sound_bytes_of_an_unsound_map_are_refused() {
        let unsound: [fn(&mut ClusterMap); 6] = [
            |map| map.servers[0].process = Some(ProcessId(8)),
            |map| map.servers[0].since = 4,
            |map| map.servers.resize(SERVERS_MAX + 1, Default::default()),
            |map| map.processes.values_mut().for_each(|one| one.address.clear()),
            |map| map.processes.values_mut().for_each(|one| one.state = ProcessState::Draining),
            |map| map.version = 0,
        ];
        for (at, change) in unsound.into_iter().enumerate() {
            let mut map = map();
            change(&mut map);
            assert!(encode(&map).is_err(), "change {at}");
            let body = postcard::to_extend(&map, Vec::new()).unwrap();
            let crc = crc32fast::hash(&body).to_le_bytes();
            assert!(decode(3, &[MAGIC, &crc[..], &body].concat()).is_err(), "change {at}");
        }
    }
}
