//! Settings of a namespace: an object of the storage that names its table, and a record with those
//! that can be changed later.

use crate::error::{Error, Result};
use crate::records::attributes::{Attribute, Indexes};
use canopy_store::TableId;
use canopy_store::storage::{Created, Storage};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The version of keys, records and objects that this crate writes. Since version 2, ids of files lie
/// in blocks of one table.
pub const FORMAT: u32 = 2;

/// The oldest version that it reads, and goes on with.
const OLDEST_FORMAT: u32 = 1;

/// The name of the object that says which table is the namespace.
const OBJECT: &str = "namespace";

/// Prefixes of extended attributes that can have indexes.
const XATTRS: [&str; 3] = ["user.", "trusted.", "security."];

/// Settings of a namespace; kept in a record of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Contents of so many bytes at most are records; larger ones are files or objects.
    pub inline_bytes_max: usize,
    /// How long what a crash may take away stays in memory: times of directories, sizes and times
    /// of files that are written, contents of small ones.
    pub flush_interval_ms: u64,
    /// Larger contents are objects of so many bytes, beside the records; 0 if they are files of a
    /// directory of this machine. Never changed.
    #[serde(default)]
    pub chunk_bytes: u64,
    /// The attributes that there are indexes of, by the names that queries have for them.
    pub indexes: Vec<String>,
    /// The extended attributes that there are indexes of, with the numbers of these.
    pub xattr_indexes: BTreeMap<String, u16>,
    /// Those of them that do not have every file yet.
    pub building: BTreeSet<String>,
}

/// Settings, and what follows from them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configured {
    pub(crate) settings: Settings,
    /// The indexes that changes are written to.
    pub(crate) indexes: Indexes,
    /// Those that have every file, so that searches may believe them.
    pub(crate) ready: Indexes,
    /// Those that do not.
    pub(crate) building: Indexes,
}

impl Configured {
    /// Returns the name of the attribute that an index is of, by the index's number.
    pub(crate) fn name_of(&self, number: u32) -> Option<String> {
        let is_it = |attribute: &Attribute| attribute.number() == number;
        let built_in = self.indexes.attributes.iter().copied().find(|one| is_it(one));
        let xattrs = &self.settings.xattr_indexes;
        let xattr = || {
            let found = xattrs.iter().find(|(_, one)| is_it(&Attribute::Xattr(**one)));
            found.map(|(name, _)| name.clone())
        };
        built_in.and_then(Attribute::name).map(str::to_owned).or_else(xattr)
    }
}

impl Default for Settings {
    fn default() -> Self {
        let indexes = ["size", "uid", "gid", "mtime", "ext"].map(str::to_owned).into();
        Settings {
            inline_bytes_max: 4096,
            flush_interval_ms: 5000,
            chunk_bytes: 0,
            indexes,
            xattr_indexes: BTreeMap::new(),
            building: BTreeSet::new(),
        }
    }
}

impl Settings {
    /// Returns settings with indexes of these attributes, by their names in queries; those that
    /// have a dot in them are extended ones. Indexes that there were keep their numbers.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if there is no such attribute.
    pub fn with_indexes(self, names: &[impl AsRef<str>]) -> Result<Self> {
        let (mut indexes, mut xattr_indexes) = (Vec::new(), BTreeMap::new());
        let mut taken = BTreeSet::from_iter(self.xattr_indexes.values().copied());
        for name in names.iter().map(AsRef::as_ref) {
            if Attribute::named(name).is_some() {
                if !indexes.iter().any(|one| one == name) {
                    indexes.push(name.to_owned());
                }
            } else if XATTRS.iter().any(|space| name.starts_with(space)) {
                let number = match self.xattr_indexes.get(name) {
                    Some(number) => *number,
                    None => (0..u16::MAX).find(|one| !taken.contains(one)).unwrap_or(u16::MAX),
                };
                taken.insert(number);
                xattr_indexes.insert(name.to_owned(), number);
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

    /// Returns the names of all indexes.
    pub fn index_names(&self) -> Vec<&str> {
        let names = self.indexes.iter().chain(self.xattr_indexes.keys());
        names.map(String::as_str).collect()
    }

    pub(crate) fn configured(self) -> Result<Configured> {
        Ok(Configured {
            indexes: self.indexes_that(|_| true)?,
            ready: self.indexes_that(|name| !self.building.contains(name))?,
            building: self.indexes_that(|name| self.building.contains(name))?,
            settings: self,
        })
    }

    fn indexes_that(&self, is_one: impl Fn(&str) -> bool) -> Result<Indexes> {
        let attribute = |name: &String| {
            Attribute::named(name)
                .ok_or_else(|| Error::corrupt(format!("the settings: an index of {name}")))
        };
        let names = self.indexes.iter().filter(|name| is_one(name));
        let attributes = names.map(attribute).collect::<Result<_>>()?;
        let xattrs = self.xattr_indexes.iter().filter(|(name, _)| is_one(name));
        let xattrs = xattrs.map(|(name, number)| (name.clone().into_bytes(), *number)).collect();
        Ok(Indexes { attributes, xattrs })
    }

    /// Reads the record that has them.
    pub(crate) fn decode(record: Option<&[u8]>) -> Result<Self> {
        let record = record.ok_or_else(|| Error::corrupt("the settings are missing"))?;
        let settings = serde_json::from_slice(record);
        settings.map_err(|error| Error::corrupt(format!("the settings: {error}")))
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Error::corrupt(error.to_string()))
    }
}

/// Contents of the object.
#[derive(Serialize, Deserialize)]
struct Origin {
    format: u32,
    table: String,
}

/// Returns the table of the namespace that lies in a storage.
///
/// # Errors
///
/// Fails with `Invalid` if there is none or its format is another one, with `Corrupt` if the object
/// is damaged, and as storage does.
pub fn table_of(storage: &dyn Storage) -> Result<TableId> {
    origin_of(storage).map(|(_, table)| table)
}

/// Returns the format and the table of the namespace that lies in a storage.
///
/// # Errors
///
/// Fails as [`table_of`] does.
pub fn origin_of(storage: &dyn Storage) -> Result<(u32, TableId)> {
    let bytes = match storage.read(OBJECT) {
        Err(error) if error.is_not_found() => {
            return Err(Error::Invalid("there is no namespace; create one first".into()));
        }
        read => read?,
    };
    let damaged = || Error::corrupt(format!("{OBJECT} does not say which table is the namespace"));
    let origin: Origin = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
    if !(OLDEST_FORMAT..=FORMAT).contains(&origin.format) {
        return Err(Error::Invalid(format!(
            "the namespace has format {}; this version reads formats {OLDEST_FORMAT} to {FORMAT}",
            origin.format
        )));
    }
    let table = TableId::parse(&origin.table).ok_or_else(damaged)?;
    Ok((origin.format, table))
}

/// Makes a table the namespace of a storage that has none.
///
/// # Errors
///
/// Fails with `Invalid` if there is a namespace already, and as storage does.
pub fn declare(storage: &dyn Storage, table: TableId) -> Result<()> {
    let origin = Origin { format: FORMAT, table: table.to_string() };
    let bytes = serde_json::to_vec(&origin).map_err(|error| Error::corrupt(error.to_string()))?;
    match storage.create(OBJECT, bytes.into())? {
        Created::Now => Ok(()),
        Created::ThereWasOne => Err(Error::Invalid("there is a namespace already".into())),
    }
}

/// Makes a table the namespace of a storage whose object that says so is damaged.
pub(crate) fn declare_again(storage: &dyn Storage, table: TableId) -> Result<()> {
    storage.remove(OBJECT)?;
    declare(storage, table)
}
