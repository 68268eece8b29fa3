//! What a namespace was made with: an object of the storage that names its table, and a record with
//! what can be changed later.

use crate::error::{Error, Result};
use canopy_store::TableId;
use canopy_store::storage::{Created, Storage};
use serde::{Deserialize, Serialize};

/// The version of keys, records and objects that this crate reads and writes.
pub const FORMAT: u32 = 1;

/// The name of the object that says which table is the namespace.
const OBJECT: &str = "namespace";

/// What a namespace works by; kept in a record of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Contents of so many bytes at most are records; larger ones are files or objects.
    pub inline_bytes_max: usize,
    /// How long what a crash may take away stays in memory: times of directories, sizes and times
    /// of files that are written, contents of small ones.
    pub flush_interval_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { inline_bytes_max: 4096, flush_interval_ms: 5000 }
    }
}

/// What the object says.
#[derive(Serialize, Deserialize)]
struct Origin {
    format: u32,
    table: String,
}

/// Returns the table of the namespace that lies in a storage.
pub fn table_of(storage: &dyn Storage) -> Result<TableId> {
    let bytes = match storage.read(OBJECT) {
        Err(error) if error.is_not_found() => {
            return Err(Error::Invalid("there is no namespace; create one first".into()));
        }
        read => read?,
    };
    let damaged = || Error::corrupt(format!("{OBJECT} does not say which table is the namespace"));
    let origin: Origin = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
    if origin.format != FORMAT {
        return Err(Error::Invalid(format!(
            "the namespace has format {}; this version reads format {FORMAT}",
            origin.format
        )));
    }
    TableId::parse(&origin.table).ok_or_else(damaged)
}

/// Makes a table the namespace of a storage that has none.
pub fn declare(storage: &dyn Storage, table: TableId) -> Result<()> {
    let origin = Origin { format: FORMAT, table: table.to_string() };
    let bytes = serde_json::to_vec(&origin).map_err(|error| Error::corrupt(error.to_string()))?;
    match storage.create(OBJECT, bytes.into())? {
        Created::Now => Ok(()),
        Created::ThereWasOne => Err(Error::Invalid("there is a namespace already".into())),
    }
}
