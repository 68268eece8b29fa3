//! Indexes made here with SQLite, read back, and broken.

use super::TABLES;
use crate::trace::tests::{Seen, import_with};
use crate::{Error, Format};
use proptest::prelude::*;
use rusqlite::Connection;
use std::path::Path;

const SUMMARY: &str = "CREATE TABLE summary(name TEXT, type TEXT, inode TEXT, mode INT64, nlink \
    INT64, uid INT64, gid INT64, \
    size INT64, blksize INT64, blocks INT64, atime INT64, mtime INT64, ctime INT64, linkname \
    TEXT, crtime INT64, \
    rectype INT64, isroot INT64)";
const ENTRIES: &str = "CREATE TABLE entries(name TEXT, type TEXT, inode TEXT, mode INT64, nlink \
    INT64, uid INT64, gid INT64, \
    size INT64, blksize INT64, blocks INT64, atime INT64, mtime INT64, ctime INT64, linkname \
    TEXT, crtime INT64)";
const XATTRS: &str = "CREATE TABLE xattrs_pwd(inode TEXT, name BLOB, value BLOB);
    CREATE TABLE external_dbs_pwd(type TEXT, filename TEXT)";

/// Writes the database of a directory with one file in it.
fn directory(path: &Path, mode: u32, file: &str) {
    std::fs::create_dir(path).unwrap();
    let database = Connection::open(path.join("db.db")).unwrap();
    for statement in [
        SUMMARY.to_owned(),
        ENTRIES.to_owned(),
        XATTRS.to_owned(),
        format!(
            "INSERT INTO summary VALUES('d', 'd', '7', {mode}, 2, 1, 1, 0, 4096, 0, 1, 2, 3, '', \
             4, 0, 1)"
        ),
        format!(
            "INSERT INTO entries VALUES('{file}', 'f', '8', {}, 1, 1, 1, 5, 4096, 8, 1, 2, 3, '', \
             4)",
            0o100_644
        ),
        "INSERT INTO xattrs_pwd VALUES('8', CAST('user.a' AS BLOB), CAST('value' AS BLOB))"
            .to_owned(),
    ] {
        database.execute_batch(&statement).unwrap();
    }
}

/// An open directory and a closed one below it.
fn index() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    directory(&place.path().join("root"), 0o040_755, "open file");
    directory(&place.path().join("root/closed"), 0o040_700, "closed file");
    place
}

fn import(place: &Path, lenient: bool) -> Result<(Seen, u64), Error> {
    import_with(&[], |request| {
        request.format = Format::GufiIndex;
        request.files = vec![place.join("root")];
        request.lenient = lenient;
    })
}

#[test]
fn databases_tell_what_was_put_into_them() {
    let place = index();
    let (seen, problems) = import(place.path(), false).unwrap();
    assert_eq!(problems, 0);
    let names = |path: &str| seen.dirs[path].iter().map(|row| row.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(""), ["closed", "open file"]);
    assert_eq!(names("closed"), ["closed file"]);
    assert_eq!(seen.open, [""], "nobody but its owner sees into the closed one");
    assert_eq!(seen.xattrs["closed/closed file:user.a"], b"value");
}

/// A pipe held the import up for ever.
#[test]
fn a_pipe_is_no_database() {
    let place = index();
    let database = place.path().join("root/db.db");
    std::fs::remove_file(&database).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&database).status().unwrap().success());
    let error = import(place.path(), false).err().unwrap().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn a_database_that_is_none_closes_its_directory() {
    for content in [&b""[..], b"SQLite format 3\0 and no more", &[0xff; 5000]] {
        let place = index();
        std::fs::write(place.path().join("root/db.db"), content).unwrap();
        assert!(import(place.path(), false).is_err());
        let (seen, problems) = import(place.path(), true).unwrap();
        assert!(problems > 0 && seen.open.is_empty(), "{problems} {:?}", seen.open);
    }
}

#[test]
fn a_query_in_place_of_a_table_is_not_run_for_ever() {
    let place = index();
    let database = Connection::open(place.path().join("root/db.db")).unwrap();
    database
        .execute_batch(
            "ALTER TABLE entries RENAME TO e; CREATE VIEW entries AS \
             WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT e.* FROM r, e",
        )
        .unwrap();
    drop(database);
    assert!(import(place.path(), false).is_err());
}

#[test]
fn a_column_that_is_computed_is_not_read() {
    let place = index();
    let database = Connection::open(place.path().join("root/db.db")).unwrap();
    database
        .execute_batch(
            "DROP TABLE xattrs_pwd; CREATE TABLE xattrs_pwd(inode TEXT, name BLOB,
             value BLOB AS (zeroblob(900000000))); INSERT INTO xattrs_pwd VALUES('8', 'user.a')",
        )
        .unwrap();
    drop(database);
    let error = import(place.path(), false).err().unwrap().to_string();
    assert!(error.contains("table 'xattrs_pwd' has computed columns"), "{error}");
}

#[test]
fn pages_with_many_parents_are_not_read_for_ever() {
    for table in TABLES {
        let place = index();
        fold(&place.path().join("root/db.db"), table);
        assert!(import(place.path(), false).is_err(), "{table}");
        let (seen, problems) = import(place.path(), true).unwrap();
        let is_open = ["entries", "external_dbs_pwd"].contains(&table);
        assert!(problems > 0 && seen.open.is_empty() != is_open, "{table} {:?}", seen.open);
    }
}

/// Puts 16 pages over the only page of a table, each of which names the next one ten times.
fn fold(path: &Path, table: &str) {
    let database = Connection::open(path).unwrap();
    if table == "external_dbs_pwd" {
        database.execute_batch("INSERT INTO external_dbs_pwd VALUES('none', 'none')").unwrap();
    }
    let query = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let root: usize = database.query_row(query, [table], |row| row.get(0)).unwrap();
    drop(database);
    let mut bytes = std::fs::read(path).unwrap();
    let page_bytes = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    let root = (root - 1) * page_bytes..root * page_bytes;
    let leaf = bytes[root.clone()].to_vec();
    let mut last = (bytes.len() / page_bytes) as u32;
    let page = |child: u32| {
        let mut page = vec![0; page_bytes];
        let cell = page_bytes - 8;
        page[0] = 5;
        page[4] = 9;
        page[5..7].copy_from_slice(&(cell as u16).to_be_bytes());
        page[8..12].copy_from_slice(&child.to_be_bytes());
        page[12..30].copy_from_slice(&(cell as u16).to_be_bytes().repeat(9));
        page[cell..cell + 4].copy_from_slice(&child.to_be_bytes());
        page[cell + 4] = 1;
        page
    };
    bytes[root].copy_from_slice(&page(last + 1));
    for _ in 1..16 {
        last += 1;
        bytes.extend(page(last + 1));
    }
    bytes.extend(leaf);
    bytes[28..32].copy_from_slice(&(last + 1).to_be_bytes());
    std::fs::write(path, bytes).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_change_makes_it_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        which: bool,
        lenient: bool,
    ) {
        let place = index();
        let path = place.path().join(if which { "root/db.db" } else { "root/closed/db.db" });
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        std::fs::write(&path, bytes).unwrap();
        let _ = import(place.path(), lenient);
    }
}

#[test]
fn a_directory_that_is_no_index_is_told_as_such() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("root")).unwrap();
    let error = import(place.path(), false).err().unwrap().to_string();
    assert!(error.ends_with("root is not a GUFI index: it has no db.db"), "{error}");
}
