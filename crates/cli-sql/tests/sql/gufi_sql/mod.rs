//! The queries of GUFI's documents, of its gufi_stats and of its paper: as written if that means
//! one thing, else in the form of docs/coming-from-gufi.md. The expected answers are computed from
//! the tree itself.
//!
//! With GUFI_BIN set to the directory of GUFI's programs, GUFI answers the same questions too.

use crate::common;

macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$($value.to_string()),*] };
}

mod cases;
mod statistics;
mod tree;

use cases::{Answer, CASES};
use common::Fixture;
use common::requirements::gufi;
use statistics::{NOW_S, statistic};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tree::{Tree, make};

/// The place with a tree, its index, and GUFI's if there is a GUFI.
struct Site {
    place: Fixture,
    tree: Tree,
    index: PathBuf,
    gufi: Option<PathBuf>,
}

impl Site {
    fn new() -> Self {
        Site::with(&[])
    }

    /// With some more files.
    fn with(files: &[&str]) -> Self {
        let place = Fixture::new();
        let (root, index, gufi_index) =
            (place.path("test"), place.path("index"), place.path("gufi"));
        fs::create_dir(&root).unwrap();
        make(&root);
        for file in files {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
        }
        place.index(&index, &root);
        let gufi = gufi();
        if let Some(gufi) = &gufi {
            let arguments = ["-x".as_ref(), root.as_os_str(), gufi_index.as_os_str()];
            run(&gufi.join("gufi_dir2index"), &arguments);
            // Another for tree summaries: making them changes what GUFI says of rollups.
            let trees = place.path("gufi-trees");
            run(
                &gufi.join("gufi_dir2index"),
                &["-x".as_ref(), root.as_os_str(), trees.as_os_str()],
            );
            run(&gufi.join("gufi_treesummary_all"), &[trees.join("test").as_os_str()]);
        }
        Site { place, tree: Tree::read(&root), index, gufi }
    }

    fn ask(&self, query: &str) -> Answer {
        let arguments = ["sql", "--gufi", "--format", "csv", query].map(OsStr::new);
        let output = self.place.canopy(&self.index, &arguments);
        assert!(output.status.success(), "{query}\n{}", String::from_utf8_lossy(&output.stderr));
        csv(&String::from_utf8(output.stdout).unwrap()).split_off(1)
    }

    /// GUFI's answer, with paths as they are in the tree.
    fn ask_gufi(&self, query: &[&str]) -> Option<Answer> {
        let gufi = self.gufi.as_ref().filter(|_| !query.is_empty())?;
        let index = if query.contains(&"-T") { "gufi-trees" } else { "gufi" };
        let index = self.place.path(index).join("test");
        // Builds of SQLite differ in whether text may stand in double quotes.
        let query: Vec<String> = query.iter().map(|argument| argument.replace('"', "'")).collect();
        let mut arguments: Vec<&OsStr> = query.iter().map(OsStr::new).collect();
        arguments.extend(["-d".as_ref(), "|".as_ref(), index.as_os_str()]);
        let text = run(&gufi.join("gufi_query"), &arguments)
            .replace(index.to_str().unwrap(), &self.tree.root);
        Some(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
    }
}

fn run(program: &Path, arguments: &[&OsStr]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {arguments:?}\n{errors}", program.display());
    String::from_utf8(output.stdout).unwrap()
}

/// The fields of CSV.
fn csv(text: &str) -> Answer {
    let (mut rows, mut row, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => field.extend(characters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\n' if !quoted => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            _ => field.push(character),
        }
    }
    rows
}

/// How an answer differs from what is expected, if it does.
fn difference(
    mut shown: Answer,
    mut expected: Answer,
    ordered: bool,
    what: &str,
) -> Option<String> {
    // Rows of GUFI's statements for directories and for entries may have different numbers of
    // columns.
    for row in shown.iter_mut().chain(&mut expected) {
        while row.last().is_some_and(String::is_empty) {
            row.pop();
        }
    }
    if !ordered {
        shown.sort();
        expected.sort();
    }
    let first = shown.iter().zip(&expected).find(|(shown, expected)| shown != expected);
    let counts = (shown.len(), expected.len());
    (shown != expected).then(|| format!("{what}\n{counts:?} rows, first to differ: {first:?}\n"))
}

#[test]
fn questions_of_gufis_documents_have_the_same_answers() {
    let site = Site::new();
    let mut differences = Vec::new();
    for case in CASES {
        let query = case.ours.unwrap_or_else(|| case.gufi.last().unwrap());
        let what = format!("{}: {query}", case.origin);
        let expected = (case.expected)(&site.tree);
        assert!(!expected.is_empty(), "{what}");
        differences.extend(difference(site.ask(query), expected.clone(), case.ordered, &what));
        if let Some(shown) = site.ask_gufi(case.gufi) {
            differences.extend(difference(shown, expected, case.ordered, &format!("GUFI, {what}")));
        }
    }
    assert!(differences.is_empty(), "{}", differences.concat());
}

/// The statements of a table of the document, by what stands before them.
fn documented(section: &str) -> Vec<(String, String)> {
    let document = include_str!("../../../../../docs/coming-from-gufi.md");
    let start = document.find(&format!("\n## {section}\n")).expect("the document has this section");
    let section = document[start + 1..].split("\n## ").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix("` |"));
    let unescaped = |text: &str| text.replace("\\|", "|");
    cells
        .filter_map(|line| line.split_once("` | `"))
        .map(|(name, sql)| (name.into(), unescaped(sql)))
        .collect()
}

#[test]
fn every_statistic_of_gufi_stats_is_what_the_document_says() {
    let site = Site::new();
    let statements = documented("gufi_stats");
    assert_eq!(statements.len(), 55, "all statistics that gufi_stats has");
    for (name, query) in statements {
        let expected = statistic(&site.tree, &name).unwrap_or_else(|| panic!("unknown: {name}"));
        let query = query.replace("to_unixtime(now())", &NOW_S.to_string());
        let difference = difference(site.ask(&query), expected, false, &format!("{name}: {query}"));
        assert_eq!(difference, None);
    }
}

#[test]
fn statements_that_name_none_of_gufis_views_are_not_changed() {
    let site = Site::new();
    let ask = |query: &str| {
        let arguments = ["sql", "--format", "csv", query].map(OsStr::new);
        let output = site.place.canopy(&site.index, &arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), String::from_utf8(output.stdout).unwrap(), message)
    };
    let count = |query: &str| ask(query).1.lines().nth(1).unwrap_or_default().to_owned();
    // Patterns and quotes are the engine's own.
    assert_eq!(count("SELECT count(*) FROM entries WHERE name LIKE '%BIG%'"), "1");
    assert_eq!(count("SELECT count(*) FROM pentries WHERE name LIKE '%BIG%'"), "4");
    let (accepted, _, message) = ask("SELECT \"text\" FROM entries");
    assert!(!accepted && message.contains("no column 'text'"), "{message}");
    // A table of the index is not GUFI's, unless that is asked for.
    assert_eq!(count("SELECT count(*) FROM gufi.entries"), site.tree.entries.len().to_string());
    assert!(ask("SELECT arrow_typeof(mtime) FROM entries LIMIT 1").1.contains("Timestamp"));
    assert!(ask("SELECT arrow_typeof(mtime) FROM gufi.entries LIMIT 1").1.contains("Int64"));
    // Functions serve any table.
    assert_eq!(count("SELECT human_readable_size(max(size)) FROM entries"), "1.0T");
    // Nothing can be changed, and no program can be started.
    for query in [
        "DROP VIEW pentries",
        "INSERT INTO pentries SELECT * FROM pentries",
        "CREATE TABLE intermediate (a INT)",
        "SELECT strop('id') FROM pentries",
        "SELECT intop('id') FROM pentries",
        "SELECT blobop('id') FROM pentries",
        "SELECT path()",
        "SELECT path() FROM directories",
        "SET a = 1",
    ] {
        let (accepted, shown, _) = ask(query);
        assert!(!accepted && shown.is_empty(), "{query}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn a_start_directory_and_the_rest_of_sql_work_over_the_views() {
    let quoted = "it's a \"directory\"";
    let site = Site::with(&[&format!("{quoted}/file")]);
    let tree = &site.tree;
    let below = |directory: &str| {
        let directory = format!("{}/{directory}", tree.root);
        tree.entries
            .iter()
            .filter(move |row| row.path.starts_with(&format!("{directory}/")))
            .count()
    };
    let count = |query: &str| site.ask(query)[0][0].clone();
    let start = format!("{}/l1.1", tree.root);
    for view in ["entries", "pentries", "vrpentries", "epentries"] {
        let query = format!("SELECT count(*) FROM {view} WHERE below(path(), '{start}')");
        assert_eq!(count(&query), below("l1.1").to_string(), "{query}");
        let query = format!("SELECT count(*) FROM {view} WHERE path() = '{start}'");
        assert_eq!(count(&query), "2", "{query}");
    }
    for view in ["summary", "vrsummary", "treesummary", "vtsummarydir", "summarylong", "esummary"] {
        assert_eq!(
            count(&format!("SELECT count(*) FROM {view} WHERE below(path(), '{start}')")),
            "4"
        );
        assert_eq!(count(&format!("SELECT count(*) FROM {view} WHERE path() = '{start}'")), "1");
        assert_eq!(
            count(&format!("SELECT count(*) FROM {view} WHERE below(path(), '{start}x')")),
            "0"
        );
    }
    let start = format!("{}/{}", tree.root, quoted.replace('\'', "''"));
    assert_eq!(
        count(&format!(
            "SELECT path() || '/' || name FROM pentries WHERE below(path(), '{start}')"
        )),
        format!("{}/{quoted}/file", tree.root)
    );
    let start = format!("{}/l1.1", tree.root);
    let names = format!("SELECT xattr_names FROM summary WHERE path() = '{}/sizes'", tree.root);
    assert_eq!(count(&names), "user.ext\u{1f}");
    let totals = format!("SELECT totsize FROM treesummary WHERE path() = '{start}'");
    assert_eq!(count(&totals), "4");
    // By user and by group, what a directory has is as much as all of its users have.
    for (view, all) in [("vsummaryuser", "summary"), ("vtsummarygroup", "treesummary")] {
        let sum = |view: &str| {
            count(&format!("SELECT SUM(totfiles) * 1000000 + SUM(totlinks) FROM {view}"))
        };
        assert_eq!(sum(view), sum(all), "{view}");
    }
    let users =
        "SELECT COUNT(DISTINCT minuid) FROM vsummaryuser WHERE minuid == maxuid AND uid == minuid";
    assert_eq!(count(users), "3");
    // Views join, hide what paths are made of, and are found under other names.
    let joined = "SELECT s.*, rpath(e.sname, e.sroll, name) FROM vrpentries AS e JOIN (SELECT \
    inode AS i FROM summary) AS s ON e.pinode == s.i";
    assert_eq!(site.ask(joined).len(), tree.entries.len());
    assert_eq!(site.ask(joined)[0].len(), 2);
    let starred = site.ask("SELECT *, path() FROM summary ORDER BY path() LIMIT 1");
    assert_eq!((starred[0].len(), starred[0][66].as_str()), (67, tree.root.as_str()));
    let nested =
        "SELECT max(p) FROM (SELECT rpath(sname, sroll) AS p FROM vrsummary) AS inner_query";
    assert_eq!(count(nested), format!("{}/sizes", tree.root));
    // gufi_find_outliers, as the document has it.
    let outliers = "WITH t AS (SELECT path() AS path, pinode, totsize FROM treesummary), s AS \
    (SELECT pinode, AVG(totsize) AS mean, stdevs(totsize) AS deviation FROM t GROUP BY pinode) \
    SELECT path FROM t JOIN s USING (pinode) WHERE abs(totsize - mean) > 2 * deviation";
    assert_eq!(site.ask(outliers), vec![vec![format!("{}/sizes", tree.root)]]);
    let correlated = "SELECT count(*) FROM vrsummary WHERE totfiles > 0 AND NOT EXISTS (SELECT 1 \
    FROM pentries WHERE pinode == vrsummary.inode)";
    assert_eq!(count(correlated), "0");
    for (query, answer) in [
        ("SELECT count(*) FROM entries WHERE name REGEXP '^f[12]\\.1'", "3"),
        ("SELECT count(*) FROM entries WHERE name NOT REGEXP '^f' AND type == 'l'", "2"),
        ("SELECT count(*) FROM entries WHERE regexp('^LOUD', name)", "1"),
        ("SELECT TOTAL(size) FROM entries WHERE name == 'nothing'", "0.0"),
        ("SELECT CAST(TOTAL(size) AS INT64) FROM entries WHERE name == 'f1.big'", "4"),
        (
            "SELECT rpad(name, 6) || '|' || rpad(name, 12) || '|' FROM entries WHERE name == \
             'Makefile'",
            "Makefile|Makefile    |",
        ),
        (
            "SELECT character_length(rpad(name, 1 << 40)) FROM entries WHERE name == 'Makefile'",
            "65535",
        ),
        ("SELECT stdevp(size) FROM entries WHERE name LIKE 'f1.big%'", "2.449489742783178"),
        (
            "SELECT log_hist_combine(h) FROM (SELECT log_hist(size, 2, 8) AS h FROM pentries \
             WHERE type == 'f' AND size < 20 GROUP BY pinode)",
            "2;8;11;0;1:4;2:9;3:1;",
        ),
        (
            "SELECT mode_count(name) FROM entries WHERE name LIKE '%.xls' OR name LIKE '%.big'",
            "6:f1.xls:3;",
        ),
        ("SELECT strftime('%s', mtime) == mtime FROM summary WHERE level() == 0", "true"),
        ("SELECT starting_point() == path() FROM summary WHERE level() == 0", "true"),
        (
            "SELECT count(*) FROM summary WHERE pinode() == CAST(pinode AS INTEGER)",
            &tree.dirs.len().to_string(),
        ),
        ("SELECT count(*) FROM xattrs WHERE name == 'user.ext'", "3"),
        ("SELECT xattr_value FROM xsummary WHERE xattr_name == 'user.ext'", "of a directory"),
        ("SELECT count(*) FROM trees", &tree.dirs.len().to_string()),
        (
            "SELECT \"my name\" FROM (SELECT name AS \"my name\" FROM entries) WHERE \"my name\" \
             == \"f1.big\"",
            "f1.big",
        ),
        ("SELECT \"count(*)\" FROM (SELECT count(*) FROM entries WHERE name == 'f1.big')", "1"),
        ("SELECT count(*) FROM (SELECT name FROM entries LIMIT 3)", "3"),
        (
            "SELECT count(*) FROM (SELECT DISTINCT agecat(mtime), intcat(size), bytecat(size) \
             FROM entries) WHERE 1 == 0",
            "0",
        ),
    ] {
        assert_eq!(count(query), answer, "{query}");
    }
}

/// For every user and start, the views have the rows of the index's own tables, which are those
/// that the kernel lets this user see.
#[test]
fn the_views_show_each_user_what_the_own_tables_show() {
    for seed in 0..4 {
        let mut random = common::seeded(seed);
        let place = Fixture::new();
        let (root, index) = (place.path("tree"), place.path("index"));
        common::random_tree(&root, &mut random, true);
        place.index(&index, &root);
        let starts = common::all_paths(&root).into_iter().filter(|path| path.is_dir());
        let mut starts: Vec<String> =
            starts.filter_map(|path| Some(path.to_str()?.to_owned())).collect();
        starts.retain(|path| !path.contains(['\n', '\u{1b}', '\u{10FF90}', '\\']));
        for _ in 0..3 {
            let user = common::User::random(&mut random);
            let ask = |query: String| -> BTreeSet<Vec<String>> {
                let arguments =
                    ["--index".as_ref(), index.as_os_str(), "sql".as_ref(), "--format".as_ref()];
                let arguments = [&arguments[..], &["csv", &query].map(OsStr::new)].concat();
                let output = user.run(place.canopy.as_os_str(), &arguments);
                assert!(
                    output.status.success(),
                    "{query}\n{}",
                    String::from_utf8_lossy(&output.stderr)
                );
                csv(&String::from_utf8(output.stdout).unwrap()).split_off(1).into_iter().collect()
            };
            for start in starts.iter().step_by(3) {
                let own = ask(format!(
                    "SELECT path, size FROM entries WHERE starts_with(path, '{start}/') AND type \
                     IN ('f', 'l')"
                ));
                for view in ["vrpentries", "vrxpentries"] {
                    let shown = ask(format!(
                        "SELECT rpath(sname, sroll, name), size FROM {view} WHERE below(path(), \
                         '{start}') AND \
                         dtotsize >= 0 AND pinode <> '' AND coalesce(ppinode, '') <> '-'"
                    ));
                    assert_eq!(shown, own, "{seed} {user:?} {start} {view}");
                }
                let own = ask(format!(
                    "SELECT path, files, symlinks FROM summaries WHERE starts_with(path, \
                     '{start}/') OR path = '{start}'"
                ));
                let shown = ask(format!(
                    "SELECT path(), totfiles, totlinks FROM vrsummary WHERE below(path(), \
                     '{start}') AND totsize >= 0"
                ));
                // Behind a gate, where the own table has to be told of something below it, the view
                // finds more.
                assert!(shown.is_superset(&own), "{seed} {user:?} {start}");
                let listed: BTreeSet<String> = shown.iter().map(|row| row[0].clone()).collect();
                let find = ["--index".as_ref(), index.as_os_str(), "find".as_ref(), start.as_ref()];
                let find = [&find[..], &["-type", "d"].map(OsStr::new)].concat();
                let found = user.run(place.canopy.as_os_str(), &find).stdout;
                let found = String::from_utf8_lossy(&found).into_owned();
                for path in listed.iter().filter(|path| starts.contains(path)) {
                    assert!(
                        found.lines().any(|line| line == path),
                        "{seed} {user:?} {start} {path}"
                    );
                }
            }
        }
    }
}

/// The index keeps a huge directory in parts, which are one directory all the same.
#[test]
fn a_huge_directory_is_one_row() {
    let place = Fixture::new();
    let (root, index) = (place.path("tree"), place.path("index"));
    fs::create_dir_all(root.join("huge")).unwrap();
    for number in 0..70_001 {
        fs::write(root.join(format!("huge/{number}")), "").unwrap();
    }
    place.index(&index, &root);
    let ask = |query: &str| {
        let output = place.canopy(&index, &["sql", "--format", "csv", query].map(OsStr::new));
        csv(&String::from_utf8(output.stdout).unwrap()).split_off(1)
    };
    assert_eq!(
        ask("SELECT max(part) FROM gufi.\" listings\""),
        [row![1]],
        "the directory is large enough"
    );
    let own = "SELECT name, totfiles, totzero, totltk FROM summary WHERE level() == 1";
    assert_eq!(ask(own), [row!["huge", 70_001, 70_001, 70_001]]);
    assert_eq!(ask("SELECT count(*) FROM vrsummary"), [row![2]]);
    let entries =
        "SELECT count(pinode), count(ppinode), min(dtotfiles), max(dtotsize) FROM vrpentries";
    assert_eq!(ask(entries), [row![70_001, 70_001, 70_001, 0]]);
    let trees = "SELECT totsubdirs, totfiles, maxsubdirfiles FROM treesummary WHERE level() == 0";
    assert_eq!(ask(trees), [row![1, 70_001, 70_001]]);
}
