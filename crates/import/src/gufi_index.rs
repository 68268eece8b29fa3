//! GUFI's indexes: a copy of the source's directories, each with a SQLite database `db.db` of its
//! contents.
//!
//! A database describes its directory in the row of `summary` with `isroot = 1`, and its other
//! entries in `entries`. Extended attributes are in `xattrs_pwd`, here and in the databases that
//! `external_dbs_pwd` names: those hold values that not every user who lists the directory may
//! read. A rollup adds rows (`pentries_rollup`, further rows of `summary`) that repeat the
//! databases below. They are not read, so an index gives equal listings rolled up or not.
//!
//! 1. The first pass walks the directories and reads their attributes.
//! 2. The second pass reads the entries, directories in parallel.

use crate::emitter::{Emitter, NewEntry};
use crate::error::{Error, Position, Problems, Result, RunError};
use crate::fault::{Checked, Fault};
use crate::first_pass::{FirstPass, RootRule};
use crate::foreign_sqlite::{open_foreign_sqlite, plain_sqlite_tables};
use crate::number::unsigned;
use crate::path::{check_name, shown};
use crate::tree::{MADE_UP, NO_DIR, Tree, Xattrs};
use canopy_model::{Attributes, FileType, Sink, escape, parallel};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, Rows, Statement};
use rustc_hash::FxHashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// Directories that one task of the second pass reads.
const DIRS_AT_ONCE: usize = 64;

/// Nanoseconds in a second.
const SECOND_NS: i64 = 1_000_000_000;

/// The tables of a directory's database that are read.
const TABLES: [&str; 4] = ["summary", "entries", "xattrs_pwd", "external_dbs_pwd"];

const COLUMNS: &str = "inode, mode, nlink, uid, gid, size, blksize, blocks, atime, mtime, ctime, \
    crtime, name, linkname";

/// An index after the first pass.
#[derive(Debug)]
pub(crate) struct GufiIndex {
    /// Each directory with its number in the tree.
    dirs: Vec<(PathBuf, u32)>,
}

/// Extended attributes by inode, as the databases have it.
type XattrsByInode = FxHashMap<Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>>;

impl GufiIndex {
    /// Makes the first pass.
    pub(crate) fn open(
        root: &Path,
        asked_root: Option<&[u8]>,
        problems: &Problems,
    ) -> Result<(Self, Tree)> {
        if !problems.lenient() && !root.join("db.db").exists() {
            let root = root.display();
            return Err(Error::Input(format!("{root} is not a GUFI index: it has no db.db")));
        }
        let (mut gathered, mut found) = (FirstPass::default(), Vec::new());
        // Paths below the root with their places on disk.
        let mut waiting: Vec<(Vec<u8>, PathBuf)> = vec![(Vec::new(), root.to_owned())];
        while let Some((path, directory)) = waiting.pop() {
            let subdirs = subdirs(&directory)?;
            let (attributes, unknown, xattrs) = match own_record(&directory) {
                Ok((attributes, xattrs)) => (attributes, false, xattrs),
                Err(fault) => {
                    problems.report(Error::file(&directory.join("db.db"), fault))?;
                    (MADE_UP, true, Xattrs::new())
                }
            };
            gathered.push(&path, attributes, unknown, xattrs, (0, Position::Offset(0)));
            for name in subdirs {
                let child =
                    if path.is_empty() { name.clone() } else { [&path[..], b"/", &name].concat() };
                waiting.push((child, directory.join(OsStr::from_bytes(&name))));
            }
            found.push(directory);
        }
        problems.end_pass(false)?;
        let names = [root.to_owned()];
        let (tree, numbers) =
            Tree::build(vec![gathered], asked_root, RootRule::Below, &names, problems)?;
        let dirs = found.into_iter().zip(numbers.into_iter().flatten()).collect();
        Ok((GufiIndex { dirs }, tree))
    }

    /// Makes the second pass.
    pub(crate) fn run<S: Sink<Error: std::error::Error>>(
        &self,
        emitters: &mut [Emitter<'_, S>],
        problems: &Problems,
    ) -> std::result::Result<(), RunError<S::Error>> {
        let tasks: Vec<&[(PathBuf, u32)]> = self.dirs.chunks(DIRS_AT_ONCE).collect();
        parallel(emitters, tasks, |emitter, dirs| {
            let usable = dirs.iter().filter(|(_, number)| *number != NO_DIR);
            usable.into_iter().try_for_each(|(directory, number)| {
                emitter.begin(*number)?;
                read_entries(directory, emitter, problems)?;
                emitter.finish()
            })
        })?;
        emitters.first_mut().map_or(Ok(()), Emitter::made_up)
    }
}

/// Returns the names of the directories in a directory, in order. Symbolic links are not followed.
fn subdirs(directory: &Path) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(Error::io("list", directory))? {
        let entry = entry.map_err(Error::io("list", directory))?;
        if entry.file_type().map_err(Error::io("look at", &entry.path()))?.is_dir() {
            names.push(entry.file_name().as_bytes().to_vec());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// A database, in which what is read is plain tables without computed columns.
///
/// Pages that several others name, and values in pages that several rows name, give more than lies
/// in the file, up to without an end. So no more is read of a table than the file has room for.
struct Database {
    connection: Connection,
    bytes: u64,
}

impl Database {
    fn open(path: &Path, tables: &[&str]) -> Checked<Self> {
        let connection = open_foreign_sqlite(path)?;
        let plain = plain_sqlite_tables(&connection)?;
        let query = "SELECT 1 FROM pragma_table_xinfo(?1) WHERE hidden <> 0";
        let mut computed = connection.prepare(query)?;
        for table in tables {
            if !plain.iter().any(|plain| plain == table) {
                return Err(Fault::form(format!("it has no table '{table}'")));
            }
            if computed.exists([table])? {
                return Err(Fault::form(format!("table '{table}' has computed columns")));
            }
        }
        drop(computed);
        let metadata = std::fs::metadata(path).map_err(Fault::decoder)?;
        Ok(Database { connection, bytes: metadata.len() })
    }

    /// Has the rows of a table read, which a query without conditions must give: rows that SQLite
    /// leaves out by itself would not be counted.
    fn select(&self, query: &str) -> Checked<(Statement<'_>, Room)> {
        // UTF-16 becomes longer by half.
        Ok((self.connection.prepare(query)?, Room { bytes: self.bytes.saturating_mul(2) }))
    }
}

/// Most bytes that the rest of a table can contain.
struct Room {
    bytes: u64,
}

impl Room {
    /// Returns the next row.
    fn next<'a, 'b>(&mut self, rows: &'a mut Rows<'b>) -> Checked<Option<&'a Row<'b>>> {
        let Some(row) = rows.next()? else { return Ok(None) };
        let columns = row.as_ref().column_count();
        let mut bytes = 1;
        for column in 0..columns {
            if let ValueRef::Text(value) | ValueRef::Blob(value) = row.get_ref(column)? {
                bytes += value.len() as u64;
            }
        }
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.ok_or_else(|| Fault::form("a table has more than its file"))?;
        Ok(Some(row))
    }
}

fn own_record(directory: &Path) -> Checked<(Attributes, Xattrs)> {
    let database = Database::open(&directory.join("db.db"), &TABLES)?;
    let (mut statement, mut room) =
        database.select(&format!("SELECT {COLUMNS}, isroot = 1 AND rectype = 0 FROM summary"))?;
    let mut rows = statement.query([])?;
    let mut own = None;
    while let Some(row) = room.next(&mut rows)? {
        if row.get::<_, Option<bool>>(14)? != Some(true) {
            continue;
        }
        let attributes = attributes(row)?;
        if attributes.file_type() != FileType::Directory {
            return Err(Fault::form(format!("its directory has mode {:o}", attributes.mode)));
        }
        if own.replace((attributes, bytes(row, 0)?.to_vec())).is_some() {
            return Err(Fault::form("it tells of its directory more than once"));
        }
    }
    let (attributes, inode) =
        own.ok_or_else(|| Fault::form("it does not tell of its directory"))?;
    let mut xattrs = XattrsByInode::default();
    add_xattrs(&database, &mut xattrs)?;
    let own = xattrs.remove(&inode).unwrap_or_default();
    Ok((
        attributes,
        own.into_iter().map(|(key, value)| (escape(&key).into_owned(), value)).collect(),
    ))
}

/// Adds the entries of a directory to its listing.
fn read_entries<S: Sink<Error: std::error::Error>>(
    directory: &Path,
    emitter: &mut Emitter<'_, S>,
    problems: &Problems,
) -> std::result::Result<(), RunError<S::Error>> {
    let path = directory.join("db.db");
    let report = |fault: Fault| problems.report(Error::file(&path, fault));
    let database = match Database::open(&path, &TABLES) {
        Ok(database) => database,
        // The first pass has reported it, if it could not be opened then.
        Err(_) if problems.lenient() => return Ok(()),
        Err(fault) => return Ok(report(fault)?),
    };
    let xattrs = match all_xattrs(&database, directory) {
        Ok(xattrs) => xattrs,
        Err(fault) => {
            report(fault)?;
            XattrsByInode::default()
        }
    };
    let (mut statement, mut room) = match database.select(&format!("SELECT {COLUMNS} FROM entries"))
    {
        Ok(selected) => selected,
        Err(fault) => return Ok(report(fault)?),
    };
    let mut rows = match statement.query([]) {
        Ok(rows) => rows,
        Err(error) => return Ok(report(error.into())?),
    };
    let mut number = 0;
    loop {
        number += 1;
        let row = match room.next(&mut rows) {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(()),
            Err(fault) => return Ok(report(fault)?),
        };
        if let Err(fault) = add_entry(row, &xattrs, emitter)? {
            problems.report(Error::record(&path, Position::Row(number), fault))?;
        }
    }
}

fn add_entry<S: Sink<Error: std::error::Error>>(
    row: &Row<'_>,
    xattrs: &XattrsByInode,
    emitter: &mut Emitter<'_, S>,
) -> std::result::Result<Checked<()>, RunError<S::Error>> {
    let checked = || {
        let (name, target) = (bytes(row, 12)?, bytes(row, 13)?);
        check_name(name).map_err(|fault| fault.within(shown(name)))?;
        let attributes = attributes(row).map_err(|fault| fault.within(shown(name)))?;
        if attributes.file_type() == FileType::Directory {
            let fault = Fault::contradiction("a directory among the other entries");
            return Err(fault.within(shown(name)));
        }
        Ok((name, target, attributes))
    };
    let (name, target, attributes) = match checked() {
        Ok(checked) => checked,
        Err(fault) => return Ok(Err(fault)),
    };
    let target = if attributes.file_type() == FileType::Symlink { target } else { b"" };
    let own = bytes(row, 0).ok().and_then(|inode| xattrs.get(inode)).map_or(&[][..], Vec::as_slice);
    let xattrs = own.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
    let added = emitter.push(NewEntry { name, attributes, target, xattrs })?;
    Ok(if added {
        Ok(())
    } else {
        Err(Fault::contradiction("a second entry of this name").within(shown(name)))
    })
}

/// Returns the extended attributes of a directory's entries, those in other databases too.
fn all_xattrs(database: &Database, directory: &Path) -> Checked<XattrsByInode> {
    let mut xattrs = XattrsByInode::default();
    add_xattrs(database, &mut xattrs)?;
    let (mut statement, mut room) =
        database.select("SELECT filename, type = 'xattrs' FROM external_dbs_pwd")?;
    let mut rows = statement.query([])?;
    while let Some(row) = room.next(&mut rows)? {
        if row.get::<_, Option<bool>>(1)? != Some(true) {
            continue;
        }
        let name = bytes(row, 0)?;
        check_name(name).map_err(|fault| fault.within("external database"))?;
        let other = directory.join(OsStr::from_bytes(name));
        let other =
            Database::open(&other, &["xattrs_pwd"]).map_err(|fault| fault.within(shown(name)))?;
        add_xattrs(&other, &mut xattrs)?;
    }
    Ok(xattrs)
}

/// Adds what one database has. A value lies both in the database of its owner and in that of its
/// group.
fn add_xattrs(database: &Database, xattrs: &mut XattrsByInode) -> Checked<()> {
    let (mut statement, mut room) = database.select("SELECT inode, name, value FROM xattrs_pwd")?;
    let mut rows = statement.query([])?;
    while let Some(row) = room.next(&mut rows)? {
        let (inode, key, value) = (bytes(row, 0)?, bytes(row, 1)?, bytes(row, 2)?);
        if key.is_empty() || key.len() > 255 || key.contains(&0) {
            return Err(Fault::form(format!("an extended attribute with the name {}", shown(key))));
        }
        let own = xattrs.entry(inode.to_vec()).or_default();
        if !own.iter().any(|(known, _)| known == key) {
            own.push((key.to_vec(), value.to_vec()));
        }
    }
    Ok(())
}

/// Returns the bytes of a text or blob; none for NULL.
fn bytes<'a>(row: &'a Row<'_>, column: usize) -> Checked<&'a [u8]> {
    match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Ok(bytes),
        ValueRef::Null => Ok(b""),
        other => {
            Err(Fault::form(format!("column {column} is {}, expected text", other.data_type())))
        }
    }
}

fn attributes(row: &Row<'_>) -> Checked<Attributes> {
    let number = |column: usize| row.get::<_, i64>(column);
    let small = |column: usize| {
        let got = number(column)?;
        u32::try_from(got).map_err(|_| {
            Fault::form(format!("column {column} is {got}, expected a number of 32 bits"))
        })
    };
    let count = |column: usize| {
        let got = number(column)?;
        if got < 0 {
            Err(Fault::form(format!("column {column} is {got}, expected at least 0")))
        } else {
            Ok(got)
        }
    };
    let time = |column: usize| number(column).map(|seconds| seconds.saturating_mul(SECOND_NS));
    let mode = small(1)?;
    if FileType::of_mode(mode) == FileType::Unknown || mode > 0o177_777 {
        return Err(Fault::form(format!("mode {mode:o} has no type")));
    }
    Ok(Attributes {
        ino: unsigned(bytes(row, 0)?)?,
        mode,
        nlink: small(2)?,
        uid: small(3)?,
        gid: small(4)?,
        size_bytes: count(5)?,
        blksize_bytes: small(6)?,
        blocks: count(7)?,
        atime_ns: time(8)?,
        mtime_ns: time(9)?,
        ctime_ns: time(10)?,
        btime_ns: time(11)?,
        rdev: 0,
    })
}
