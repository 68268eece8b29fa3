//! The table of conditions on columns of an index: find's words, predicates of SQL, and brackets.

#[path = "../../../query/tests/table/mod.rs"]
mod table;

use crate::common::Fixture;
use canopy_index::{FileKind, Index};
use canopy_model::{SourcePath, escape, unescape};
use canopy_query::Expression;
use canopy_read::conditions::{NamedRow, may_pass, select};
use canopy_read::inode::{ENTRY, InodeColumns};
use canopy_read::plan::units_below;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use table::{CASES, Case, ENTRIES, Entry};

/// Makes an index of the entries of the table, all in `/d`.
fn indexed() -> (Fixture, PathBuf) {
    let place = Fixture::new();
    let mut csv =
        b"path,type,mode,uid,gid,nlink,size,blocks,ino,mtime_ns,ctime_ns,atime_ns,btime_ns,\
        target\n/d,d,755,0,0,2,0,0,1,0,0,0,0,\n"
            .to_vec();
    for entry in &ENTRIES {
        let Entry { mode, uid, gid, links, size, blocks, ino, .. } = entry;
        let Entry { mtime_ns, ctime_ns, atime_ns, btime_ns, .. } = entry;
        let letter = match mode >> 12 {
            0o10 => 'f',
            0o12 => 'l',
            0o1 => 'p',
            _ => 's',
        };
        csv.extend([b"/d/", entry.name].concat());
        let numbers = format!(
            ",{letter},{:o},{uid},{gid},{links},{size},{blocks},{ino},{mtime_ns},{ctime_ns},\
             {atime_ns},{btime_ns},",
            mode & 0o7777
        );
        csv.extend([numbers.as_bytes(), entry.target, b"\n"].concat());
    }
    let (file, index) = (place.path("table.csv"), place.path("index"));
    fs::write(&file, csv).unwrap();
    run(&place, &index, &["import", "--format=csv", file.to_str().unwrap()]);
    (place, index)
}

/// Runs a command and returns the lines that it prints.
fn run(place: &Fixture, index: &Path, words: &[&str]) -> Vec<Vec<u8>> {
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    let output = place.canopy(index, &words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    output.stdout.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// Returns the letters of entries with these names, escaped or not.
fn letters(names: impl Iterator<Item = Vec<u8>>) -> BTreeSet<char> {
    let known = |name: &Vec<u8>| {
        let is_it = |entry: &&Entry| {
            entry.name == *name || escape(entry.name).as_bytes() == name.as_slice()
        };
        ENTRIES.iter().find(is_it).map(Entry::letter)
    };
    names.filter(|name| !name.is_empty()).map(|name| known(&name).expect("an entry")).collect()
}

fn by_find(place: &Fixture, index: &Path, case: &Case) -> BTreeSet<char> {
    let words = ["find", "/d", "-mindepth", "1", "("];
    let words = [&words, case.find, &[")", "-printf", "%f\\n"]].concat();
    letters(run(place, index, &words).into_iter())
}

fn by_sql(place: &Fixture, index: &Path, case: &Case) -> BTreeSet<char> {
    let query = format!("select name from entries where {}", case.sql);
    let lines = run(place, index, &["sql", "--format", "csv", &query]);
    // A name with a quote or a comma is not among them.
    letters(lines.into_iter().skip(1))
}

fn by_brackets(index: &Index, expression: &Expression) -> BTreeSet<char> {
    let mut found = Vec::new();
    let source = index.sources()[0].id;
    for unit in units_below(index, source, SourcePath::ROOT, FileKind::Entries).unwrap() {
        if !may_pass(expression, &unit).unwrap() {
            continue;
        }
        let rows = select(expression, &unit).unwrap();
        for placed in unit.read_placed(ENTRY, &rows, false).unwrap() {
            let placed = placed.unwrap();
            let inodes = InodeColumns::of(&placed.batch);
            for at in 0..placed.batch.num_rows() {
                let (path, attributes) = (placed.path(at).unwrap(), inodes.row(at));
                let name = unescape(path.as_str());
                let row = NamedRow {
                    attributes: &attributes,
                    name: &name,
                    path: &name,
                    target: b"",
                    xattr: &|_| None,
                };
                if expression.matches(&row) {
                    found.push(name.to_vec());
                }
            }
        }
    }
    letters(found.into_iter())
}

#[test]
fn find_sql_and_brackets_agree_with_the_table() {
    let (place, path) = indexed();
    let index = Index::open(&path).unwrap();
    for case in CASES {
        let expected: BTreeSet<char> = case.found.chars().collect();
        assert_eq!(by_brackets(&index, &case.expression()), expected, "{}", case.brackets);
        assert_eq!(by_find(&place, &path, &case), expected, "{:?}", case.find);
        assert_eq!(by_sql(&place, &path, &case), expected, "{}", case.sql);
    }
}
