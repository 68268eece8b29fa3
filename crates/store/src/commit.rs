//! Reading and changing a manifest, by the rules of `docs/engine.md`.

use crate::environment::Environment;
use crate::error::{Contended, Error, Invalid, Result};
use crate::landmarks;
use crate::log::retry_pause;
use crate::manifest::{Manifest, NONCES, State, Version};
use crate::names::{TableId, version_of};
use crate::storage::Created;
use std::time::Duration;

/// A commit that others preceded so many times gives up.
const ATTEMPTS: u32 = 64;

/// Retries of a write whose outcome is not known.
const RETRIES: u32 = 5;

/// Outcome of an attempt to create a version.
enum Outcome {
    Committed,
    /// Another process created the version first.
    Preceded,
}

/// The versions before and after a change.
#[derive(Clone, Copy)]
pub(crate) struct Versions {
    /// The current version, which is changed.
    pub(crate) before: Version,
    /// The version that contains the change.
    pub(crate) this: Version,
}

/// Returns the current manifest of a table.
pub(crate) fn current(environment: &Environment, table: TableId) -> Result<Manifest> {
    let mut latest = latest_version(environment, table, 0)?;
    for _ in 0..ATTEMPTS {
        let read = read(environment, table, latest);
        // Somebody who slept may have written the version again after it was collected; then there
        // is a later one.
        let listed = latest_version(environment, table, latest)?;
        match read {
            Err(error) if error.is_not_found() && listed > latest => {}
            Ok(_) if listed > latest => {}
            read => return read,
        }
        latest = listed;
    }
    Err(Contended::Table(table).into())
}

/// Returns the greatest version from `from` on, which was created before.
pub(crate) fn latest_version(environment: &Environment, table: TableId, from: u64) -> Result<u64> {
    if !environment.storage.has_ordered_listings() {
        return latest_version_by_name(environment, table, from);
    }
    let after = from.checked_sub(1).map(|before| table.manifest(before)).unwrap_or_default();
    let listed = environment.storage.list(&table.manifests(), &after)?;
    let versions = listed.iter().filter_map(|one| version_of(&one.name));
    versions.max().ok_or_else(|| Error::NotFound(format!("table {table}")))
}

/// Like `latest_version`, but trusts no listing: it only says where to begin.
fn latest_version_by_name(environment: &Environment, table: TableId, from: u64) -> Result<u64> {
    let storage = &environment.storage;
    let known = match from {
        0 => {
            let listed = storage.list(&table.manifests(), "")?;
            listed.iter().filter_map(|one| version_of(&one.name)).max().unwrap_or(0)
        }
        from => from,
    };
    let exists = |version| match storage.size(&table.manifest(version)) {
        Err(error) if error.is_not_found() => Ok(false),
        size => size.map(|_| true),
    };
    match landmarks::greatest(known, exists)? {
        0 => Err(Error::NotFound(format!("table {table}"))),
        version => Ok(version),
    }
}

/// Returns the manifest of a version that a checkpoint keeps.
pub(crate) fn read_version(
    environment: &Environment,
    table: TableId,
    version: Version,
) -> Result<Manifest> {
    let manifest = read(environment, table, version.number)?;
    match manifest.version == version {
        true => Ok(manifest),
        false => Err(Error::NotFound(table.manifest(version.number))),
    }
}

/// Returns what lies under a version's number.
pub(crate) fn read(environment: &Environment, table: TableId, version: u64) -> Result<Manifest> {
    let name = table.manifest(version);
    let manifest = Manifest::decode(&name, &environment.storage.read(&name)?)?;
    match manifest.version.number == version {
        true => Ok(manifest),
        false => Err(Error::corrupt(name, format!("has version {}", manifest.version.number))),
    }
}

/// Creates the first version of a table.
pub(crate) fn create(environment: &Environment, table: TableId, state: State) -> Result<Manifest> {
    let version = Version { number: 1, nonce: environment.random.next_u64() };
    let manifest = Manifest { version, nonces_before: Vec::new(), state };
    match attempt(environment, table, &manifest)? {
        Outcome::Committed => Ok(manifest),
        Outcome::Preceded => Err(Invalid::TableExists(table).into()),
    }
}

/// Changes the state of a table and returns the manifest that has the change. `change` gets the
/// state that it changes and the versions before and after; it runs again if others were first, and
/// its error ends the attempt. An error of storage leaves it open whether the change happened.
pub(crate) fn commit<T>(
    environment: &Environment,
    table: TableId,
    known: Option<&Manifest>,
    mut change: impl FnMut(&mut State, Versions) -> Result<T>,
) -> Result<(Manifest, T)> {
    // A stale manifest is not a base: its next version may have been collected, and then seems
    // free.
    let is_current = |known: &&Manifest| {
        let number = known.version.number;
        latest_version(environment, table, number).is_ok_and(|latest| latest == number)
    };
    let mut base = match known.filter(is_current) {
        Some(known) => known.clone(),
        None => current(environment, table)?,
    };
    for tries in 0..ATTEMPTS {
        if tries > 0 {
            let most_ms = 1 << tries.min(6);
            let wait_ms = environment.random.next_u64() % most_ms;
            environment.clock.sleep(Duration::from_millis(wait_ms));
            base = current(environment, table)?;
        }
        let mut nonces_before = vec![base.version.nonce];
        nonces_before.extend(base.nonces_before.iter().take(NONCES - 1));
        let (number, nonce) = (base.version.number + 1, environment.random.next_u64());
        let version = Version { number, nonce };
        let mut next = Manifest { version, nonces_before, state: base.state.clone() };
        let versions = Versions { before: base.version, this: version };
        let result = change(&mut next.state, versions);
        // A failed check may be true only of a stale state, so retry with the current one.
        if result.is_err() && known.is_some() && tries == 0 {
            continue;
        }
        let result = result?;
        match attempt(environment, table, &next)? {
            Outcome::Committed => return Ok((next, result)),
            Outcome::Preceded => {}
        }
    }
    Err(Contended::Table(table).into())
}

/// Tries to create a version whose predecessor was read.
fn attempt(environment: &Environment, table: TableId, next: &Manifest) -> Result<Outcome> {
    let number = next.version.number;
    let name = table.manifest(number);
    let bytes = next.encode()?;
    for tries in 1.. {
        let created = environment.storage.create(&name, bytes.clone());
        match created {
            // It was refused before it was tried.
            Err(Error::Invalid(_)) => return created.map(|_| Outcome::Preceded),
            Ok(Created::ThereWasOne) if tries == 1 => return Ok(Outcome::Preceded),
            Ok(Created::Now) if latest_version(environment, table, number)? == number => {
                return Ok(Outcome::Committed);
            }
            _ => {}
        }
        // It is ours if the current manifest says so; what lies there under this version may be
        // what somebody wrote who slept.
        match (current(environment, table), created) {
            (Ok(current), _) if current.version.number >= number => {
                return outcome(table, next, &current);
            }
            (Ok(_), Err(_)) if tries < RETRIES => {}
            (Err(error), _) if tries < RETRIES && (number > 1 || !error.is_not_found()) => {}
            (Err(_), Err(_)) if tries < RETRIES => {}
            (_, Err(failed)) => return Err(failed),
            (Err(error), Ok(_)) => return Err(error),
            (Ok(_), Ok(_)) => break,
        }
        environment.clock.sleep(retry_pause(tries));
    }
    Err(Error::corrupt(name, "was created, and is not listed"))
}

/// Returns whether `current` has `next` in its history.
fn outcome(table: TableId, next: &Manifest, current: &Manifest) -> Result<Outcome> {
    let (latest, own) = (current.version.number, next.version.number);
    let nonce = match latest - own {
        0 => Some(&current.version.nonce),
        back => current.nonces_before.get((back - 1) as usize),
    };
    match nonce {
        Some(nonce) if *nonce == next.version.nonce => Ok(Outcome::Committed),
        Some(_) => Ok(Outcome::Preceded),
        None => Err(Contended::Overtaken { table, own, latest }.into()),
    }
}
