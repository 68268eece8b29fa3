//! Patterns, regular expressions, numbers and dates against find(1): the ones that are likely to go
//! wrong, and random ones, where characters are UTF-8 and where they are bytes. Needs root.

use crate::common;

use common::{Fixture, assert_same, seeded, sorted};
use rand::RngExt;
use rand::rngs::StdRng;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Names with all that means something in patterns, letters with unusual cases, and bytes that are
/// not UTF-8.
const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"ab",
    b"aa",
    b"aab",
    b"aba",
    b"abab",
    b"abba",
    b"A",
    b"Ab",
    b"a*",
    b"*a",
    b"+a",
    b"a+",
    b"?a",
    b"a{1",
    b"{2}a",
    b"{a",
    b"a{,2}",
    b"a|b",
    b"(a)",
    b"a)",
    b"(",
    b"a^b",
    b"^a",
    b"a$",
    b"$",
    b"a\\",
    b"\\",
    b"a]",
    b"]",
    b"[a]",
    b"-",
    b"a-b",
    b":",
    b"[:alpha:]",
    b"a\nb",
    b"\n",
    b"a b",
    b" ",
    b"\t",
    b"_",
    b"a_1",
    b"1",
    b"12",
    b"=",
    b".a",
    b"a.b",
    b",",
    b"{",
    b"}",
    b"w",
    b"s",
    b"\xc3\xbc",
    b"\xc3\x9c",
    b"a\xc3\xbc",
    b"\xc3\xa9",
    b"\xff",
    b"a\xff",
    b"\xc3",
    b"\xc3\xbc\xff",
    b"\xc5\xbf",
    b"\xc4\xb1",
    b"\xe2\x84\xaa",
    b"\xc3\x9f",
    b"\xc2\xaa",
    b"\xc2\xa0",
    b"Z",
    b"k",
];

const TYPES: &[&str] = &[
    "findutils-default",
    "ed",
    "emacs",
    "gnu-awk",
    "grep",
    "posix-awk",
    "awk",
    "posix-basic",
    "posix-egrep",
    "egrep",
    "posix-extended",
    "posix-minimal-basic",
    "sed",
];

/// Parts of regular expressions. A range beyond ASCII is none of them: the C library refuses it in
/// its own locales.
const REGEX_PARTS: &[&str] = &[
    "a",
    "b",
    "a",
    ".",
    "*",
    "+",
    "?",
    "\\",
    "(",
    ")",
    "\\(",
    "\\)",
    "|",
    "\\|",
    "{",
    "}",
    "\\{",
    "\\}",
    "1",
    "2",
    ",",
    "[",
    "[^",
    "[a-b]",
    "[[:alpha:]]",
    "[[:upper:]]",
    "[[:foo:]]",
    "[[=a=]]",
    "[[.-.]]",
    "[[.a.]-c]",
    "[z-a]",
    "[_-b]",
    "[\\]]",
    "[\\n]",
    "[]a]",
    "[^]a]",
    "[a-]",
    "]",
    "^",
    "$",
    "\\w",
    "\\W",
    "\\s",
    "\\S",
    "\\`",
    "\\'",
    "\n",
    "-",
    ".*",
    "a*",
    "[^a]",
    "\\+",
    "\\?",
    "{1,2}",
    "\\{1,2\\}",
    "{,2}",
    "\\{,1\\}",
    "{2",
    "\u{fc}",
    ".*",
    "A",
    "k",
    "i",
];

/// Parts of regular expressions with back-references.
const REFERENCE_PARTS: &[&str] = &[
    "a",
    "b",
    ".",
    "(a)",
    "(b)",
    "(a|b)",
    "(.)",
    "(.*)",
    "(a*)",
    "\\1",
    "\\1",
    "\\2",
    "\\1*",
    "\\1?",
    "(\\1)",
    "(",
    "|",
    ")",
    "+",
    "*",
    "(\u{fc}|a)",
    "(a|ab)",
];

/// Parts of shell patterns.
const GLOB_PARTS: &[&[u8]] = &[
    b"a",
    b"b",
    b"?",
    b"*",
    b"?",
    b"*",
    b"[",
    b"[!",
    b"[^",
    b"a-",
    b"[a-b]",
    b"[z-a]",
    b"[[:alpha:]]",
    b"[[:upper:]]",
    b"[[:foo:]]",
    b"[[:punct:]]",
    b"[[:space:]]",
    b"[[=a=]]",
    b"[[.-.]]",
    b"[[.a.]-c]",
    b"[\\]]",
    b"[]a]",
    b"[!]a]",
    b"]",
    b"\\",
    b"\\a",
    b"-",
    b"\xc3\xbc",
    b"[\xc3\xbc]",
    b"[!\xc3\xbc]",
    b"\xff",
    b"\xc3",
    b"[\xc3\xa9-\xc3\xbc]",
    b"[\x80-\xff]",
    b"A",
    b"1",
    b"_",
    b"\n",
    b".",
    b"[[:",
    b"[[.",
    b"[[=",
    b"[a",
    b"-]",
    b"[\\a-\\b]",
    b"[--a]",
    b"k",
    b"i",
];

/// Tests and their arguments, apart by '|'.
const WORDS: &[&str] = &[
    "-name|?",
    "-name|??",
    "-name|[!a][!a]",
    "-name|[[:alpha:]]",
    "-iname|\u{dc}",
    "-iname|[[.A.]]",
    "-iname|[[=A=]]",
    "-name|[[=a=]-b]",
    "-name|[a[=]",
    "-name|[[.",
    "-iname|[--a]",
    "-iname|k",
    "-regex|./.",
    "-regex|./..",
    "-regex|./a.b",
    "-iregex|./i",
    "-iregex|./s",
    "-regextype|findutils-default|-regex|./a.b",
    "-regextype|grep|-regex|./a\n./b",
    "-regextype|posix-basic|-regex|./a**",
    "-regextype|awk|-regex|./[\\]]",
    "-regex|./[",
    "-regextype|posix-extended|-regex|./(.)(.)\\2\\1",
    "-regextype|posix-extended|-regex|./(a)|b\\1",
    "-uid|++0",
    "-uid|+ 0",
    "-uid| 0",
    "-uid|0 ",
    "-uid|0x0",
    "-gid|--0",
    "-gid|+-0",
    "-links|\n1",
    "-inum|18446744073709551615",
    "-inum|18446744073709551616",
    "-links|+",
    "-links|",
    "-mtime|++1",
    "-mtime| 1",
    "-mtime|1 ",
    "-mtime|0x1",
    "-mtime|-0x2",
    "-mtime|--1",
    "-mtime|-+2",
    "-mtime|.5",
    "-mtime|1.",
    "-mtime|1e0",
    "-mtime|-inf",
    "-mtime|+inf",
    "-mtime|0x",
    "-mtime|-1e30",
    "-mmin|-1e400",
    "-mmin|-0x10p2",
    "-mmin|1d",
    "-size| 1",
    "-size|++0c",
    "-size|1 k",
    "-size|+k",
    "-size|0x1",
    "-perm|=644",
    "-perm|-=644",
    "-perm|-+7",
    "-perm|u=7",
    "-perm|/-7",
    "-perm|/000",
    "-perm|a=rw,a+X",
    "-perm|u=r,",
    "-perm|000000644",
    "-perm|10000",
    "-user|",
    "-group|",
    "-user|+0",
    "-user|00",
    "-group|0 ",
    "-group|99999999999",
    "-maxdepth|+1",
    "-maxdepth|99999999999",
    "-mindepth| 1",
    "-path|a/",
    "-nowarn|-ipath|a/",
    "-warn|-name|a/b",
    "-warn|-iname|/",
    "-name|a/b",
];

/// Dates of -newermt that are far from now, so that the second does not matter.
const DATES: &[&str] = &[
    "19911213 20:31",
    "yesterday 12:00",
    "last monday",
    "last friday",
    "Dec 13 2020",
    "tomorrow",
    "next year",
    "2 weeks ago",
    "1 month ago",
    "3 days 2 hours ago",
    "yesterday 10pm",
    "1 fortnight ago",
    "@1000000000",
    "@-1",
    "@1.5",
    "2020-02-30",
    "12:00 yesterday",
    "monday",
    "2020-01-01T00:00:00Z",
    "2020-01-01 00:00:00.5",
    "2020-01-01 +3 days",
    "1 Jan 2020 3pm",
    "1991-12-13 20:31 EST",
    "1991/12/13",
    "12/13/1991",
    "13/12/1991",
    "last year",
    "third friday",
    "2020",
    "20200101",
    "20200101T1200",
    "Sat, 01 Jan 2000 00:00:00 GMT",
    "January 1, 2000",
    "1-jan-2000",
    "2000-01-01 00:00 +0200",
    "2000-01-01 12:34:56,789",
    "@1e3",
    "1 year 2 months ago",
    "ago",
    "next",
    "sunday 12:00",
    "2000-01-01 -1 month",
    "1901-12-13",
    "1700-01-01",
    "2200-01-01",
    "2300-01-01",
    "foo",
    "24:00 yesterday",
    "23:59:60 yesterday",
];

struct Trial {
    place: Fixture,
    tree: PathBuf,
    index: PathBuf,
}

impl Trial {
    fn new() -> Self {
        let place = Fixture::new();
        let (tree, index) = (place.path("tree"), place.path("index"));
        fs::create_dir_all(tree.join("d/a")).unwrap();
        for name in NAMES {
            fs::write(tree.join(OsStr::from_bytes(name)), "").unwrap();
        }
        for (name, days) in [("a", 1), ("b", 2), ("ab", 10), ("aa", 1000), ("d/a/b", 20_000)] {
            let ago = std::time::Duration::from_secs(86_400 * days + 3600);
            let file = fs::File::create(tree.join(name)).unwrap();
            file.set_modified(std::time::SystemTime::now() - ago).unwrap();
        }
        place.index(&index, &tree);
        Trial { place, tree, index }
    }

    fn run(&self, mut command: Command, words: &[&OsStr], locale: &str) -> Output {
        command.arg(".").args(words).arg("-print0").current_dir(&self.tree);
        command.env("LC_ALL", locale).env("TZ", "UTC").stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Compares what both find, how they end, and what they say first.
    fn compare(&self, words: &[&OsStr], locale: &str) {
        let said = |output: &Output| {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let line = text.lines().next().unwrap_or_default();
            let said = line.split_once(": ").map_or("", |(_, said)| said);
            // In the POSIX locale find(1) quotes with apostrophes.
            said.replace(['‘', '’'], "'")
        };
        let expected = self.run(Command::new("find"), words, locale);
        for live in [true, false] {
            let mut command = Command::new(&self.place.canopy);
            command.arg("--index").arg(&self.index).arg("find").args(live.then_some("--live"));
            let shown = self.run(command, words, locale);
            let what = format!("{locale} live: {live} {words:?}");
            assert_eq!(shown.status.code(), expected.status.code(), "{what}: {}", said(&shown));
            assert_same(&sorted(&shown.stdout, 0), &sorted(&expected.stdout, 0), &what);
            // Ends of lines in words are shown as `?`, so that none looks like another message.
            let is_shown = |word: &&OsStr| word.to_str().is_some_and(|word| !word.contains('\n'));
            if words.iter().all(is_shown) {
                assert_eq!(said(&shown), said(&expected), "{what}");
            }
        }
    }

    fn compare_pattern(&self, random: &mut StdRng, words: &[&str], pattern: &[u8]) {
        let locale = if random.random_bool(0.5) { "C.UTF-8" } else { "C" };
        let words: Vec<&OsStr> =
            words.iter().map(OsStr::new).chain([OsStr::from_bytes(pattern)]).collect();
        self.compare(&words, locale);
    }
}

fn one<'a, T>(random: &mut StdRng, of: &'a [T]) -> &'a T {
    &of[random.random_range(0..of.len())]
}

#[test]
fn words_that_are_likely_to_go_wrong_mean_what_they_mean_to_find() {
    let trial = Trial::new();
    for line in WORDS {
        let words: Vec<&OsStr> = line.split('|').map(OsStr::new).collect();
        for locale in ["C", "C.UTF-8"] {
            trial.compare(&words, locale);
        }
    }
}

#[test]
fn dates_are_those_of_date() {
    let trial = Trial::new();
    for date in DATES {
        trial.compare(&["-newermt".as_ref(), date.as_ref()], "C.UTF-8");
    }
}

#[test]
fn random_patterns_match_what_they_match_in_find() {
    const TESTS: [&str; 4] = ["-name", "-iname", "-path", "-ipath"];
    let (trial, mut random) = (Trial::new(), seeded(5000));
    for _ in 0..300 {
        let parts = random.random_range(1..6);
        let pattern: Vec<u8> =
            (0..parts).flat_map(|_| one(&mut random, GLOB_PARTS).iter().copied()).collect();
        let test = *one(&mut random, &TESTS);
        trial.compare_pattern(&mut random, &[test], &pattern);
    }
}

#[test]
fn random_regular_expressions_match_what_they_match_in_find() {
    const TESTS: [&str; 3] = ["-regex", "-regex", "-iregex"];
    let (trial, mut random) = (Trial::new(), seeded(5100));
    for number in 0..600 {
        let with_references = number % 4 == 0;
        let (parts, syntax) = match with_references {
            true => (REFERENCE_PARTS, "posix-extended"),
            false => (REGEX_PARTS, *one(&mut random, TYPES)),
        };
        let length = random.random_range(1..7);
        let mut pattern: String = (0..length).map(|_| *one(&mut random, parts)).collect();
        match random.random_range(0..10) {
            0 => {}
            1 | 2 => pattern.insert_str(0, ".*"),
            _ => pattern.insert_str(0, "./"),
        }
        // To the C library a quoted letter is not another case of itself, nor its own.
        let quotes =
            pattern.as_bytes().windows(2).any(|two| two[0] == b'\\' && two[1].is_ascii_lowercase());
        let test = if quotes { "-regex" } else { *one(&mut random, &TESTS) };
        trial.compare_pattern(&mut random, &["-regextype", syntax, test], pattern.as_bytes());
    }
}

/// A pattern that takes too long ends the search, in words.
#[test]
fn a_regular_expression_that_takes_too_long_is_an_error() {
    let trial = Trial::new();
    fs::write(trial.tree.join("a".repeat(200)), "").unwrap();
    trial.place.index(&trial.index, &trial.tree);
    for live in [None, Some("--live")] {
        let mut command = Command::new(&trial.place.canopy);
        command.arg("--index").arg(&trial.index).arg("find").args(live).arg(&trial.tree);
        command.args(["-regextype", "egrep", "-regex", "(.*)*(.*)*(.*)*b\\1"]);
        let output = command.output().unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("takes too many steps"), "{said}");
    }
}

/// If clocks showed an hour twice, find(1) takes the second; one that they skipped is not a date.
#[test]
fn dates_where_clocks_were_set_are_those_of_find() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    fs::create_dir(&tree).unwrap();
    let dates = [
        ("Europe/Berlin", "2026-10-25 02:30", 1_792_888_200),
        ("Europe/Berlin", "2026-10-25 02:00:00.5", 1_792_886_400),
        ("Europe/Berlin", "2026-10-25 03:00", 1_792_893_600),
        ("Europe/Berlin", "TZ=\"America/New_York\" 2026-11-01 01:30", 1_793_507_400),
        ("Europe/Berlin", "2026-03-29 02:30", 1_774_744_200),
        ("Europe/Berlin", "2026-03-29 01:59:59", 1_774_745_999),
        ("Europe/Berlin", "2026-03-29 03:00", 1_774_746_000),
        ("Europe/Berlin", "2026-03-29 02:30 +0100", 1_774_747_800),
        ("Australia/Lord_Howe", "2026-04-05 01:45", 1_775_313_900),
        ("Australia/Lord_Howe", "2026-10-04 02:15", 1_791_040_500),
        ("America/Sao_Paulo", "2018-11-04", 1_541_296_800),
    ];
    for (_, _, seconds) in dates {
        for (hour, after) in [(0, 0), (0, 1), (1800, 0), (1800, 1), (3600, 0), (3600, 1)] {
            let time = std::time::Duration::from_secs(seconds + hour + after);
            let file = fs::File::create(tree.join((seconds + hour + after).to_string())).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + time).unwrap();
        }
    }
    place.index(&index, &tree);
    for (zone, date, _) in dates {
        let run = |mut command: Command| {
            command.arg(&tree).args(["-newermt", date, "-print0"]).env("TZ", zone);
            let output = command.env("LC_ALL", "C.UTF-8").output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            let said = said.split_once(": ").map_or("", |(_, said)| said).replace(['‘', '’'], "'");
            (output.status.code(), sorted(&output.stdout, 0), said)
        };
        let mut command = Command::new(&place.canopy);
        command.arg("--index").arg(&index).arg("find");
        assert_eq!(run(command), run(Command::new("find")), "{zone} {date}");
    }
}
