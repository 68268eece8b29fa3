//! What a namespace was made with: an object of the storage that names its table, and a record with
//! what can be changed later.

use crate::attributes::{Attribute, Indexes};
use crate::error::{Error, Result};
use canopy_store::TableId;
use canopy_store::storage::{Created, Storage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// The attributes that there are indexes of, by the names that queries have for them.
    pub indexes: Vec<String>,
    /// The extended attributes that there are indexes of, with the numbers of these.
    pub xattr_indexes: BTreeMap<String, u16>,
}

impl Default for Settings {
    fn default() -> Self {
        let indexes = ["size", "uid", "gid", "mtime", "ext"].map(str::to_owned).into();
        let xattr_indexes = BTreeMap::new();
        Settings { inline_bytes_max: 4096, flush_interval_ms: 5000, indexes, xattr_indexes }
    }
}

impl Settings {
    /// Returns settings with indexes of these attributes, by their names in queries; those that
    /// have a dot in them are extended ones.
    pub fn with_indexes(self, names: &[impl AsRef<str>]) -> Result<Self> {
        let (mut indexes, mut xattr_indexes) = (Vec::new(), BTreeMap::new());
        for name in names.iter().map(AsRef::as_ref) {
            if Attribute::named(name).is_some() {
                indexes.push(name.to_owned());
            } else if name.contains('.') {
                let number = u16::try_from(xattr_indexes.len()).unwrap_or(u16::MAX);
                xattr_indexes.entry(name.to_owned()).or_insert(number);
            } else {
                let known = Attribute::built_in().filter_map(Attribute::name);
                let known = Vec::from_iter(known).join(", ");
                return Err(Error::Invalid(format!(
                    "{name}: there is no such attribute; there are {known} and extended ones, \
                     like user.run"
                )));
            }
        }
        Ok(Settings { indexes, xattr_indexes, ..self })
    }

    /// Returns what there are indexes of.
    pub(crate) fn to_indexes(&self) -> Result<Indexes> {
        let attribute = |name: &String| {
            Attribute::named(name)
                .ok_or_else(|| Error::corrupt(format!("the settings: an index of {name}")))
        };
        let attributes = self.indexes.iter().map(attribute).collect::<Result<_>>()?;
        let xattr = |(name, number): (&String, &u16)| (name.clone().into_bytes(), *number);
        Ok(Indexes { attributes, xattrs: self.xattr_indexes.iter().map(xattr).collect() })
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
