//! Entry points for fuzzing: each format of `canopy import` from the bytes of a file to
//! listings. No part of the interface of this crate.

use crate::{Counts, Form, Format, Import, Request};
use canopy_model::fuzzing::Target;
use canopy_model::{ClassTable, Listing, Sink};
use std::convert::Infallible;
use std::io::Write;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "trace", run: |bytes| trace(bytes, Form::Prefixed), seeds: prefixed_seeds },
    Target { name: "trace_plain", run: |bytes| trace(bytes, Form::Plain), seeds: plain_seeds },
    Target { name: "csv", run: |bytes| flat(bytes, Format::Csv), seeds: || one(CSV) },
    Target { name: "ndjson", run: |bytes| flat(bytes, Format::Ndjson), seeds: || one(NDJSON) },
    Target { name: "find", run: |bytes| flat(bytes, Format::Find), seeds: || one(FIND) },
    Target { name: "gpfs", run: |bytes| flat(bytes, Format::GpfsPolicy), seeds: || one(GPFS) },
    Target { name: "lester", run: |bytes| flat(bytes, Format::Lester), seeds: || one(LESTER) },
    Target { name: "ncdu", run: |bytes| flat(bytes, Format::Ncdu), seeds: || one(NCDU) },
    Target { name: "gufi_index", run: gufi_index, seeds: gufi_index_seeds },
];

/// Checks what must hold of every listing, and forgets it.
struct Checked;

impl Sink for Checked {
    type Error = Infallible;

    fn listing(&mut self, listing: &Listing<'_>) -> Result<(), Infallible> {
        for row in listing.rows.iter() {
            assert!(!row.name.is_empty() && !row.name.contains(['/', '\0']), "{:?}", row.name);
            assert!(!matches!(row.name, "." | ".."));
        }
        Ok(())
    }
}

/// Reads an input as far as it can be read.
fn read(mut request: Request, lenient: bool) {
    request.root = Some(b"/r".to_vec());
    request.lenient = lenient;
    let Ok(mut import) = Import::open(&request) else { return };
    let classes = ClassTable::default();
    drop(import.run(&classes, &Counts::default(), vec![Checked, Checked]));
}

fn of_file(bytes: &[u8], mut request: Request) {
    let mut file = tempfile::NamedTempFile::new().expect("there is room for a temporary file");
    file.write_all(bytes).expect("there is room for a temporary file");
    request.files = vec![file.path().to_owned()];
    // A lenient import reads on after errors that end a strict one.
    read(request, true);
}

fn trace(bytes: &[u8], form: Form) {
    of_file(bytes, Request { trace_form: Some(form), ..Request::new(Format::GufiTrace) });
}

fn flat(bytes: &[u8], format: Format) {
    of_file(bytes, Request::new(format));
}

fn gufi_index(bytes: &[u8]) {
    let place = tempfile::tempdir().expect("there is room for a temporary directory");
    std::fs::write(place.path().join("db.db"), bytes).expect("there is room for a file");
    let files = vec![place.path().to_owned()];
    read(Request { files, ..Request::new(Format::GufiIndex) }, true);
}

fn one(seed: &[u8]) -> Vec<Vec<u8>> {
    vec![seed.to_vec()]
}

const CSV: &[u8] = b"path,type,mode,uid,gid,size,mtime,target,extra\r\n\
    /r/a/x,f,0644,1000,100,5,1.5,,\n\"/r/a/new\nline \"\"q\"\"\",l,777,1000,100,3,2,../\xff,no\n\
    /r,d,755,0,0,0,0,,\n/r/a,d,755,0,0,0,2023-11-14T22:13:20.25Z,,\n\
    /r/secret,d,700,0,0,0,0,,\n/r/secret/f,f,644,0,0,0,0,,\n";

const NDJSON: &[u8] = br#"{"path":"/r","mode":16877,"uid":0,"gid":0,"size":0,"mtime":1}
{"path":"/r/f","type":"f","mode":"600","uid":1,"gid":1,"size":9,"mtime":"2023-11-14T22:13:20Z","xattrs":{"user.a":"b","user.h":"0x00ff"}}
{"path":"/r/d","type":"d","mode":"755","uid":0,"gid":0,"size":0,"mtime":1,"xattrs":{"system.posix_acl_access":"?"}}
"#;

const FIND: &[u8] = b"f 644 1000 100 5 1 7 8 1.5 1.5 1.5 0 /r/a/x\0\0\
    l 777 1000 100 3 1 8 0 2 2 2  /r/a/new\nline \"q\"\0../\xff\0\
    d 755 0 0 0 2 9 0 0 0 0 0 /r\0\0d 755 0 0 0 2 9 0 0 0 0 0 /r/a\0\0\
    d 700 0 0 0 2 9 0 0 0 0 -1.-000000010 /r/secret\0\0\
    f 644 0 0 0 1 9 0 0 0 0 0 /r/secret/f\0\0";

const GPFS: &[u8] = b"7 65536 0   -rw-r--r--|1|1000|100|5|1|4096|1970-01-01%2000%3A00%3A01|\
    1970-01-01 00:00:01.500000|1970-01-01 00:00:01|1970-01-01 00:00:01 -- %2Fr%2Fa%2Fx\n\
    3 1 0  drwxr-xr-x|2|0|0|0|0|4096|1970-01-01 00:00:00|1970-01-01 00:00:00|\
    1970-01-01 00:00:00|1970-01-01 00:00:00 -- %2Fr%2F.\n\
    4 1 0  drwxr-sr-t|2|0|0|0|0|4096|1970-01-01 00:00:00|1970-01-01 00:00:00|\
    1970-01-01 00:00:00|1970-01-01 00:00:00|system|root|D -- %2Fr%2Fa\n";

const NCDU: &[u8] = br#"[1,2,{"progname":"ncdu"},[{"name":"/r","dev":1,"uid":0,"gid":0,"mode":16877},
{"name":"f\u0009","asize":5,"dsize":4096,"ino":7,"hlnkc":true,"nlink":2,"uid":1,"gid":1,"mode":33188,"mtime":1.5},
[{"name":"d","dev":2,"read_error":true,"mode":16832,"uid":0,"gid":0,"mtime":0}],{"name":"x","excluded":"pattern"}]]"#;

const LESTER: &[u8] = b"#IDENT#|0.9|1.42.7|1385000000|Thu Nov 21|mds|/dev/sdb|0|0|0|0|UNKNOWN|\n\
    0|0|0|0|0|40755|4096|2|/\n1|3|2|0|0|40755|4096|12|||/a\n\
    9|8|7|1000|100|100644|5|13|3:1f,2:a0|0x200000400:0x1:0x0|/a/x|y\n\
    9|8|7|1000|100|120777|3|14||/a/l\n9|8|7|1000|100|100600|0|15|/a/plain\n#complete#1385000100\n";

/// Returns a record of a trace, in either form.
fn record(form: Form, path: &str, kind: char, mode: u32, target: &str, pairs: &str) -> Vec<u8> {
    let text = |text: &str| match form {
        Form::Prefixed => format!("{:04x}{text}", text.len()),
        Form::Plain => text.to_owned(),
    };
    let pairs = match form {
        Form::Prefixed => {
            let count = pairs.matches('\x1f').count() / 2;
            format!("{:04x}{count:04x}{pairs}", pairs.len() + 4)
        }
        Form::Plain => pairs.to_owned(),
    };
    let numbers = format!("77\x1e{mode}\x1e1\x1e1000\x1e100\x1e5\x1e4096\x1e8\x1e1\x1e2\x1e-3");
    let (path, target, none) = (text(path), text(target), text(""));
    format!(
        "{path}\x1e{kind}\x1e{numbers}\x1e{target}\x1e{pairs}\x1e9\x1e0\x1e0\x1e0\x1e0\
         \x1e{none}\x1e{none}\x1e12\x1e\n"
    )
    .into_bytes()
}

fn trace_seed(form: Form) -> Vec<u8> {
    [
        record(form, "r", 'd', 0o040_755, "", ""),
        record(form, "r/a", 'f', 0o100_644, "", "user.k\x1fvalue\x1f"),
        record(form, "r/l", 'l', 0o120_777, "a", ""),
        record(form, "r/d", 'd', 0o040_700, "", ""),
        record(form, "r/d/f", 'f', 0o100_600, "", ""),
    ]
    .concat()
}

fn prefixed_seeds() -> Vec<Vec<u8>> {
    vec![trace_seed(Form::Prefixed)]
}

fn plain_seeds() -> Vec<Vec<u8>> {
    vec![trace_seed(Form::Plain)]
}

/// Returns the database of a directory with one file in it.
fn gufi_index_seeds() -> Vec<Vec<u8>> {
    const STATEMENTS: &str = "PRAGMA page_size = 512;
        CREATE TABLE summary(inode TEXT, mode INT64, nlink INT64, uid INT64, gid INT64, size INT64,
            blksize INT64, blocks INT64, atime INT64, mtime INT64, ctime INT64, crtime INT64,
            name TEXT, linkname TEXT, rectype INT64, isroot INT64);
        CREATE TABLE entries(inode TEXT, mode INT64, nlink INT64, uid INT64, gid INT64, size INT64,
            blksize INT64, blocks INT64, atime INT64, mtime INT64, ctime INT64, crtime INT64,
            name TEXT, linkname TEXT);
        CREATE TABLE xattrs_pwd(inode TEXT, name BLOB, value BLOB);
        CREATE TABLE external_dbs_pwd(type TEXT, filename TEXT);
        INSERT INTO summary VALUES('7', 16877, 2, 1, 1, 0, 4096, 0, 1, 2, 3, 4, 'd', '', 0, 1);
        INSERT INTO entries VALUES('8', 33188, 1, 1, 1, 5, 4096, 8, 1, 2, 3, 4, 'file', '');
        INSERT INTO xattrs_pwd VALUES('8', CAST('user.a' AS BLOB), CAST('value' AS BLOB));";
    let place = tempfile::tempdir().expect("there is room for a temporary directory");
    let path = place.path().join("db.db");
    let made =
        rusqlite::Connection::open(&path).and_then(|database| database.execute_batch(STATEMENTS));
    made.expect("SQLite makes a database");
    vec![std::fs::read(path).expect("the database can be read")]
}
