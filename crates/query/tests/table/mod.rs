//! One table that all front ends and back ends of conditions agree on: entries, and conditions as a
//! query in brackets, as find's words and as a predicate of SQL, with the entries that each finds.
//!
//! | checks | against the table |
//! | --- | --- |
//! | brackets, rows in memory | `query/tests/agreement.rs` |
//! | ranges of indexes of a namespace | `namespace/tests/query/agreement.rs` |
//! | bounds of columns | `read/tests/conditions.rs` |
//! | the condition that `canopy ns find` asks of records | `tools/src/find/records/needed.rs` |
//! | find, SQL and brackets on columns of an index | `cli-sql/tests/sql/agreement.rs` |

#![allow(dead_code)]

use canopy_query::{Candidate, Component, Context, Expression, Field, parse, system_zone};

/// An entry of the table. All are in one directory.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub name: &'static [u8],
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub size: i64,
    pub blocks: i64,
    pub ino: u64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub atime_ns: i64,
    pub btime_ns: i64,
    pub target: &'static [u8],
}

const PLAIN: Entry = Entry {
    name: b"",
    mode: 0o100_644,
    uid: 1000,
    gid: 100,
    links: 1,
    size: 5,
    blocks: 8,
    ino: 10,
    mtime_ns: 1_000_000_000_000_000_000,
    ctime_ns: 1_000_000_000_000_000_000,
    atime_ns: 1_000_000_000_000_000_000,
    btime_ns: 1_000_000_000_000_000_000,
    target: b"",
};

/// The entries; a case names them by the letters of their names.
pub const ENTRIES: [Entry; 12] = [
    Entry { name: b"a.txt", ..PLAIN },
    Entry { name: b"b.h5", size: 0, blocks: 0, ino: 11, btime_ns: 0, ..PLAIN },
    Entry { name: b"c", size: i64::MAX, blocks: i64::MAX, ino: 12, ..PLAIN },
    Entry { name: b"d", ino: u64::MAX, mode: 0o100_000, ..PLAIN },
    Entry { name: b"e", ino: 1 << 63, uid: u32::MAX, gid: u32::MAX, links: u32::MAX, ..PLAIN },
    Entry { name: b"f", ino: i64::MAX as u64, uid: 0, gid: 0, mode: 0o104_755, ..PLAIN },
    Entry { name: b"g\xff.txt", ino: 13, mtime_ns: -5, ctime_ns: 0, ..PLAIN },
    Entry { name: b"h", ino: 14, mtime_ns: 0, btime_ns: -1, atime_ns: 1, ..PLAIN },
    Entry { name: b"i", ino: 15, mode: 0o120_777, size: 9, target: b"../a.txt", ..PLAIN },
    Entry { name: b"j", ino: 16, mode: 0o010_600, size: 0, blocks: 0, btime_ns: 1, ..PLAIN },
    Entry { name: b"k[1]*", ino: 17, size: 513, blocks: 1, uid: 999, ..PLAIN },
    Entry { name: b".l", ino: 18, size: 512, blocks: 1, mode: 0o140_222, btime_ns: 0, ..PLAIN },
];

/// A condition in each language, and the first letters of the names of entries that it finds.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub brackets: &'static str,
    pub find: &'static [&'static str],
    pub sql: &'static str,
    pub found: &'static str,
}

const fn case(
    brackets: &'static str,
    find: &'static [&'static str],
    sql: &'static str,
    found: &'static str,
) -> Case {
    Case { brackets, find, sql, found }
}

/// The cases.
pub const CASES: [Case; 44] = [
    // Everything, nothing, and empty spans.
    case("[true]", &["-true"], "true", "abcdefghijkl"),
    case("[false]", &["-false"], "false", ""),
    case("[size<0]", &["-size", "-0c"], "size < 0", ""),
    case("[size>5 and size<5]", &["-size", "+5c", "-size", "-5c"], "size > 5 and size < 5", ""),
    case("[size>=0]", &["-not", "-size", "-0c"], "size >= 0", "abcdefghijkl"),
    // Sizes.
    case("[size=0]", &["-size", "0"], "size = 0", "bj"),
    case("[size>=1 and size<=512]", &["-size", "1"], "size between 1 and 512", "adefghil"),
    case("[size>512]", &["-size", "+1"], "size > 512", "ck"),
    case(
        "[size=9223372036854775807]",
        &["-size", "9223372036854775807c"],
        "size = 9223372036854775807",
        "c",
    ),
    case("[size>15E]", &["-size", "+15360P"], "size > 17293822569102704640", ""),
    case("[size<=15E]", &["!", "-size", "+15360P"], "size <= 17293822569102704640", "abcdefghijkl"),
    // find has no test of blocks; one of sizes finds the same entries.
    case("[blocks>8]", &["-size", "+4096"], "blocks > 8", "c"),
    case("[not size=5]", &["!", "-size", "5c"], "not size = 5", "bcijkl"),
    // Owners.
    case("[uid=4294967295]", &["-uid", "4294967295"], "uid = 4294967295", "e"),
    case("[uid>4294967295]", &["-uid", "+4294967295"], "uid > 4294967295", ""),
    case("[uid<1000]", &["-uid", "-1000"], "uid < 1000", "fk"),
    case("[uid!=1000]", &["!", "-uid", "1000"], "uid <> 1000", "efk"),
    case(
        "[gid=0 or gid=4294967295]",
        &["-gid", "0", "-o", "-gid", "4294967295"],
        "gid = 0 or gid = 4294967295",
        "ef",
    ),
    case("[links>1]", &["-links", "+1"], "nlink > 1", "e"),
    // Inode numbers.
    case(
        "[inode=18446744073709551615]",
        &["-inum", "18446744073709551615"],
        "ino = 18446744073709551615",
        "d",
    ),
    case(
        "[inode>9223372036854775807]",
        &["-inum", "+9223372036854775807"],
        "ino > 9223372036854775807",
        "de",
    ),
    case(
        "[inode<=9223372036854775807]",
        &["!", "-inum", "+9223372036854775807"],
        "ino <= 9223372036854775807",
        "abcfghijkl",
    ),
    case("[inode<14]", &["-inum", "-14"], "ino < 14", "abcg"),
    case(
        "[inode>18446744073709551615]",
        &["-inum", "+18446744073709551615"],
        "ino > 18446744073709551615",
        "",
    ),
    // Types and permissions.
    case("[type=l]", &["-type", "l"], "type = 'l'", "i"),
    case("[type!=f]", &["!", "-type", "f"], "type <> 'f'", "ijl"),
    case("[type=fp]", &["-type", "f,p"], "type in ('f', 'p')", "abcdefghjk"),
    case("[type=d]", &["-type", "d"], "type = 'd'", ""),
    case("[perm=644]", &["-perm", "644"], "mode & 4095 = 420", "abceghk"),
    case("[perm-all=0]", &["-perm", "/0"], "true", "abcdefghijkl"),
    case("[perm-any=022]", &["-perm", "/022"], "mode & 18 <> 0", "il"),
    case("[not perm-all=4000]", &["!", "-perm", "-4000"], "mode & 2048 = 0", "abcdeghijkl"),
    case("[perm=0]", &["-perm", "0"], "mode & 4095 = 0", "d"),
    // Times; a birth of 0 is not known, and null in SQL.
    case("[mtime<@0]", &["!", "-newermt", "@-0.000000001"], "mtime < '1970-01-01T00:00:00Z'", "g"),
    case(
        "[mtime>=@0]",
        &["-newermt", "@-0.000000001"],
        "mtime >= '1970-01-01T00:00:00Z'",
        "abcdefhijkl",
    ),
    case("[ctime<=@0]", &["!", "-newerct", "@0.999999999"], "ctime < '1970-01-01T00:00:01Z'", "g"),
    case(
        "[btime>@0]",
        &["-newerBt", "@0.999999999"],
        "btime >= '1970-01-01T00:00:01Z'",
        "acdefgik",
    ),
    case(
        "[btime<@5]",
        &["-newerBt", "@-2", "!", "-newerBt", "@4.999999999"],
        "btime < '1970-01-01T00:00:05Z'",
        "hj",
    ),
    case(
        "[not btime<@5]",
        &["!", "(", "-newerBt", "@-2", "!", "-newerBt", "@4.999999999", ")"],
        "btime is null or not btime < '1970-01-01T00:00:05Z'",
        "abcdefgikl",
    ),
    case(
        "[not btime>@0]",
        &["!", "-newerBt", "@0.999999999"],
        "btime is null or btime < '1970-01-01T00:00:01Z'",
        "bhjl",
    ),
    case("[btime>=@-9223372036]", &["-newerBt", "@-9223372036"], "btime is not null", "acdefghijk"),
    // Names that are not UTF-8, and names with the signs of patterns.
    case("[name=\"g\\xff.txt\"]", &["-name", "g?.txt"], "name like 'g_.txt'", "g"),
    case("[name~\"k\\\\[1\\\\]*\"]", &["-name", "k\\[1\\]*"], "name like 'k[1]%'", "k"),
    case(
        "[ext=txt and not size=0 or name=c]",
        &["-name", "?*.txt", "!", "-size", "0", "-o", "-name", "c"],
        "name like '%_.txt' and size <> 0 or name = 'c'",
        "acg",
    ),
];

impl Entry {
    /// Returns the letter that cases have for it.
    pub fn letter(&self) -> char {
        let letter = self.name.iter().find(|byte| byte.is_ascii_alphabetic());
        char::from(*letter.expect("a letter"))
    }
}

impl Case {
    /// Returns the condition that the brackets say.
    pub fn expression(&self) -> Expression {
        let nobody = |_: &str| None;
        let context = Context { now_ns: 0, zone: system_zone(), user: &nobody, group: &nobody };
        match parse(self.brackets.as_bytes(), &context) {
            Ok(Some(Component::Search(expression))) => expression,
            other => panic!("{}: {other:?}", self.brackets),
        }
    }

    /// Returns whether it finds an entry.
    pub fn finds(&self, entry: &Entry) -> bool {
        self.found.contains(entry.letter())
    }
}

impl Candidate for Entry {
    fn number(&self, field: Field) -> i128 {
        match field {
            Field::Size => self.size.into(),
            Field::Blocks => self.blocks.into(),
            Field::Mode => self.mode.into(),
            Field::Uid => self.uid.into(),
            Field::Gid => self.gid.into(),
            Field::Links => self.links.into(),
            Field::Project => 0,
            Field::Inode => self.ino.into(),
            Field::Mtime => self.mtime_ns.into(),
            Field::Ctime => self.ctime_ns.into(),
            Field::Atime => self.atime_ns.into(),
            Field::Btime => self.btime_ns.into(),
        }
    }

    fn mode(&self) -> u32 {
        self.mode
    }

    fn name(&self) -> &[u8] {
        self.name
    }

    fn path(&self) -> &[u8] {
        self.name
    }

    fn target(&self) -> &[u8] {
        self.target
    }

    fn xattr(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}
