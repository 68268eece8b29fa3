//! Directories that one may enter but not list: whatever the form in which a statement names what
//! is behind one, its user gets what find(1) finds that is told the same names. Needs root.

use crate::common;

use canopy_model::escape;
use common::length::rounds;
use common::{Fixture, User, all_paths, assert_same, random_tree, seeded};
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

const ALICE: u32 = 2001;

fn bob() -> User {
    User { uid: 2002, gid: 3002, groups: vec![] }
}

/// The rows that a user gets, sorted, and the notes beside them.
fn ask(place: &Fixture, index: &Path, user: &User, query: &str) -> (Vec<String>, String) {
    let arguments = ["--index".as_ref(), index.as_os_str(), "sql".as_ref(), "--format".as_ref()];
    let arguments = [&arguments[..], &["ndjson", query].map(OsStr::new)].concat();
    let output = user.run(place.canopy.as_os_str(), &arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{user:?} {query}: {said}");
    let shown = String::from_utf8(output.stdout).unwrap();
    let value = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    let row = |line: &str| {
        let row: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
        row.into_iter().map(|(_, of)| value(of)).collect::<Vec<_>>().join(" ")
    };
    let mut rows: Vec<String> = shown.lines().map(row).collect();
    rows.sort();
    (rows, said)
}

/// Makes a directory, or a file if there is no mode.
fn make(path: PathBuf, mode: Option<u32>, owner: u32) {
    match mode {
        Some(mode) => {
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        None => fs::write(&path, "12345").unwrap(),
    }
    chown(&path, Some(owner), Some(owner)).unwrap();
}

/// Homes that cannot be listed, with one that has such a directory again, and one that is closed.
fn homes(place: &Fixture) -> (String, PathBuf) {
    let (tree, index) = (place.path("tree"), place.path("index"));
    make(tree.clone(), Some(0o755), 0);
    make(tree.join("open"), Some(0o755), 0);
    make(tree.join("open/file"), None, 0);
    make(tree.join("home"), Some(0o711), 0);
    make(tree.join("home/loose"), None, 0);
    for name in ["alice", "ann_b", "anna", "closed"] {
        let mode = if name == "closed" { 0o700 } else { 0o755 };
        make(tree.join("home").join(name), Some(mode), ALICE);
        make(tree.join("home").join(name).join("file"), None, ALICE);
    }
    make(tree.join("home/alice/gate"), Some(0o711), ALICE);
    make(tree.join("home/alice/gate/inner"), Some(0o755), ALICE);
    make(tree.join("home/alice/gate/inner/file"), None, ALICE);
    for path in ["home/loose", "home/alice", "home/alice/file"] {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(tree.join(path), "user.tag", path.as_bytes(), flags).unwrap();
    }
    let mut set = std::process::Command::new("setfacl");
    set.args(["-m", "u:2003:r"]).arg(tree.join("home/loose"));
    assert!(set.status().unwrap().success());
    place.index(&index, &tree);
    (tree.to_str().unwrap().to_owned(), index)
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of forms")]
fn every_form_of_naming_shows_what_is_behind_a_gate() {
    let place = Fixture::new();
    let (tree, index) = homes(&place);
    for (table, condition, expected) in [
        ("entries", "path = 'T/home/alice/file'", "home/alice/file"),
        ("entries", "path = 'T/home/loose'", "home/loose"),
        (
            "entries",
            "path = 'T/home/alice/file' OR path = 'T/open/file'",
            "home/alice/file open/file",
        ),
        (
            "entries",
            "path IN ('T/home/alice/file', 'T/home/anna/file', 'T/home/closed/file')",
            "home/alice/file home/anna/file",
        ),
        (
            "entries",
            "path LIKE 'T/home/alice/%' OR path LIKE 'T/home/anna/%'",
            "home/alice/file home/anna/file",
        ),
        ("entries", "path LIKE 'T/home/ann_b/%'", "home/ann_b/file"),
        ("entries", "path LIKE 'T/home/ann\\_b/%'", "home/ann_b/file"),
        ("entries", "path LIKE 'T/home/alice%'", "home/alice/file"),
        ("entries", "path ILIKE 'T/home/alice/%'", "home/alice/file"),
        ("entries", "starts_with(path, 'T/home/alice/') AND size > 1", "home/alice/file"),
        ("entries", "starts_with(path, 'T/home/alice/') OR size > 1", "home/alice/file open/file"),
        ("entries", "path >= 'T/home/alice/' AND path < 'T/home/alice0'", "home/alice/file"),
        ("entries", "path BETWEEN 'T/home/alice/' AND 'T/home/alice/~'", "home/alice/file"),
        ("entries", "path >= 'T/home/anna' AND name = 'file'", "home/anna/file open/file"),
        (
            "entries",
            "regexp_like(path, '^T/home/(x|alice)/') AND path > 'T/home/alice'",
            "home/alice/file",
        ),
        (
            "entries",
            "regexp_like(path, '^(T/home/alice|T/home/anna)(/|$)')",
            "home/alice/file home/anna/file",
        ),
        (
            "entries",
            "substr(path, 1, length('T/home/anna/')) = concat('T/home/an', 'na', '/')",
            "home/anna/file",
        ),
        (
            "entries",
            "path IN (SELECT column1 FROM (VALUES ('T/home/anna/file'), ('T/open/file')))",
            "home/anna/file open/file",
        ),
        ("entries", "array_has(['T/home/anna/file'], path)", "home/anna/file"),
        ("entries", "path = 'T/home/alice/gate/inner/file'", "home/alice/gate/inner/file"),
        // The inner gate tells no name, and nothing is behind a closed one.
        ("entries", "path LIKE 'T/home/alice/%' OR path = 'T/home/closed/file'", "home/alice/file"),
        ("entries", "path LIKE 'T/%'", "open/file"),
        ("directories", "path IN ('T/home', 'T/home/alice', 'T/home/nobody')", "home home/alice"),
        ("directories", "path = 'T/home/closed' OR path = 'T/home/loose'", "home/closed"),
        ("directories", "path LIKE 'T/home/alice/%'", "home/alice/gate"),
        ("directories", "path LIKE 'T/home/alice/gate/inner%'", "home/alice/gate/inner"),
        ("summaries", "path IN ('T/home', 'T/home/alice', 'T/open')", "home/alice open"),
        (
            "summaries",
            "path = 'T/home/anna' OR starts_with(path, 'T/home/alice')",
            "home/alice home/anna",
        ),
        (
            "trees",
            "path IN ('T/home/anna', 'T/home/alice/gate', 'T/home/loose')",
            "home/alice/gate home/anna",
        ),
        (
            "trees",
            "path LIKE 'T/home/alice/gate/inner%' OR path = 'T/open'",
            "home/alice/gate/inner open",
        ),
        ("trees_by_user", "path IN ('T/home/anna', 'T/open')", "home/anna open"),
        ("usage", "path IN ('T/home/anna', 'T/open')", "home/anna open"),
        (
            "xattrs",
            "path IN ('T/home/loose', 'T/home/alice/file') AND key = 'user.tag'",
            "home/alice/file home/loose",
        ),
        ("xattrs", "path = 'T/home/alice' AND value = 'home/alice'", "home/alice"),
        ("acls", "path = 'T/home/loose' AND tag = 'user' AND id = 2003", "home/loose"),
        (
            "(SELECT path, row_number() OVER (ORDER BY path) AS n FROM entries)",
            "path LIKE 'T/home/alice/%'",
            "home/alice/file",
        ),
    ] {
        let query = format!("SELECT path FROM {table} WHERE {condition}")
            .replace("T/", &format!("{tree}/"));
        let (shown, _) = ask(&place, &index, &bob(), &query);
        let expected: Vec<String> =
            expected.split(' ').map(|path| format!("{tree}/{path}")).collect();
        assert_eq!(shown, expected, "{query}");
    }
}

#[test]
fn views_of_gufi_show_what_is_behind_a_gate() {
    let place = Fixture::new();
    let (tree, index) = homes(&place);
    for (query, expected) in [
        (
            "SELECT rpath(sname, sroll, name) AS p FROM vrpentries WHERE path() = \
             'T/home/alice' OR path() = 'T/home/anna'",
            "home/alice/file home/anna/file",
        ),
        (
            "SELECT rpath(sname, sroll, name) AS p FROM vrpentries WHERE path() IN \
             ('T/home/alice', 'T/open')",
            "home/alice/file open/file",
        ),
        (
            "SELECT rpath(sname, sroll, name) AS p FROM vrpentries WHERE rpath(sname, sroll, \
             name) IN ('T/home/alice/file', 'T/open/file') AND path() <> 'T/open'",
            "home/alice/file",
        ),
        (
            "SELECT path() AS p FROM vrsummary WHERE path() IN ('T/home/alice', 'T/open')",
            "home/alice open",
        ),
        (
            "SELECT path() AS p FROM vrsummary WHERE below(path(), 'T/home/alice') OR path() LIKE \
          'T/open%'",
            "home/alice open",
        ),
        (
            "SELECT path() AS p FROM treesummary WHERE path() = 'T/home/anna' OR path() = 'T/open'",
            "home/anna open",
        ),
    ] {
        let query = query.replace("T/", &format!("{tree}/"));
        let (shown, said) = ask(&place, &index, &bob(), &query);
        let expected: Vec<String> =
            expected.split(' ').map(|path| format!("{tree}/{path}")).collect();
        assert_eq!((shown, said), (expected, String::new()), "{query}");
    }
}

/// The figures of a row of `trees` do not depend on the other named paths.
#[test]
fn trees_are_those_that_du_would_see() {
    let place = Fixture::new();
    let (tree, index) = homes(&place);
    let files = |condition: &str| {
        let query = format!("SELECT path, files FROM trees WHERE {condition}");
        ask(&place, &index, &bob(), &query.replace("T/", &format!("{tree}/"))).0
    };
    let row = |path: &str, files: u32| format!("{files} {tree}/{path}");
    assert_eq!(files("path = 'T/home'"), [row("home", 0)]);
    let both = "path IN ('T/home', 'T/home/alice', 'T/home/alice/gate/inner')";
    let expected = [row("home", 0), row("home/alice", 1), row("home/alice/gate/inner", 1)];
    assert_eq!(files(both), expected);
    let all = "regexp_like(path, 'T/home/alice/gate/inner') OR path LIKE 'T/home%'";
    let gate = row("home/alice/gate", 0);
    let expected = [&[gate], &expected[..]].concat();
    assert_eq!(files(all).into_iter().collect::<BTreeSet<_>>(), expected.into_iter().collect());
}

/// A query for everything in a gate gets a note that there may be more.
#[test]
fn conditions_that_hide_names_get_a_note() {
    let place = Fixture::new();
    let (tree, index) = homes(&place);
    for (condition, noted) in [
        ("path LIKE 'T/home/%'", true),
        ("path LIKE 'T/home/a%'", true),
        ("starts_with(path, 'T/home/ali')", true),
        ("path BETWEEN 'T/home/a' AND 'T/home/b'", true),
        ("path LIKE 'T/open/%' OR path LIKE 'T/home/a%'", true),
        ("regexp_like(path, '^T/home/(alice|anna)/')", true),
        ("path = 'T/home/alice/file'", false),
        ("path IN ('T/home', 'T/home/nobody')", false),
        ("path LIKE 'T/home/alice/%'", false),
        ("path LIKE 'T/home/ann_b/%'", false),
        ("path LIKE 'T/home/ann\\_b/%'", false),
        ("path LIKE 'T/open/%' AND path NOT LIKE 'T/open/x'", false),
        ("path LIKE 'T/home/closed/%'", false),
        ("path >= 'T/home/alice/' AND path < 'T/home/alice0'", false),
        ("size > 1", false),
    ] {
        let query = format!("SELECT path FROM entries WHERE {condition}");
        let query = query.replace("T/", &format!("{tree}/"));
        let note = format!(
            "canopy: note: you may enter {tree}/home but not list it: it shows what is named in \
             full, as by path LIKE '{tree}/home/NAME/%'\n"
        );
        let said = ask(&place, &index, &bob(), &query).1;
        assert_eq!(said, if noted { &*note } else { "" }, "{query}");
        let root = User { uid: 0, gid: 0, groups: vec![] };
        assert_eq!(ask(&place, &index, &root, &query).1, "", "{query}");
    }
}

#[test]
fn conditions_that_match_no_path_get_a_note() {
    let place = Fixture::new();
    let (tree, index) = homes(&place);
    for (condition, text) in [
        (format!("path = '{tree}/open/'"), Some(format!("{tree}/open/"))),
        ("path LIKE 'open/%'".to_owned(), Some("open/%".to_owned())),
        ("path = '/' OR path LIKE '%/open' OR path NOT LIKE 'x'".to_owned(), None),
    ] {
        let query = format!("SELECT path FROM directories WHERE {condition}");
        let said = ask(&place, &index, &bob(), &query).1;
        let note = text.map(|text| {
            format!(
                "canopy: note: no path is like '{text}': all are absolute, without a slash at \
                 their end\n"
            )
        });
        assert_eq!(said, note.unwrap_or_default(), "{query}");
    }
}

#[test]
fn random_names_show_what_find_and_du_show_1() {
    cases(0..6);
}

#[test]
fn random_names_show_what_find_and_du_show_2() {
    cases(6..12);
}

fn cases(seeds: std::ops::Range<u64>) {
    let seeds = match std::env::var("CANOPY_SEED") {
        Ok(seed) => seed.parse().map(|seed: u64| seed..seed + 1).unwrap(),
        Err(_) => seeds,
    };
    for seed in seeds.take(rounds(3, 6)) {
        let mut random = seeded(seed);
        let place = Fixture::new();
        let (tree, index) = (place.path("tree"), place.path("index"));
        random_tree(&tree, &mut random, true);
        fs::set_permissions(&tree, fs::Permissions::from_mode(0o755)).unwrap();
        // Names that stand for themselves in every form.
        let plain = |path: &PathBuf| {
            let path = path.to_str()?;
            let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/.-".contains(letter);
            path.chars().all(is_plain).then(|| path.to_owned())
        };
        let mut paths: Vec<String> = all_paths(&tree).iter().filter_map(plain).collect();
        paths.sort();
        place.index(&index, &tree);
        for _ in 0..3 {
            let user = User::random(&mut random);
            let mut name = || paths[random.random_range(0..paths.len())].clone();
            let names = [name(), name(), name()];
            Case { seed, place: &place, index: &index, tree: &tree, user, names }.compare();
        }
    }
}

struct Case<'a> {
    seed: u64,
    place: &'a Fixture,
    index: &'a Path,
    tree: &'a Path,
    user: User,
    names: [String; 3],
}

impl Case<'_> {
    #[expect(clippy::too_many_lines, reason = "one course of steps")]
    fn compare(&self) {
        let seen = self.seen();
        // The sum that du prints for a path is that of all queries.
        let mut sums = BTreeMap::new();
        let [a, b, c] = &self.names;
        let below = |path: &str, directory: &str| path.starts_with(&format!("{directory}/"));
        let at_or_below = |path: &str, name: &str| path == name || below(path, name);
        type Holds<'a> = Box<dyn Fn(&str) -> bool + 'a>;
        // What each names, which is all that it is to see besides what is listed.
        let forms: [(String, Vec<&String>, Holds<'_>); 8] = [
            (
                format!("path IN ('{a}', '{b}', '{c}')"),
                vec![a, b, c],
                Box::new(|path| [a, b, c].iter().any(|name| *name == path)),
            ),
            (
                format!("path = '{a}' OR path LIKE '{b}/%' OR starts_with(path, '{c}/')"),
                vec![a, b, c],
                Box::new(|path| path == a || below(path, b) || below(path, c)),
            ),
            (
                format!("path >= '{a}/' AND path < '{a}0' AND path <> '{b}/{c}'"),
                vec![a, b],
                Box::new(|path| below(path, a)),
            ),
            (
                format!("path BETWEEN '{a}' AND '{a}~' OR path = '{b}'"),
                vec![a, b],
                Box::new(|path| (a.as_str()..=&*format!("{a}~")).contains(&path) || path == b),
            ),
            (
                format!("regexp_like(path, '^({a}|{b})(/|$)')"),
                vec![a, b],
                Box::new(|path| at_or_below(path, a) || at_or_below(path, b)),
            ),
            (
                format!("path NOT IN ('{a}', '{b}')"),
                vec![a, b],
                Box::new(|path| path != a && path != b),
            ),
            (
                format!("path IN (SELECT column1 FROM (VALUES ('{a}'), ('{c}')))"),
                vec![a, c],
                Box::new(|path| path == a || path == c),
            ),
            (
                format!("(path LIKE '{a}/%' OR path = '{b}') AND path LIKE '{b}%'"),
                vec![a, b],
                Box::new(|path| path.starts_with(b.as_str()) && (below(path, a) || path == b)),
            ),
        ];
        for (condition, names, holds) in &forms {
            let chosen: BTreeMap<&String, &Found> = seen
                .iter()
                .filter(|(path, found)| {
                    let known = found.from.iter().any(|start| {
                        *start == self.tree.to_str().unwrap()
                            || names.iter().any(|name| at_or_below(name, start))
                    });
                    known && holds(path)
                })
                .collect();
            let select = |is_wanted: &dyn Fn(&Found) -> bool| -> Vec<String> {
                let wanted = chosen.iter().filter(|(_, found)| is_wanted(found));
                wanted.map(|(path, _)| (*path).clone()).collect()
            };
            for (table, expected) in [
                ("entries", select(&|found| !found.is_directory)),
                ("directories", select(&|found| found.is_directory)),
                ("summaries", select(&|found| found.is_listed)),
                ("trees", select(&|found| found.is_directory)),
            ] {
                let query = format!("SELECT path FROM {table} WHERE {condition}");
                let (shown, _) = ask(self.place, self.index, &self.user, &query);
                let what = format!("seed {} {:?} {query}", self.seed, self.user);
                assert_same(&shown, &expected, &what);
            }
            let query = format!("SELECT blocks, path FROM trees WHERE {condition}");
            let (shown, _) = ask(self.place, self.index, &self.user, &query);
            for row in &shown {
                let (blocks, path) = row.split_once(' ').unwrap();
                if !path.is_ascii() {
                    continue;
                }
                let du = || {
                    let du = ["-s", "-B512", path].map(OsStr::new);
                    let du = self.user.run("du".as_ref(), &du).stdout;
                    let du = String::from_utf8_lossy(&du).into_owned();
                    du.split('\t').next().unwrap().to_owned()
                };
                let expected = sums.entry(path.to_owned()).or_insert_with(du);
                assert_eq!(blocks, *expected, "seed {} {:?} {query} {path}", self.seed, self.user);
            }
        }
    }

    /// The results of find(1) from the tree's root, each name, and each directory above.
    fn seen(&self) -> BTreeMap<String, Found> {
        let root = self.tree.to_str().unwrap();
        let mut starts: BTreeSet<&str> = BTreeSet::from([root]);
        for name in &self.names {
            let above = std::iter::successors(Some(&**name), |path| {
                path.rsplit_once('/')
                    .map(|(above, _)| above)
                    .filter(|above| above.len() >= root.len())
            });
            starts.extend(above);
        }
        let mut seen: BTreeMap<String, Found> = BTreeMap::new();
        for start in starts {
            let find = |tests: &[&str]| {
                let arguments = [&[start], tests, &["-printf", "%s %y %p\\0"]].concat();
                let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
                self.user.run("find".as_ref(), &arguments).stdout
            };
            let listed = find(&["-type", "d", "-readable", "-executable"]);
            let listed: BTreeSet<&[u8]> = listed.split(|&byte| byte == 0).collect();
            for line in find(&[]).split(|&byte| byte == 0).filter(|line| !line.is_empty()) {
                let words: Vec<&[u8]> = line.splitn(3, |&byte| byte == b' ').collect();
                let found = seen.entry(escape(words[2]).into_owned()).or_default();
                found.is_directory = words[1] == b"d";
                found.is_listed = listed.contains(line);
                found.from.insert(start.to_owned());
            }
        }
        seen
    }
}

#[derive(Default)]
struct Found {
    is_directory: bool,
    /// Whether the user may list it.
    is_listed: bool,
    /// Starts from which it is found.
    from: BTreeSet<String>,
}

/// Statements by programs: thousands of conditions, and texts that are longer than any path.
#[test]
fn statements_of_any_length_are_answered() {
    let place = Fixture::new();
    let (_, index) = homes(&place);
    let many = |each: fn(usize) -> String| (0..3000).map(each).collect::<Vec<_>>().join(" OR ");
    for condition in [
        many(|number| format!("path LIKE '/nowhere/{number}/%'")),
        many(|number| format!("size = -{}", number + 1)),
        "path = repeat('/a', 300000)".to_owned(),
    ] {
        let query = format!("SELECT count(*) FROM entries WHERE {condition}");
        let (rows, said) = ask(&place, &index, &bob(), &query);
        assert_eq!((rows, said.as_str()), (vec!["0".to_owned()], ""));
    }
}

/// The columns of a query do not change which rows GUFI's views by user and group have.
#[test]
fn rows_of_gufis_views_by_owner_are_as_many_whatever_is_asked_of_them() {
    let place = Fixture::new();
    let (_, index) = homes(&place);
    for view in ["vsummaryuser", "vsummarygroup", "vtsummaryuser", "vtsummarygroup"] {
        let (rows, _) = ask(&place, &index, &bob(), &format!("SELECT uid, gid FROM {view}"));
        assert!(!rows.is_empty());
        for columns in ["path()", "level()", "inode"] {
            let (found, _) = ask(&place, &index, &bob(), &format!("SELECT {columns} FROM {view}"));
            assert_eq!(found.len(), rows.len(), "{columns} of {view}");
        }
        let (count, _) = ask(&place, &index, &bob(), &format!("SELECT count(*) FROM {view}"));
        assert_eq!(count, [rows.len().to_string()], "{view}");
    }
}
