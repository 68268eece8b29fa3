//! Where tables lie, opened so that nothing can be changed there, and finding tables and objects.

use anyhow::{Context, bail};
use bytes::Bytes;
use canopy_store::storage::{Append, Created, Listed, ReadAt, Storage};
use canopy_store::{Environment, Error, Invalid, Object, ObjectKind, Result, TableId, inspect};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Nothing of an honest table takes a longer read; what claims to is damaged, and would take the
/// memory.
const READ_BYTES_MAX: u64 = 256 << 20;

/// Opens the storage that `location` names, as `canopy_object_storage::open` does.
pub fn open_storage(location: &str) -> anyhow::Result<Environment> {
    let storage = canopy_object_storage::open(location)?;
    Ok(Environment::system(Arc::new(ReadOnly(storage))))
}

/// An object, with the storage that it lies in.
pub struct StoredObject {
    pub environment: Environment,
    /// Its name there.
    pub name: String,
    /// The object's table and kind, if its name shows them.
    pub object: Option<(TableId, Object)>,
    pub kind: ObjectKind,
}

/// Opens the storage of the object that `location` names: `STORAGE/TABLE/sst/NAME` or its like, or
/// any path.
pub fn open_object(location: &str) -> anyhow::Result<StoredObject> {
    let slashes = location.match_indices('/').map(|(at, _)| at);
    let ends = std::iter::once(None).chain(slashes.map(Some));
    let mut parts = ends.map(|slash| match slash {
        None => (".", location),
        Some(0) => ("/", &location[1..]),
        Some(at) => (&location[..at], &location[at + 1..]),
    });
    let named = parts.find_map(|(storage, name)| Some((storage, name, Object::parse(name)?)));
    let (storage, name, object) = match (named, location.rsplit_once('/')) {
        (Some((storage, name, object)), _) => (storage, name, Some(object)),
        (None, Some(("", name))) => ("/", name, None),
        (None, Some((directory, name))) => (directory, name, None),
        (None, None) => (".", location, None),
    };
    let environment = open_storage(storage)?;
    let kind = match object {
        Some((_, Object::Manifest(_))) => Some(ObjectKind::Manifest),
        Some((_, Object::Sstable(_))) => Some(ObjectKind::Sstable),
        Some((_, Object::Segment { .. } | Object::LogEnd { .. })) => Some(ObjectKind::Segment),
        Some((_, Object::Lock)) => None,
        None => match ObjectKind::of(&*environment.storage, name) {
            Err(error) if error.is_not_found() => bail!("{location}: no such file"),
            // A directory is probably meant as STORAGE.
            Err(_) if Path::new(location).is_dir() => {
                bail!("{location}: a directory, and no table is named")
            }
            kind => kind?,
        },
    };
    let kind = kind.with_context(|| {
        format!("{location}: neither a manifest nor an SSTable nor a segment of a log")
    })?;
    Ok(StoredObject { environment, name: name.into(), object, kind })
}

/// Returns the ids of all tables, in order.
pub fn tables(environment: &Environment) -> Result<Vec<TableId>> {
    let roots = environment.storage.roots()?;
    let ids = roots.iter().filter_map(|root| TableId::parse(root).map(|id| (root, id)));
    Ok(ids.filter(|(root, id)| id.to_string() == **root).map(|(_, id)| id).collect())
}

/// Returns the table whose id is or begins with `text`.
pub fn find_table(environment: &Environment, text: &str) -> anyhow::Result<TableId> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        bail!("'{text}' is not an id of a table: 32 hexadecimal digits, or the first few of them");
    }
    if let Some(id) = TableId::parse(text) {
        return match inspect(environment, id) {
            Err(error) if error.is_not_found() => bail!("there is no table {id}"),
            _ => Ok(id),
        };
    }
    let begin = text.to_ascii_lowercase();
    let mut found = tables(environment)?;
    found.retain(|id| id.to_string().starts_with(&begin));
    match found[..] {
        [] => bail!("there is no table whose id begins with {text}"),
        [id] => Ok(id),
        [..] => bail!("the ids of {} tables begin with {text}", found.len()),
    }
}

/// Storage of which nothing can be changed.
struct ReadOnly(Arc<dyn Storage>);

fn check_length(name: &str, range: &Range<u64>) -> Result<()> {
    let length = range.end.saturating_sub(range.start);
    match length <= READ_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::corrupt(name, format!("wants {length} bytes to be read at once"))),
    }
}

fn refused<T>() -> Result<T> {
    Err(Invalid::ReadOnlyStorage("canopy store").into())
}

impl Storage for ReadOnly {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        check_length(name, &range)?;
        self.0.read_range(name, range)
    }

    fn read_ranges(&self, wanted: &[(&str, Range<u64>)]) -> Result<Vec<Bytes>> {
        wanted.iter().try_for_each(|(name, range)| check_length(name, range))?;
        self.0.read_ranges(wanted)
    }

    fn opens_files(&self) -> bool {
        self.0.opens_files()
    }

    fn open(&self, name: &str) -> Result<Option<Box<dyn ReadAt>>> {
        // Opening something that is not a file might block for ever.
        self.0.size(name)?;
        let opened = self.0.open(name)?;
        Ok(opened.map(|file| Box::new(ReadOnlyFile { name: name.into(), file }) as _))
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.read_range(name, 0..self.0.size(name)?)
    }

    fn size(&self, name: &str) -> Result<u64> {
        self.0.size(name)
    }

    fn create(&self, _name: &str, _bytes: Bytes) -> Result<Created> {
        refused()
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        self.0.list(prefix, after)
    }

    fn roots(&self) -> Result<Vec<String>> {
        self.0.roots()
    }

    fn has_ordered_listings(&self) -> bool {
        self.0.has_ordered_listings()
    }

    fn remove(&self, _name: &str) -> Result<()> {
        refused()
    }

    fn append_to(&self, _name: &str) -> Result<Option<Box<dyn Append>>> {
        refused()
    }

    fn sync(&self, _name: &str) -> Result<()> {
        refused()
    }

    fn lock(&self, _name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        refused()
    }
}

struct ReadOnlyFile {
    name: String,
    file: Box<dyn ReadAt>,
}

impl ReadAt for ReadOnlyFile {
    fn read_at(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        check_length(&self.name, &range)?;
        self.file.read_at(range, out)
    }
}
