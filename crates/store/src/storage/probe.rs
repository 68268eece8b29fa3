//! Finding out what storage does with two objects of one name.
//!
//! A server is tested rather than trusted: Garage overwrites objects although it is asked not to.
//! It can hold SSTables alone, beside a directory for the rest (`split`).

use super::Created;
use crate::environment::Environment;
use crate::error::{Invalid, Result};
use bytes::Bytes;

/// Number of rivals that try to create an object at once, and number of such rounds. A store that
/// looks for the object first and writes it then lets two of them succeed sooner or later.
const RIVALS: u64 = 16;
const ROUNDS: u64 = 4;

/// The note of a store that passed, and its version.
const PASSED: &str = "probe/passed";
const VERSION: &str = "1";

/// Probes storage, unless a note in it says that it passed before. A note counts on the server that it
/// was written on.
///
/// # Errors
///
/// Fails as [`probe`] does.
pub fn probe_once(environment: &Environment) -> Result<()> {
    let storage = &environment.storage;
    let note = Bytes::from(format!("{VERSION} {}\n", storage.server()));
    match storage.read(PASSED) {
        Ok(found) if found == note => return Ok(()),
        Ok(_) => {
            probe(environment)?;
            storage.remove(PASSED)?;
        }
        Err(error) if error.is_not_found() => probe(environment)?,
        Err(error) => return Err(error),
    }
    // Another process may write the note at the same time.
    storage.create(PASSED, note).map(drop)
}

/// Finds out whether storage creates an object only if there is none of its name, as some stores
/// that speak S3's language do not, or not when several try at once. A table there would lose what
/// was written.
///
/// # Errors
///
/// Fails with `Invalid` if storage is not fit for tables, and as storage does.
pub fn probe(environment: &Environment) -> Result<()> {
    let names = [(); 1 + ROUNDS as usize];
    let names = names.map(|()| format!("probe/{:016x}", environment.random.next_u64()));
    keeps_sstables(environment)?;
    let creates_once = creates_once(environment, &names);
    let removed = names.iter().map(|name| environment.storage.remove(name));
    let removed = Vec::from_iter(removed).into_iter().collect::<Result<()>>();
    match creates_once? {
        true => removed,
        false => Err(Invalid::OverwritingStorage.into()),
    }
}

/// Tries to keep an SSTable, which may lie in a storage of its own.
fn keeps_sstables(environment: &Environment) -> Result<()> {
    let storage = &environment.storage;
    let bytes = Bytes::from_static(b"SSTable");
    let name = format!("probe/sst/{:016x}", environment.random.next_u64());
    storage.create(&name, bytes.clone())?;
    let listed = storage.list("probe/sst/", "");
    let read = storage.read_range(&name, 0..bytes.len() as u64);
    storage.remove(&name)?;
    let is_listed = listed?.iter().any(|object| object.name == name);
    match is_listed && read? == bytes {
        true => Ok(()),
        false => Err(Invalid::ForgetfulStorage.into()),
    }
}

/// Returns whether what was tried under `names` came out as it must.
fn creates_once(environment: &Environment, names: &[String]) -> Result<bool> {
    let storage = &environment.storage;
    let (first, others) = names.split_first().expect("there is a name for two in turn");
    let contents = [Bytes::from_static(b"first"), Bytes::from_static(b"second")];
    let [one, next] = contents.clone().map(|bytes| storage.create(first, bytes));
    let listed = storage.list("probe/", "")?;
    let is_listed = listed.iter().any(|object| object.name == *first);
    if [one?, next?] != [Created::Now, Created::ThereWasOne] || !is_listed {
        return Ok(false);
    }
    if storage.read(first)? != contents[0] {
        return Ok(false);
    }
    for name in others {
        let contents = (0..RIVALS).map(|rival| Bytes::from(format!("rival {rival}")));
        let contents = Vec::from_iter(contents);
        let created = storage.create_rivals(name, &contents);
        if created.is_empty() {
            break;
        }
        let winners = created.iter().zip(&contents);
        let winners = winners.filter(|(created, _)| matches!(created, Ok(Created::Now)));
        let winners = Vec::from_iter(winners.map(|(_, bytes)| bytes));
        let found = match storage.read(name) {
            // A disk that is full keeps all of them from it.
            Err(error) if error.is_not_found() => {
                let failed = created.into_iter().find_map(|created| created.err());
                return failed.map_or(Ok(false), Err);
            }
            found => found?,
        };
        // One that failed may have succeeded.
        let is_right = match winners[..] {
            [] => created.iter().any(|created| created.is_err()),
            [winner] => found == *winner,
            _ => false,
        };
        if !is_right {
            return Ok(false);
        }
    }
    Ok(true)
}
