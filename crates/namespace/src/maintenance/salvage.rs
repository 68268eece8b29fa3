//! Making a namespace that cannot be opened, since files of its table are damaged, one that can be:
//! what can be read of them is kept, and [`Namespace::repair`](crate::Namespace::repair) reports
//! what was lost.

use crate::contents::chunks::{CHUNK_BYTES, Stored};
use crate::error::{Error, Result};
use crate::records::attributes::Attribute;
use crate::records::keys::{self, Space};
use crate::records::tablet::{CACHE_BYTES, options};
use crate::settings::{Settings, declare_again, table_of};
use canopy_store::storage::Storage;
use canopy_store::{
    Batch, Direction, Durability, Environment, Options, SstableCache, Table, TableId,
};

/// Puts sound files in place of damaged ones of the namespace in a storage, which nobody has open.
/// A repair has to follow, which says what was lost of tables. Returns what else was mended. An error
/// says what cannot be.
///
/// # Errors
///
/// Fails with `Store` if somebody has it open or storage fails, and with `Corrupt` if nothing says
/// which table it is.
pub fn salvage(environment: &Environment) -> Result<Vec<String>> {
    let mut done = Vec::new();
    let id = match table_of(&*environment.storage) {
        Err(error) if error.is_damage() => {
            let id = find_table(&*environment.storage, error)?;
            done.push("namespace: it says again which table is the namespace".to_owned());
            id
        }
        id => id?,
    };
    let cache = SstableCache::new(environment, CACHE_BYTES);
    let lenient = Options { salvages_log: true, ..options() };
    let table = Table::open(environment, id, cache, lenient)?;
    table.salvage()?;
    let settings = table.get(keys::settings().as_ref())?;
    if Settings::decode(settings.as_deref()).is_err() {
        restore_settings(&table)?;
        let lost = "the settings were lost: they are those that fit the records, without indexes of \
                    extended attributes";
        done.push(lost.to_owned());
    }
    table.flush()?;
    Ok(done)
}

/// Returns the only table that there is, and says again that it is the namespace's.
fn find_table(storage: &dyn Storage, error: Error) -> Result<TableId> {
    let roots = storage.roots()?;
    let tables = Vec::from_iter(roots.iter().filter_map(|root| TableId::parse(root)));
    let [id] = tables[..] else { return Err(error) };
    declare_again(storage, id)?;
    Ok(id)
}

/// Writes settings that fit the records. Indexes of extended attributes are not known any more.
fn restore_settings(table: &Table) -> Result<()> {
    let mut batch = Batch::new();
    let mut indexes = Vec::new();
    for attribute in Attribute::built_in() {
        let is_there = table.scan(&attribute.all(), Direction::Forward)?.next()?.is_some();
        indexes.extend(attribute.name().filter(|_| is_there).map(str::to_owned));
    }
    for number in 0..=u16::MAX {
        let range = Attribute::Xattr(number).all();
        // They have numbers from 0 on.
        if table.scan(&range, Direction::Forward)?.next()?.is_none() {
            break;
        }
        batch.delete_range(&range)?;
    }
    let mut chunk_bytes = 0;
    let mut scan = table.scan(&Space::Chunks.range(), Direction::Forward)?;
    while let Some(record) = scan.next()? {
        let stored = Stored::decode(record.value);
        chunk_bytes = chunk_bytes.max(stored.map_or(0, |stored| stored.object_bytes.into()));
    }
    if chunk_bytes > 0 {
        chunk_bytes = chunk_bytes.clamp(*CHUNK_BYTES.start(), *CHUNK_BYTES.end());
    }
    let settings = Settings { chunk_bytes, indexes, ..Settings::default() };
    batch.put(keys::settings().as_ref(), &settings.encode()?)?;
    Ok(table.write(&batch, Durability::Durable)?)
}
