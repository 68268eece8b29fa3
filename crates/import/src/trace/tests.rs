//! Traces written here, read back, and broken in every way.

use crate::{Counts, Error, Format, Import, Request};
use canopy_model::{Attributes, ClassTable, Credentials, Listing, Sink};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// Listings that a sink received: by path of the directory, its parts and their entries.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub(crate) struct Seen {
    pub dirs: BTreeMap<String, Vec<(String, Attributes, String)>>,
    pub xattrs: BTreeMap<String, Vec<u8>>,
    pub open: Vec<String>,
}

pub(crate) struct Collect<'a>(pub Seen, pub &'a ClassTable);

impl Sink for Collect<'_> {
    type Error = std::convert::Infallible;

    fn listing(&mut self, listing: &Listing<'_>) -> Result<(), Self::Error> {
        let rows = listing.rows;
        assert_eq!(
            listing.part == 0,
            !self.0.dirs.contains_key(listing.path.as_str()),
            "parts begin with 0, once"
        );
        let known = self.0.dirs.entry(listing.path.as_str().to_owned()).or_default();
        known.extend(
            rows.iter().map(|row| (row.name.to_owned(), *row.attributes, row.target.to_owned())),
        );
        if self.1.admits(listing.access.listing.listers, &Credentials::new(4711, [])) {
            self.0.open.push(listing.path.as_str().to_owned());
        }
        for at in 0..rows.len() {
            for xattr in rows.xattrs(at) {
                let path = format!("{}/{}:{}", listing.path.as_str(), rows.name(at), xattr.key);
                self.0.xattrs.insert(path, xattr.value.unwrap().0.to_vec());
            }
        }
        Ok(())
    }
}

/// Imports files of these contents.
pub(crate) fn import_with(
    files: &[&[u8]],
    change: impl FnOnce(&mut Request),
) -> Result<(Seen, u64), Error> {
    let files: Vec<tempfile::NamedTempFile> = files
        .iter()
        .map(|bytes| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(bytes).unwrap();
            file
        })
        .collect();
    let mut request = Request {
        files: files.iter().map(|file| PathBuf::from(file.path())).collect(),
        root: Some(b"/r".to_vec()),
        ..Request::new(Format::GufiTrace)
    };
    change(&mut request);
    let mut import = Import::open(&request)?;
    let classes = ClassTable::default();
    let sinks = vec![Collect(Seen::default(), &classes), Collect(Seen::default(), &classes)];
    let sinks = import.run(&classes, &Counts::default(), sinks).map_err(|error| match error {
        crate::RunError::Import(error) => error,
        crate::RunError::Sink(never) => match never {},
    })?;
    let mut all = Seen::default();
    for Collect(seen, _) in sinks {
        all.dirs.extend(seen.dirs);
        all.xattrs.extend(seen.xattrs);
        all.open.extend(seen.open);
    }
    all.open.sort();
    for entries in all.dirs.values_mut() {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
    }
    Ok((all, import.problems().count()))
}

fn import(files: &[&[u8]], lenient: bool) -> Result<(Seen, u64), Error> {
    import_with(files, |request| request.lenient = lenient)
}

/// Returns a record in the prefixed form.
fn record(path: &[u8], kind: char, mode: u32, target: &[u8], xattrs: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut pairs = Vec::new();
    for (key, value) in xattrs {
        pairs.extend([key, &b"\x1f"[..], value, b"\x1f"].concat());
    }
    let mut line = format!("{:04x}", path.len()).into_bytes();
    line.extend_from_slice(path);
    line.extend(
        format!(
            "\x1e{kind}\x1e77\x1e{mode}\x1e1\x1e1000\x1e100\x1e5\x1e4096\x1e8\x1e1\x1e2\x1e-3\x1e"
        )
        .bytes(),
    );
    line.extend(format!("{:04x}", target.len()).bytes());
    line.extend_from_slice(target);
    line.extend(format!("\x1e{:04x}{:04x}", pairs.len() + 4, xattrs.len()).bytes());
    line.extend(pairs);
    line.extend(b"\x1e9\x1e0\x1e0\x1e0\x1e0\x1e0000\x1e0000\x1e12\x1e\n");
    line
}

/// Returns a record in the plain form.
fn plain(path: &str, kind: char, mode: u32, target: &str, xattrs: &str) -> String {
    format!(
        "{path}\x1e{kind}\x1e77\x1e{mode}\x1e1\x1e1000\x1e100\x1e5\x1e4096\x1e8\x1e1\x1e2\x1e-3\x1e{target}\x1e{xattrs}\
         \x1e9\x1e0\x1e0\x1e0\x1e0\x1e\x1e\x1e12\x1e\n"
    )
}

const DIR: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const LINK: u32 = 0o120_777;

/// Stanzas of a small tree; names hold what ends records and fields.
fn stanzas() -> Vec<Vec<u8>> {
    vec![
        [
            record(b"t", 'd', DIR, b"", &[(b"user.r", b"root")]),
            record(b"t/new\nline\x1e", 'f', FILE, b"", &[]),
        ]
        .concat(),
        [
            record(b"t/a", 'd', DIR, b"", &[]),
            record(b"t/a/link", 'l', LINK, b"../\xff", &[]),
            record(b"t/a/x", 'f', FILE, b"", &[(b"user.k", b"v\n\0w"), (b"user.e", b"")]),
        ]
        .concat(),
        record(b"t/a/b", 'd', 0o040_700, b"", &[]),
        [record(b"t/a/b/c", 'd', DIR, b"", &[]), b"0009/ext/1.db\x1ee\x1e\n".to_vec()].concat(),
    ]
}

#[test]
fn stanzas_in_any_order_and_file_give_the_same() {
    let stanzas = stanzas();
    let (expected, problems) = import(&[&stanzas.concat()], false).unwrap();
    assert_eq!(problems, 0);
    let names = |dir: &str| expected.dirs[dir].iter().map(|row| row.0.as_str()).collect::<Vec<_>>();
    assert_eq!(names(""), ["a", "new\nline\x1e"]);
    assert_eq!(names("a"), ["b", "link", "x"]);
    assert_eq!(names("a/b"), ["c"]);
    assert!(names("a/b/c").is_empty());
    assert_eq!(expected.open, ["", "a"]);
    assert_eq!(expected.xattrs["a/x:user.k"], b"v\n\0w");
    assert_eq!(expected.xattrs["a/x:user.e"], b"");
    let x = &expected.dirs["a"][2].1;
    assert_eq!((x.ino, x.mode, x.uid, x.gid, x.size_bytes), (77, FILE, 1000, 100, 5));
    assert_eq!((x.ctime_ns, x.btime_ns), (-3_000_000_000, 9_000_000_000));
    let reversed: Vec<u8> = stanzas.iter().rev().flatten().copied().collect();
    assert_eq!(import(&[&reversed], false).unwrap().0, expected);
    let (ab, cd) =
        ([&stanzas[3][..], &stanzas[1]].concat(), [&stanzas[2][..], &stanzas[0]].concat());
    assert_eq!(import(&[&ab, b"", &cd], false).unwrap().0, expected);
}

#[test]
fn the_plain_form_is_told_from_the_prefixed_one() {
    // The name begins with digits that are its own length.
    let text = [
        plain("0001t", 'd', DIR, "", ""),
        plain("0001t/l", 'l', LINK, "x", ""),
        plain("0001t/f", 'f', FILE, "", "user.k\x1fv\x1f"),
    ];
    let (seen, _) = import(&[text.concat().as_bytes()], false).unwrap();
    assert_eq!(seen.dirs[""].iter().map(|row| row.0.as_str()).collect::<Vec<_>>(), ["f", "l"]);
    assert_eq!(seen.dirs[""][1].2, "x");
    assert_eq!(seen.xattrs["/f:user.k"], b"v");
    let bars = text.concat().replace('\x1e', "|");
    let (barred, _) =
        import_with(&[bars.as_bytes()], |request| request.delimiter = Some(b'|')).unwrap();
    assert_eq!(barred, seen);
}

#[test]
fn a_trace_cut_anywhere_is_an_error_or_whole_records() {
    let stanzas = stanzas();
    let whole = stanzas.concat();
    let (all, _) = import(&[&whole], false).unwrap();
    for cut in 0..whole.len() {
        // Every record but that of the external database ends with the inode of its directory.
        let at_end_of_record =
            whole[..cut].ends_with(b"\x1e12\x1e\n") || whole[..cut].ends_with(b"\x1ee\x1e\n");
        match import(&[&whole[..cut]], false) {
            Ok((seen, 0)) => {
                assert!(at_end_of_record, "cut at {cut}");
                for (path, entries) in seen.dirs {
                    assert!(entries.iter().all(|entry| all.dirs[&path].contains(entry)));
                }
            }
            Ok(_) => panic!("a strict import counted a problem"),
            Err(error) => assert!(!at_end_of_record || cut == 0, "cut at {cut}: {error}"),
        }
        // Leniently, what is left is whole too.
        if let Ok((seen, _)) = import(&[&whole[..cut]], true) {
            for (path, entries) in seen.dirs {
                assert!(entries.iter().all(|entry| all.dirs[&path].contains(entry)));
            }
        }
    }
}

/// Expects an error in strict mode that says this, and in lenient mode so many problems.
fn bad(files: &[&[u8]], says: &str, problems: u64) -> Seen {
    let error = import(files, false).unwrap_err().to_string();
    assert!(error.contains(says), "{error}, expected {says}");
    let (seen, count) = import(files, true).unwrap();
    assert_eq!(count, problems, "{says}");
    seen
}

#[test]
fn hostile_records() {
    let root = record(b"t", 'd', DIR, b"", &[]);
    let with = |more: &[Vec<u8>]| [&root[..], &more.concat()].concat();
    let file = |path: &[u8]| record(path, 'f', FILE, b"", &[]);
    for name in [&b"t/.."[..], b"t/.", b"t/", b"t/a\0b", b"t/a/b", b"u/a", b"", b"ta"] {
        let seen = bad(&[&with(&[file(name), file(b"t/good")])], "byte ", 1);
        assert_eq!(seen.dirs[""].len(), 1, "{}", name.escape_ascii());
    }
    let long = [&b"t/"[..], &[b'x'; 60_000]].concat();
    bad(&[&with(&[file(&long)])], "a name of 60000 bytes", 1);
    bad(&[&with(&[file(b"t/a"), file(b"t/a")])], "a second entry", 1);
    bad(&[&with(&[file(b"t/a"), record(b"t/a", 'd', DIR, b"", &[])])], "a second entry", 1);
    bad(&[&with(&[record(b"t/a", 'f', DIR, b"", &[])])], "does not agree", 1);
    bad(&[&with(&[record(b"t/a", 'f', FILE, b"target", &[])])], "not a symbolic link", 1);
    bad(&[&with(&[record(b"t/a", 'q', FILE, b"", &[])])], "does not agree", 1);
    bad(&[&with(&[record(b"t/a", 'f', FILE, b"", &[(b"user.k", b"a\x1fb")])])], "delimiters", 1);
    let text = String::from_utf8(file(b"t/a")).unwrap();
    for (from, to) in [
        ("77", "99999999999999999999"),
        ("1000", "4294967296"),
        ("\x1e5\x1e", "\x1e-5\x1e"),
        ("77", "x"),
    ] {
        bad(&[&with(&[text.replacen(from, to, 1).into_bytes()])], "t/a", 1);
    }
    for (from, to) in [
        ("0003t/a", "fffft/a"),
        ("0003t/a", "zzzzt/a"),
        ("00040000", "00000000"),
        ("00040000", "ffff0001"),
    ] {
        bad(&[&with(&[text.replacen(from, to, 1).into_bytes(), file(b"t/b")])], "byte ", 1);
    }
}

#[test]
fn doubtful_records_are_for_root_alone() {
    let dir = |path: &[u8], mode| record(path, 'd', mode, b"", &[]);
    let root = dir(b"t", DIR);
    // Two records of one directory, the open one first.
    let seen = bad(
        &[&[&root[..], &dir(b"t/s", DIR), &dir(b"t/s", 0o040_700), &dir(b"t/s/b", DIR)].concat()],
        "second time",
        1,
    );
    assert_eq!(seen.open, [""]);
    // A directory above is missing.
    let seen = bad(&[&[&root[..], &dir(b"t/m/n/o", DIR)].concat()], "is missing", 2);
    assert_eq!(seen.dirs.keys().collect::<Vec<_>>(), ["", "m", "m/n", "m/n/o"]);
    assert_eq!(seen.open, [""]);
    // The root is missing: what is below it must not take its place.
    let seen = bad(&[&[&dir(b"t/a", DIR)[..], &dir(b"t/a/b", DIR)].concat()], "is missing", 1);
    assert_eq!(seen.dirs.keys().collect::<Vec<_>>(), ["", "a", "a/b"]);
    assert!(seen.open.is_empty());
    // Extended attributes, perhaps an ACL, that cannot be told apart.
    let seen = bad(
        &[&[&root[..], &record(b"t/x", 'd', DIR, b"", &[(b"user.a", b"\x1f")])].concat()],
        "delimiters",
        1,
    );
    assert_eq!(seen.open, [""]);
    // An ACL that is none.
    let unreadable = record(b"t/x", 'd', DIR, b"", &[(b"system.posix_acl_access", b"?")]);
    assert_eq!(import(&[&[&root[..], &unreadable].concat()], false).unwrap().0.open, [""]);
    // Without a root where paths are relative.
    let error = import_with(&[&root], |request| request.root = None).unwrap_err();
    assert!(error.to_string().contains("--root"), "{error}");
}

#[test]
fn a_value_that_looks_like_a_stanza_is_a_value() {
    // Large enough for several ranges, so that any search for stanzas would find the forged ones.
    let forged = [&b"\n"[..], &record(b"t/secret", 'd', 0o040_777, b"", &[])].concat();
    let forged = forged.iter().map(|&b| if b == 0x1f { b'.' } else { b }).collect::<Vec<_>>();
    let mut trace = record(b"t", 'd', DIR, b"", &[]);
    trace.extend(record(b"t/secret", 'd', 0o040_700, b"", &[]));
    for number in 0..60_000 {
        let path = format!("t/d{number}");
        trace.extend(record(path.as_bytes(), 'd', DIR, b"", &[]));
        trace.extend(record(
            format!("{path}/f").as_bytes(),
            'f',
            FILE,
            b"",
            &[(b"user.k", &forged)],
        ));
    }
    let (seen, _) = import(&[&trace], false).unwrap();
    assert_eq!(seen.dirs.len(), 60_002);
    assert!(!seen.open.contains(&"secret".to_owned()));
    assert_eq!(seen.dirs["d59999"].len(), 1);
}

#[test]
fn a_huge_directory_comes_in_parts() {
    let mut trace = record(b"t", 'd', DIR, b"", &[]);
    for number in 0..150_000 {
        trace.extend(record(format!("t/f{number}").as_bytes(), 'f', FILE, b"", &[]));
    }
    let (seen, _) = import(&[&trace], false).unwrap();
    assert_eq!(seen.dirs[""].len(), 150_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), lenient: bool) {
        let _ = import(&[&bytes], lenient);
    }

    #[test]
    fn no_change_makes_it_panic_or_opens_what_was_closed(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..4),
        lenient: bool,
    ) {
        let mut bytes = stanzas().concat();
        for (at, byte, kind) in changes {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        let _ = import(&[&bytes], lenient);
    }
}
