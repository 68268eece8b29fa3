//! Places in the index: the source that holds a path, and what is known of a single entry there.
//! [`crate::resolve`] finds the place of a path that a user gives.

use crate::error::{Lost, Result};
use crate::inode::{ENTRY, Inode, inodes};
use crate::listings::depth;
use crate::plan::{BATCH_ROWS, row_count};
use arrow::array::RecordBatch;
use canopy_index::column::{KEY, NAME, VALUE, VALUE_PATH};
use canopy_index::{
    Columns, FileKind, Index, RowRange, SealedInode, SealedRecord, Shard, SourceRecord,
};
use canopy_model::{
    AbsolutePath, Acl, Attributes, Credentials, Device, FileType, Grant, SourcePath, SourcePathBuf,
    Wanted, unescape, xattr_names,
};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

/// An entry of the index that a user named.
#[derive(Clone, Debug)]
pub struct Start {
    /// The path as it was given; answers begin with it.
    pub given: Vec<u8>,
    /// The source that holds it.
    pub source: SourceRecord,
    /// Its path in the source.
    pub path: SourcePathBuf,
    /// Its attributes.
    pub inode: Inode,
    /// The index as it is seen from here, which holds more than what was opened where the path
    /// leads through directories that cannot be listed.
    pub view: Arc<Index>,
    /// How many symbolic links are on the way of the given path.
    pub links: u32,
}

impl Start {
    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.inode.attributes.file_type() == FileType::Directory
    }

    /// Returns its device, or that of what is in it, as [`device_within`] has it.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn device(&self) -> Result<Device> {
        let within = match self.is_dir() {
            true => device_within(&self.view, &self.source, self.path.as_path())?,
            false => None,
        };
        Ok(within.unwrap_or(self.inode.dev))
    }

    /// The root of a source, given by its own path.
    pub fn of_source(view: &Arc<Index>, source: &SourceRecord) -> Self {
        let given = unescape(&source.root).into_owned();
        let inode = root_inode(source);
        let (source, view) = (source.clone(), view.clone());
        Start { given, source, path: SourcePathBuf::root(), inode, view, links: 0 }
    }

    /// How many components its path has.
    pub fn depth(&self) -> u32 {
        depth(self.path.as_path())
    }

    /// The path to print for an entry at or below the start.
    pub fn display(&self, path: SourcePath<'_>) -> Vec<u8> {
        let mut shown = self.given.clone();
        self.append_below(&mut shown, path);
        shown
    }

    /// Adds to a copy of the given path what leads from the start to `path`.
    pub fn append_below(&self, shown: &mut Vec<u8>, path: SourcePath<'_>) {
        let below = path.as_str().get(self.path.as_str().len()..);
        let below = below.unwrap_or("").trim_start_matches('/');
        if !below.is_empty() {
            if shown.last() != Some(&b'/') {
                shown.push(b'/');
            }
            shown.extend_from_slice(&unescape(below));
        }
    }
}

/// A path with at most one slash at its end, as fts(3) takes it.
pub fn with_one_slash(path: &[u8]) -> &[u8] {
    match path {
        [shorter @ .., b'/'] if path.len() > 2 && shorter.ends_with(b"/") => {
            let end = shorter.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
            &path[..=end]
        }
        _ => path,
    }
}

/// The source with the deepest root at or above a path, and the path in it.
pub fn source_of<'a, 'p>(
    index: &'a Index,
    path: AbsolutePath<'p>,
) -> Option<(&'a SourceRecord, SourcePath<'p>)> {
    let below = |source: &SourceRecord| SourcePath::below(path, AbsolutePath::new(&source.root));
    index
        .sources()
        .iter()
        .filter_map(|source| Some((source, below(source)?)))
        .max_by_key(|(source, _)| source.root.len())
}

/// The attributes of one entry, if the caller may see it.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn look_up(
    index: &Index,
    source: &SourceRecord,
    path: SourcePath<'_>,
) -> Result<Option<Inode>> {
    let Some(directory) = path.parent() else {
        return Ok(Some(root_inode(source)));
    };
    let name = path.base_name();
    for shard in index.shards_at(source.id, directory)? {
        let listings = shard.listings_at(directory)?;
        let Some(first) = listings.first() else { continue };
        let dev = shard.device_of(first.start)?;
        let (entries, dirs) = shard.rows_of(&listings)?;
        for (kind, rows) in [(FileKind::Dirs, dirs), (FileKind::Entries, entries)] {
            if let Some(inode) = look_up_name(shard, kind, &rows, name, dev)? {
                return Ok(Some(inode));
            }
        }
    }
    let sealed = sealed(index, source, path)?;
    Ok(sealed.into_iter().find_map(|record| record.inode).map(unsealed))
}

/// An entry that is found by its path alone.
#[derive(Clone, Debug)]
pub struct UnlistedEntry {
    /// Its attributes.
    pub inode: Inode,
    /// The extended attributes whose values the caller may see, escaped.
    pub xattrs: Vec<(String, String)>,
}

/// Returns the entry at a path if it is in no listing that the caller sees, but in a gate that lets
/// the caller in.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn unlisted(
    index: &Index,
    source: &SourceRecord,
    path: SourcePath<'_>,
) -> Result<Option<UnlistedEntry>> {
    let Some(directory) = path.parent() else { return Ok(None) };
    let records = sealed(index, source, path)?;
    let Some(inode) = records.iter().find_map(|record| record.inode.clone()).map(unsealed) else {
        return Ok(None);
    };
    if lists(index, source, directory)? {
        return Ok(None);
    }
    let mut xattrs: Vec<_> = records.into_iter().flat_map(|record| record.xattrs).collect();
    xattrs.sort();
    xattrs.dedup();
    Ok(Some(UnlistedEntry { inode, xattrs }))
}

fn unsealed(inode: SealedInode) -> Inode {
    let SealedInode { dev, attributes, target, xattrs } = inode;
    Inode { attributes, target, dev, xattrs }
}

/// Returns whether the caller may search a directory, as far as the index shows: a caller who sees
/// entries of it may, and else its mode, owner, group and ACL decide.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn may_search(
    index: &Index,
    source: &SourceRecord,
    path: SourcePath<'_>,
    inode: &Inode,
) -> Result<bool> {
    Ok(match seen_entries(index, source, path)? {
        // In a user's own index, the listing of a directory without search permission is empty.
        Some(0) => !denies(index, source, path, inode, Wanted::SEARCH)?,
        Some(_) => true,
        None => permits(index, source, path, inode, Wanted::SEARCH)?,
    })
}

/// Returns whether the caller surely may not search a directory.
pub(crate) fn is_closed(
    index: &Index,
    source: &SourceRecord,
    path: SourcePath<'_>,
    inode: &Inode,
) -> Result<bool> {
    Ok(denies(index, source, path, inode, Wanted::SEARCH)?
        && seen_entries(index, source, path)?.is_none_or(|count| count == 0))
}

/// Returns how many entries of a directory the caller sees; `None` without the listing.
fn seen_entries(
    index: &Index,
    source: &SourceRecord,
    path: SourcePath<'_>,
) -> Result<Option<usize>> {
    let mut count = None;
    for shard in index.shards_at(source.id, path)? {
        let listings = shard.listings_at(path)?;
        if !listings.is_empty() {
            let (entries, dirs) = shard.rows_of(&listings)?;
            *count.get_or_insert(0) += row_count(&entries) + row_count(&dirs);
        }
    }
    Ok(count)
}

/// Returns why the caller does not see the listing of a directory, by its mode, owner, group and
/// ACL; `None` if they let the caller list it, so that the index does not have it.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn why_unlisted(start: &Start) -> Result<Option<Lost>> {
    let Start { view, source, path, inode, .. } = start;
    let path = path.as_path();
    Ok(if denies(view, source, path, inode, Wanted::READ)? {
        Some(Lost::Denied)
    } else if permits(view, source, path, inode, Wanted::READ_SEARCH)? {
        None
    } else {
        // The index has no names without attributes, and an ACL may be hidden.
        Some(Lost::Unseen)
    })
}

/// Returns whether the caller surely lacks the wanted bits of an entry: one with an ACL might be
/// open by entries of it that are not the caller's to see.
fn denies(
    index: &Index,
    source: &SourceRecord,
    path: SourcePath<'_>,
    inode: &Inode,
    wanted: Wanted,
) -> Result<bool> {
    let has_acl = xattr_names::has(&inode.xattrs, Acl::XATTR_NAME);
    Ok(!has_acl && !permits(index, source, path, inode, wanted)?)
}

/// Returns whether access(2) would grant the wanted bits of an entry to the caller, by its mode,
/// owner, group and ACL.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn permits(
    index: &Index,
    source: &SourceRecord,
    path: SourcePath<'_>,
    inode: &Inode,
    wanted: Wanted,
) -> Result<bool> {
    let Attributes { mode, uid, gid, .. } = inode.attributes;
    let grant = match xattr_names::has(&inode.xattrs, Acl::XATTR_NAME) {
        false => Grant::new(mode, uid, gid, None, wanted),
        true => {
            let values = xattrs_of(index, source, path)?;
            let value = values.iter().find(|(key, _)| key == Acl::XATTR_NAME);
            let acl = value.and_then(|(_, value)| Acl::decode(&unescape(value)).ok());
            acl.map_or_else(
                || Grant::of_hidden_acl(mode, uid, wanted),
                |acl| Grant::new(mode, uid, gid, Some(&acl), wanted),
            )
        }
    };
    Ok(grant.passes_access(&caller(), mode, wanted))
}

/// Returns whether the caller sees the listing of a directory, so that what is not in it does not
/// exist.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn lists(index: &Index, source: &SourceRecord, path: SourcePath<'_>) -> Result<bool> {
    for shard in index.shards_at(source.id, path)? {
        if !shard.listings_at(path)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the device of what is in a directory, which is another than its own where something is
/// mounted there; `None` where the caller does not see the listing.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn device_within(
    index: &Index,
    source: &SourceRecord,
    path: SourcePath<'_>,
) -> Result<Option<Device>> {
    for shard in index.shards_at(source.id, path)? {
        if let Some(listings) = shard.listings_at(path)?.first() {
            return Ok(Some(shard.device_of(listings.start)?));
        }
    }
    Ok(None)
}

/// Returns the names of the directories in a directory, escaped, in any order.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn subdirectories(
    index: &Index,
    source: &SourceRecord,
    path: SourcePath<'_>,
) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for shard in index.shards_at(source.id, path)? {
        let (_, dirs) = shard.rows_of(&shard.listings_at(path)?)?;
        for batch in shard.read(FileKind::Dirs, NAME, &dirs, BATCH_ROWS)? {
            let batch = batch?;
            let names = NAME.of(&batch)?;
            found.extend((0..batch.num_rows()).map(|at| names.value(at).to_owned()));
        }
    }
    Ok(found)
}

/// Returns the credentials by which the kernel judges where the caller may go.
pub(crate) fn caller() -> Credentials {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups = groups.into_iter().chain([rustix::process::getegid()]).map(|gid| gid.as_raw());
    Credentials::new(rustix::process::geteuid().as_raw(), groups)
}

/// Returns the inode of the root of a source.
pub fn root_inode(source: &SourceRecord) -> Inode {
    Inode {
        attributes: source.attributes,
        target: String::new(),
        dev: source.dev,
        xattrs: source.xattrs.clone(),
    }
}

/// Returns the records that are sealed for users who know a path.
fn sealed(index: &Index, source: &SourceRecord, path: SourcePath<'_>) -> Result<Vec<SealedRecord>> {
    Ok(index.unseal(source.id, AbsolutePath::new(&absolute_path(source, path)))?)
}

/// The extended attributes of one entry whose values the caller may see, escaped.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn xattrs_of(
    index: &Index,
    source: &SourceRecord,
    path: SourcePath<'_>,
) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for shard in index.shards_with_values(source.id, path.parent().unwrap_or_default())? {
        for batch in read_xattrs(shard)? {
            let batch = batch?;
            let (paths, names) = (VALUE_PATH.of(&batch)?, NAME.of(&batch)?);
            let (keys, values) = (KEY.of(&batch)?, VALUE.of(&batch)?);
            let is_it = |&at: &usize| {
                let directory = SourcePath::escaped(paths.value(at));
                directory.child(names.value(at)).as_path() == path
            };
            let here = (0..batch.num_rows()).filter(is_it);
            found.extend(here.map(|at| (keys.value(at).to_owned(), values.value(at).to_owned())));
        }
    }
    let sealed = sealed(index, source, path)?;
    found.extend(sealed.into_iter().flat_map(|record| record.xattrs));
    found.sort();
    found.dedup();
    Ok(found)
}

/// Reads the values of extended attributes that a shard has and that count: path, name, key and
/// value.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn read_xattrs(
    shard: &Shard,
) -> Result<impl Iterator<Item = canopy_index::Result<RecordBatch>>> {
    read_xattr_columns(shard, VALUE_PATH | NAME | KEY | VALUE)
}

/// Reads other columns of the rows.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn read_xattr_columns(
    shard: &Shard,
    columns: Columns,
) -> Result<impl Iterator<Item = canopy_index::Result<RecordBatch>>> {
    let rows = shard.live_values()?;
    let read = match rows.is_empty() {
        true => None,
        false => Some(shard.read(FileKind::Xattrs, columns, &rows, BATCH_ROWS)?),
    };
    Ok(read.into_iter().flatten())
}

fn look_up_name(
    shard: &Shard,
    kind: FileKind,
    rows: &[RowRange],
    name: &str,
    dev: Device,
) -> Result<Option<Inode>> {
    if rows.is_empty() {
        return Ok(None);
    }
    let mut before = 0;
    let mut found = None;
    for batch in shard.read(kind, NAME, rows, BATCH_ROWS)? {
        let batch = batch?;
        let names = NAME.of(&batch)?;
        if let Some(at) = (0..batch.num_rows()).find(|&at| names.value(at) == name) {
            found = rows.iter().cloned().flatten().nth(before + at);
            break;
        }
        before += batch.num_rows();
    }
    let Some(row) = found else { return Ok(None) };
    let row = row..row + 1;
    let batch = shard.read(kind, ENTRY, std::slice::from_ref(&row), 1)?.next();
    let batch = batch.ok_or_else(|| shard.corrupt(kind, "a row is missing"))??;
    Ok(inodes(&batch, 0..1, dev)?.next().map(|(_, inode)| inode))
}

/// The absolute path of an entry of a source, as bytes.
pub fn absolute_path(source: &SourceRecord, path: SourcePath<'_>) -> String {
    path.absolute(&source.root)
}

/// A path for a message or the system, from its escaped form.
pub fn to_path(escaped: &str) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(unescape(escaped).into_owned()))
}
