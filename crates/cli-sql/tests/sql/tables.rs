//! Tables that the administrator adds: attached files are read with the rights of the asking user,
//! and derived tables show each user what that user's own query would. Needs root.

mod attached;

use crate::common;

use canopy_index::{Disk, Faults, Index, NewSource, Writer, WriterOptions};
use canopy_model::{Approach, Attributes, Device, escape};
use canopy_sql::refresh;
use common::length::rounds;
use common::{Fixture, User, all_paths, assert_same, random_tree, random_xattrs, seeded, sorted};
use rand::RngExt;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn alice() -> User {
    User { uid: 2001, gid: 3001, groups: vec![] }
}

fn bob() -> User {
    User { uid: 2002, gid: 3002, groups: vec![] }
}

/// Runs the command as a user.
fn run(place: &Fixture, index: &Path, user: &User, arguments: &[&str]) -> Output {
    let mut all = vec![OsStr::new("--index"), index.as_os_str()];
    all.extend(arguments.iter().map(OsStr::new));
    user.run(place.canopy.as_os_str(), &all)
}

/// The rows of a query as a user gets them, sorted.
fn rows(place: &Fixture, index: &Path, user: &User, query: &str) -> Vec<String> {
    let output = run(place, index, user, &["sql", "--format", "ndjson", query]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{user:?} {query}: {errors}");
    sorted(&output.stdout, b'\n')
}

/// The answers of several queries, as NDJSON, which one process gives.
pub fn answers(place: &Fixture, index: &Path, user: &User, queries: &[String]) -> Vec<Vec<u8>> {
    const NEXT: &[u8] = b"{\"next\":\"query\"}\n";
    let all = queries.join("; SELECT 'query' AS next; ");
    let output = run(place, index, user, &["sql", "--format", "ndjson", &all]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{user:?} {queries:?}: {errors}");
    let lines: Vec<&[u8]> = output.stdout.split_inclusive(|&byte| byte == b'\n').collect();
    let answers: Vec<_> = lines.split(|line| *line == NEXT).map(<[_]>::concat).collect();
    assert_eq!(answers.len(), queries.len(), "{user:?}");
    answers
}

/// Runs the command as root and expects success.
fn done(place: &Fixture, index: &Path, arguments: &[&str]) -> String {
    let output = run(place, index, &root(), arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    assert_eq!(errors, "", "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn root() -> User {
    User { uid: 0, gid: 0, groups: vec![] }
}

/// Expects one line of error with these words; of a statement, also its line and a mark.
fn refused(place: &Fixture, index: &Path, user: &User, arguments: &[&str], words: &str) {
    let output = run(place, index, user, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
    assert!(errors.contains(words), "{arguments:?}: {errors}");
    let has_mark = errors.lines().count() == 3 && errors.trim_end().ends_with('^');
    assert!(has_mark || errors.lines().count() == 1, "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

/// A tree with a public and a private file of alice's, and its index.
fn small(place: &Fixture) -> (PathBuf, PathBuf) {
    let (tree, index) = (place.path("tree"), place.path("index"));
    fs::create_dir_all(tree.join("open")).unwrap();
    fs::create_dir_all(tree.join("secret")).unwrap();
    fs::write(tree.join("open/seen"), "12345").unwrap();
    fs::write(tree.join("secret/hidden-name"), "1234567").unwrap();
    chown(tree.join("secret"), Some(2001), Some(3001)).unwrap();
    fs::set_permissions(tree.join("secret"), fs::Permissions::from_mode(0o700)).unwrap();
    place.index(&index, &tree);
    (tree, index)
}

#[test]
fn derived_tables_show_what_the_users_own_query_shows_1() {
    cases(0..10);
}

#[test]
fn derived_tables_show_what_the_users_own_query_shows_2() {
    cases(10..20);
}

/// Derived tables, and the query that gives the same of what a user sees.
const DERIVED: [(&str, &str); 7] = [
    (
        "rows",
        "SELECT path, size, user_name(uid) AS owner, mtime, type, dev, ino FROM entries WHERE \
         size > 100",
    ),
    ("dirs", "SELECT * FROM directories"),
    ("vals", "SELECT path, key, value FROM xattrs"),
    ("sums", "SELECT path, files, size FROM summaries"),
    ("used", "SELECT * FROM usage"),
    ("perm", "SELECT path, kind, tag, id, permissions FROM acls"),
    ("owns", "SELECT uid, sum(size) AS size, count(*) AS n FROM entries GROUP BY uid"),
];

/// Eight users on each tree.
fn cases(seeds: std::ops::Range<u64>) {
    let place = Fixture::new();
    for seed in seeds.take(rounds(4, 10)) {
        let mut random = seeded(seed);
        let (tree, index) =
            (place.path(&format!("tree{seed}")), place.path(&format!("index{seed}")));
        random_tree(&tree, &mut random, true);
        let paths = all_paths(&tree);
        random_xattrs(&paths, &mut random);
        place.index(&index, &tree);
        for (name, query) in DERIVED {
            done(&place, &index, &["table", "derive", name, query]);
        }
        // They are made anew with the source.
        if seed % 3 == 0 {
            place.index(&index, &tree);
        }
        let users: Vec<User> = (0..8).map(|_| User::random(&mut random)).collect();
        for user in users.into_iter().chain([root()]) {
            let start = &paths[random.random_range(0..paths.len())];
            let start = escape(start.as_os_str().as_bytes()) + "/";
            let length = start.chars().count();
            let start = start.replace('\'', "''");
            // Which names no path, without a slash in front: a derived table has no rows of what is
            // found by name alone.
            let unnamed = format!("substr(path, 2, {}) = '{}'", length - 1, &start[1..]);
            let start = format!("starts_with(path, '{start}')");
            let what = format!("seed {seed} {user:?}");
            let mut pairs = Vec::new();
            for (name, query) in &DERIVED[..6] {
                for (limit, own_limit) in [("true", "true"), (&start, &unnamed)] {
                    pairs.push([
                        format!("SELECT * FROM {name} WHERE {limit}"),
                        format!("SELECT * FROM ({query}) WHERE {own_limit}"),
                    ]);
                }
            }
            let shown = "SELECT uid, sum(size) AS size, sum(n) AS n FROM owns GROUP BY uid";
            pairs.push([shown, DERIVED[6].1].map(str::to_owned));
            // One process for all queries, but for root.
            let queries = pairs.concat();
            let answers: Vec<_> = match user.uid {
                0 => queries.iter().map(|query| rows(&place, &index, &user, query)).collect(),
                _ => {
                    let answers = answers(&place, &index, &user, &queries);
                    answers.iter().map(|answer| sorted(answer, b'\n')).collect()
                }
            };
            for ([query, _], answers) in pairs.iter().zip(answers.chunks(2)) {
                assert_same(&answers[0], &answers[1], &format!("{what} {query}"));
            }
        }
        fs::remove_dir_all(&tree).unwrap();
        fs::remove_dir_all(&index).unwrap();
    }
}

#[test]
fn nothing_of_a_derived_table_reaches_those_who_may_not_see_it() {
    let place = Fixture::new();
    let (tree, index) = small(&place);
    let query = "SELECT path, 'word-of-the-query' AS word FROM entries";
    done(&place, &index, &["table", "derive", "all_entries", query]);
    done(
        &place,
        &index,
        &["table", "derive", "counted", "SELECT count(*) AS n, max(size) AS m FROM entries"],
    );
    // Bob gets the row of the class of everybody alone, from the command and from the files.
    let one = [r#"{"n":1,"m":5}"#.escape_default().to_string()];
    assert_eq!(rows(&place, &index, &bob(), "SELECT * FROM counted WHERE n > 0"), one);
    let mut seen = String::new();
    for arguments in [
        &["table", "list", "--json"][..],
        &["table", "list"],
        &["sql", "SELECT * FROM all_entries"],
    ] {
        let output = run(&place, &index, &bob(), arguments);
        assert!(output.status.success());
        seen += &String::from_utf8_lossy(&output.stdout);
    }
    assert!(seen.contains("open/seen"));
    let files =
        bob().run("find".as_ref(), &[index.as_os_str(), "-type".as_ref(), "f".as_ref()]).stdout;
    let mut read = 0;
    for file in sorted(&files, b'\n') {
        let content = bob().run("cat".as_ref(), &[file.as_ref()]).stdout;
        read += usize::from(!content.is_empty() && file.contains("/table-"));
        seen += &String::from_utf8_lossy(&content);
    }
    assert_eq!(read, 2, "{files:?}");
    assert!(!seen.contains("hidden-name") && !seen.contains("FROM entries"), "{seen}");
    // What is closed is gone with the next run, what is opened there.
    fs::set_permissions(tree.join("open"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(tree.join("secret"), fs::Permissions::from_mode(0o755)).unwrap();
    let paths = "SELECT path FROM all_entries";
    let seen_before = rows(&place, &index, &bob(), paths);
    place.index(&index, &tree);
    let seen_after = rows(&place, &index, &bob(), paths);
    let row = |file: &str| {
        format!("{{\"path\":\"{}\"}}", tree.join(file).display()).escape_default().to_string()
    };
    assert_eq!(seen_before, [row("open/seen")]);
    assert_eq!(seen_after, [row("secret/hidden-name")]);
}

#[test]
fn a_table_that_cannot_be_made_anew_has_no_rows_and_says_so() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("17"), "").unwrap();
    place.index(&index, &tree);
    done(
        &place,
        &index,
        &["table", "derive", "numbers", "SELECT CAST(name AS BIGINT) AS n FROM entries"],
    );
    let query = "SELECT n FROM numbers";
    assert_eq!(rows(&place, &index, &bob(), query), [r#"{"n":17}"#.escape_default().to_string()]);
    fs::write(tree.join("seventeen"), "").unwrap();
    let output = run(&place, &index, &root(), &["index", tree.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("the table numbers has no rows now"), "{errors}");
    refused(&place, &index, &bob(), &["sql", query], "canopy table refresh");
    assert_eq!(rows(&place, &index, &bob(), "SELECT count(*) AS n FROM entries").len(), 1);
    refused(&place, &index, &root(), &["table", "refresh", "numbers"], "seventeen");
    fs::remove_file(tree.join("seventeen")).unwrap();
    done(&place, &index, &["index", tree.to_str().unwrap()]);
    assert_eq!(rows(&place, &index, &bob(), query), [r#"{"n":17}"#.escape_default().to_string()]);
    done(&place, &index, &["table", "refresh"]);
    done(&place, &index, &["table", "drop", "numbers"]);
    refused(&place, &index, &bob(), &["sql", query], "no table 'numbers'");
    assert_eq!(done(&place, &index, &["table", "list"]), "");
}

/// Rows that were computed from another state of a source are never shown, whoever publishes it.
#[test]
fn a_new_source_takes_the_rows_of_derived_tables_away() {
    let place = Fixture::new();
    let (tree, index) = small(&place);
    done(&place, &index, &["table", "derive", "t", "SELECT path FROM entries"]);
    let mut writer = Writer::open(&index, WriterOptions::default()).unwrap();
    let attributes = Attributes { mode: 0o040_755, ..Attributes::default() };
    let (root_path, name) = (tree.to_str().unwrap().to_owned(), None);
    let source = NewSource {
        name,
        root: root_path,
        dev: Device(1),
        scanned_ns: 0,
        attributes,
        approach: Approach::EVERYONE,
        xattrs: Vec::new(),
        scan: None,
    };
    writer.add_source(source).unwrap();
    writer.publish().unwrap();
    for user in [root(), alice(), bob()] {
        refused(&place, &index, &user, &["sql", "SELECT * FROM t"], "canopy table refresh");
    }
    done(&place, &index, &["table", "refresh", "t"]);
    assert_eq!(rows(&place, &index, &alice(), "SELECT * FROM t"), [""; 0]);
}

#[test]
fn an_import_makes_derived_tables_anew() {
    let place = Fixture::new();
    let (index, input) = (place.path("index"), place.path("input.csv"));
    let import = |name: &str| {
        let lines = format!(
            "path,type,mode,uid,gid,size,mtime\n/r,d,0755,0,0,0,1\n/r/{name},f,0644,0,0,5,1\n"
        );
        fs::write(&input, lines).unwrap();
        done(
            &place,
            &index,
            &["import", "--format", "csv", "--root", "/r", input.to_str().unwrap()],
        );
    };
    import("before");
    done(&place, &index, &["table", "derive", "t", "SELECT name FROM entries"]);
    let row = |name: &str| format!("{{\"name\":\"{name}\"}}").escape_default().to_string();
    assert_eq!(rows(&place, &index, &bob(), "SELECT * FROM t"), [row("before")]);
    import("after");
    assert_eq!(rows(&place, &index, &bob(), "SELECT * FROM t"), [row("after")]);
}

#[test]
fn an_index_of_ones_own_has_tables_too() {
    let place = Fixture::new();
    let (tree, home) = (place.path("tree"), place.path("home"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "123").unwrap();
    fs::create_dir(&home).unwrap();
    chown(&home, Some(2001), Some(3001)).unwrap();
    let (index, csv) = (home.join("index"), place.path("data.csv"));
    fs::write(&csv, "a\n1\n").unwrap();
    for arguments in [
        &["index", tree.to_str().unwrap()][..],
        &["table", "derive", "files", "SELECT path, size FROM entries"],
        &["table", "add", "data", csv.to_str().unwrap()],
    ] {
        let output = run(&place, &index, &alice(), arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let expected = [r#"{"size":3,"a":1}"#.escape_default().to_string()];
    assert_eq!(rows(&place, &index, &alice(), "SELECT size, a FROM files, data"), expected);
    refused(&place, &index, &bob(), &["sql", "SELECT * FROM files"], "cannot read");
    let listed = run(&place, &index, &alice(), &["table", "list"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("SELECT path, size FROM entries"));
}

fn count_files(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { count_files(&path) } else { 1 }).sum()
}

/// Whatever operation fails while a table is made anew, its rows are the old ones or the new ones,
/// and nothing piles up.
#[test]
fn any_failing_operation_leaves_the_old_rows() {
    for (errno, lasting) in [(rustix::io::Errno::NOSPC, true), (rustix::io::Errno::IO, false)] {
        let place = Fixture::new();
        let (tree, index) = small(&place);
        done(&place, &index, &["table", "derive", "t", "SELECT path, size FROM entries"]);
        let settle = || drop(done(&place, &index, &["compact", "--replace"]));
        settle();
        let (settled, mut failures) = (count_files(&index), 0);
        for after in 0.. {
            let faults = Faults::new(after, errno.raw_os_error(), lasting);
            let disk = Disk::with_faults(faults.clone());
            let made = (|| -> Result<(), Box<dyn std::error::Error>> {
                let mut writer =
                    Writer::open(&index, WriterOptions { disk, ..WriterOptions::default() })?;
                refresh(&mut writer, "t", 1)?;
                writer.publish()?;
                Ok(())
            })();
            failures += u32::from(made.is_err());
            for (user, count) in [(root(), 2), (bob(), 1)] {
                let seen = rows(&place, &index, &user, "SELECT path, size FROM t");
                assert_eq!(seen.len(), count, "after {after}: {made:?}");
                assert_same(
                    &seen,
                    &rows(&place, &index, &user, "SELECT path, size FROM entries"),
                    "t",
                );
            }
            if !faults.struck() {
                break;
            }
        }
        assert!(failures > 8, "{failures} operations failed");
        done(&place, &index, &["table", "refresh"]);
        settle();
        assert_eq!(count_files(&index), settled);
        place.index(&index, &tree);
        done(&place, &index, &["table", "drop", "t"]);
        let csv = place.path("data.csv");
        fs::write(&csv, "a\n1\n").unwrap();
        done(&place, &index, &["table", "add", "x", csv.to_str().unwrap()]);
        settle();
        let left =
            Command::new("find").arg(&index).args(["-name", "table-*"]).output().unwrap().stdout;
        assert_eq!(sorted(&left, b'\n'), [""; 0], "rows of a dropped table stay");
    }
}

#[test]
fn a_killed_run_leaves_the_old_rows() {
    let place = Fixture::new();
    let (_, index) = small(&place);
    done(&place, &index, &["table", "derive", "t", "SELECT path, size FROM entries"]);
    let mut random = seeded(11);
    for _ in 0..40 {
        let mut run = Command::new(&place.canopy)
            .args([OsStr::new("--index"), index.as_os_str(), "table".as_ref(), "refresh".as_ref()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(random.random_range(0..60_000)));
        run.kill().unwrap();
        run.wait().unwrap();
        assert_eq!(rows(&place, &index, &alice(), "SELECT * FROM t").len(), 2);
        assert_eq!(rows(&place, &index, &bob(), "SELECT * FROM t").len(), 1);
    }
}

/// A reader who opened an older generation finds its rows for a while.
#[test]
fn readers_of_an_older_generation_keep_their_rows() {
    let place = Fixture::new();
    let (_, index) = small(&place);
    done(&place, &index, &["table", "derive", "t", "SELECT path FROM entries"]);
    let open = Index::open(&index).unwrap();
    let read = || -> canopy_index::Result<usize> {
        let canopy_index::TableKind::Derived { columns, .. } = &open.tables()[0].kind else {
            unreachable!()
        };
        let schema = canopy_index::table_schema(columns);
        let mut count = 0;
        for file in open.table_files("t").unwrap() {
            for batch in file.read(&schema, &["path"], 100)? {
                count += batch?.num_rows();
            }
        }
        Ok(count)
    };
    done(&place, &index, &["table", "drop", "t"]);
    assert_eq!(read().unwrap(), 2);
    done(&place, &index, &["table", "derive", "t", "SELECT path FROM entries WHERE size > 5"]);
    assert_eq!(read().unwrap(), 2);
    done(&place, &index, &["compact", "--replace"]);
    assert!(read().is_err());
    assert_eq!(rows(&place, &index, &root(), "SELECT path FROM t").len(), 1);
}

#[test]
fn damaged_rows_are_an_error() {
    let place = Fixture::new();
    let (_, index) = small(&place);
    done(&place, &index, &["table", "derive", "t", "SELECT path FROM entries"]);
    let file = index.join("everyone/table-t-2.parquet");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, &bytes).unwrap();
    refused(&place, &index, &bob(), &["sql", "SELECT * FROM t"], "is damaged");
}

#[test]
fn wrong_requests_are_one_clear_error() {
    let place = Fixture::new();
    let (_, index) = small(&place);
    let dir = place.dir.path().to_str().unwrap();
    let csv = place.path("good.csv");
    fs::write(&csv, "a\n1\n").unwrap();
    let csv = csv.to_str().unwrap();
    let check =
        |arguments: &[&str], words: &str| refused(&place, &index, &root(), arguments, words);
    for name in ["entries", "trees", "acls"] {
        check(&["table", "add", name, csv], "is a table of the index");
        check(&["table", "derive", name, "SELECT 1 AS a"], "is a table of the index");
    }
    for name in ["", "Upper", "1a", "a-b", "a b", "a/b", "../a", "ü", &"x".repeat(65)] {
        check(&["table", "add", name, csv], "cannot be the name of a table");
    }
    check(&["table", "add", "table", csv], "is a word of SQL");
    check(&["table", "add", "a", &format!("{dir}/none.csv")], "No such file");
    check(&["table", "add", "a", dir, "--format", "csv"], "it is a directory");
    check(&["table", "add", "a", "/dev/null", "--format", "parquet"], "not a regular file");
    check(&["table", "add", "a", "/etc/passwd"], "say it with --format");
    check(&["table", "add", "a", csv, "--sqlite-table", "t"], "--sqlite-table is for SQLite");
    check(&["table", "drop", "a"], "no table 'a' was added");
    check(&["table", "refresh", "a"], "no derived table 'a'");
    check(&["table", "derive", "a", "SELEC path FROM entries"], "SELEC");
    check(&["table", "derive", "a", "SELECT * FROM nowhere"], "nowhere");
    check(&["table", "derive", "a", "SELECT sum(size) FROM entries"], "needs a name");
    check(&["table", "derive", "a", "SELECT '/a/path' FROM entries"], "needs a name");
    check(&["table", "derive", "a", "SELECT path FROM trees"], "trees adds up");
    check(&["table", "derive", "a", "SELECT (SELECT max(size) FROM trees) AS m"], "trees adds up");
    check(&["table", "derive", "a", "SELECT array_agg(path) AS p FROM entries"], "cast it");
    check(&["table", "derive", "a", "EXPLAIN SELECT path FROM entries"], "made of a SELECT");
    check(&["table", "derive", "a", "DELETE FROM entries"], "queries change nothing");
    check(&["table", "derive", "a", "SELECT * FROM information_schema.tables"], "no table");
    done(&place, &index, &["table", "add", "good", csv]);
    check(&["table", "add", "good", csv], "there is a table 'good' already");
    check(&["table", "derive", "a", "SELECT * FROM good"], "made of the index's own tables");
    refused(&place, &index, &alice(), &["table", "drop", "good"], "not to you");
    refused(&place, &place.path("none"), &root(), &["table", "add", "a", csv], "no index at");
    assert!(!place.path("none").exists());
    let _writer = Writer::open(&index, WriterOptions::default()).unwrap();
    check(&["table", "derive", "a", "SELECT 1 AS a"], "another canopy is writing");
    check(&["table", "add", "a", csv], "another canopy is writing");
}

#[test]
fn files_that_are_not_what_they_should_be_are_one_clear_error() {
    let place = Fixture::new();
    let (_, index) = small(&place);
    let file = place.path("data");
    let shown = file.to_str().unwrap();
    let check = |content: &[u8], format: &str, words: &str| {
        fs::write(&file, content).unwrap();
        let words = format!("cannot read {shown}: {words}");
        refused(&place, &index, &root(), &["table", "add", "t", shown, "--format", format], &words);
    };
    check(b"", "csv", "it is empty");
    check(b"a,b\n1,2\n3\n", "csv", "");
    check(b"a,b\n1,2,3\n", "csv", "");
    check(b"a,a\n1,2\n", "csv", "two columns are called 'a'");
    check(b"a,\n1,2\n", "csv", "a column has no name");
    check(b"a\n\xff\xfe\n", "csv", "");
    check(b"", "parquet", "it is too short");
    check(b"PAR1 but no more than this", "parquet", "no 'PAR1' at the end");
    check(b"\xff\xff\xff\x7fPAR1", "parquet", "its footer is longer");
    check(b"", "sqlite", "it has no tables");
    check(
        b"no database at all, but long enough to be looked at",
        "sqlite",
        "file is not a database",
    );
    let garbage: Vec<u8> =
        (0..20_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for format in ["csv", "parquet", "sqlite"] {
        check(&garbage, format, "");
    }
    // A log that is not written back would be left out without a word.
    fs::remove_file(&file).unwrap();
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection
        .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        .unwrap();
    refused(
        &place,
        &index,
        &root(),
        &["table", "add", "t", shown, "--format", "sqlite"],
        "data-wal are not in it",
    );
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(connection);
    done(&place, &index, &["table", "add", "t", shown, "--format", "sqlite"]);
    assert_eq!(done(&place, &index, &["sql", "--format", "csv", "SELECT a FROM t"]), "a\n1\n");
}

/// A file that was whole when it was attached may turn into anything: rows or one error, never a
/// panic.
#[test]
fn files_that_change_give_rows_or_one_error() {
    let place = Fixture::new();
    let (_, index) = small(&place);
    let mut random = seeded(5);
    let parquet =
        run(&place, &index, &root(), &["sql", "--format", "parquet", "SELECT * FROM directories"])
            .stdout;
    let database = place.path("made.db");
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE t (a INT, b TEXT, c REAL, d BLOB);
             INSERT INTO t VALUES (1, 'one', 1.5, x'00ff'), (-2, NULL, 'text', x''),
                                  (9223372036854775807, x'ff', 2, 3);
             INSERT INTO t SELECT a - 5, hex(randomblob(2000)), c, d FROM t",
        )
        .unwrap();
    drop(connection);
    let csv = b"a,b\n1,x\n2,\"y\nz\"\n3,\n".to_vec();
    for (format, whole) in
        [("parquet", parquet), ("sqlite", fs::read(&database).unwrap()), ("csv", csv)]
    {
        let file = place.path(&format!("changing-{format}"));
        fs::write(&file, &whole).unwrap();
        done(&place, &index, &["table", "add", format, file.to_str().unwrap(), "--format", format]);
        let query = format!("SELECT * FROM {format}");
        assert!(done(&place, &index, &["sql", &query]).lines().count() > 3);
        for round in 0..150 {
            let mut changed = whole.clone();
            for _ in 0..random.random_range(1..4) {
                // Footers and headers are where the structure is.
                let near = random.random_range(0..changed.len().min(600));
                let at = match round % 3 {
                    0 => random.random_range(0..changed.len()),
                    1 => near,
                    _ => changed.len() - 1 - near,
                };
                changed[at] = random.random();
            }
            if random.random_bool(0.2) {
                changed.truncate(random.random_range(0..changed.len()));
            }
            fs::write(&file, &changed).unwrap();
            let output = run(&place, &index, &root(), &["sql", "--format", "ndjson", &query]);
            let errors = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => assert_eq!(errors, "", "{format}"),
                Some(2) => {
                    assert!(
                        errors.starts_with("canopy: ") && !errors.contains("panicked"),
                        "{format}: {errors}"
                    );
                }
                code => panic!("{format}: {code:?} {errors}"),
            }
        }
    }
}

/// An update does not compute untouched rows again, and the others as if all were.
#[test]
fn derived_tables_follow_class_by_class() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    for (owner, name) in [(2001, "a"), (2002, "b"), (0, "open")] {
        fs::create_dir_all(tree.join(name)).unwrap();
        fs::write(tree.join(name).join("file"), name).unwrap();
        chown(tree.join(name), Some(owner), None).unwrap();
        let mode = if owner == 0 { 0o755 } else { 0o700 };
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let path = |name: &str| tree.join(name).to_str().unwrap().to_owned();
    done(&place, &index, &["index", tree.to_str().unwrap()]);
    let query = "SELECT path, size FROM entries";
    done(&place, &index, &["table", "derive", "t", query]);
    let files = || -> BTreeSet<PathBuf> {
        let all = common::all_paths(&index).into_iter();
        all.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("table-t-"))
            .collect()
    };
    let same = |what: &str| {
        for user in [root(), alice(), bob()] {
            let derived = rows(&place, &index, &user, "SELECT * FROM t ORDER BY path");
            let asked = rows(&place, &index, &user, &format!("{query} ORDER BY path"));
            assert_eq!(derived, asked, "{what}");
            assert!(!derived.is_empty());
        }
    };
    assert_eq!(files().len(), 3, "{:?}", files());
    same("at first");
    fs::write(tree.join("a/new"), "new").unwrap();
    let before = files();
    done(&place, &index, &["update", &path("a")]);
    same("after an update");
    let came: Vec<PathBuf> = files().difference(&before).cloned().collect();
    // Of its own class, and of that of the directory above, which is listed too.
    assert_eq!(came.len(), 2, "{came:?}");
    let is_of_b = |path: &&PathBuf| fs::metadata(path.parent().unwrap()).unwrap().gid() == 2002;
    assert_eq!(came.iter().filter(is_of_b).count(), 0, "{came:?}");
    // What moves from class to class leaves no row behind.
    fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(tree.join("b/file"), tree.join("open/moved")).unwrap();
    done(&place, &index, &["update", &path("a"), &path("b"), &path("open")]);
    same("after what was closed is open");
    done(&place, &index, &["index", "--incremental", tree.to_str().unwrap()]);
    same("after a scan");
    fs::remove_dir_all(tree.join("b")).unwrap();
    done(&place, &index, &["update", &path("b")]);
    done(&place, &index, &["compact"]);
    same("after compaction");
    done(&place, &index, &["source", "rename", tree.to_str().unwrap(), "other"]);
    same("after another name");
    // A whole refresh writes all of them anew.
    let before = files();
    done(&place, &index, &["table", "refresh"]);
    assert!(files().difference(&before).count() >= 1);
    same("after a refresh");
}
