//! Formats of answers: from names of files, CSV for spreadsheets, and output on a terminal. Needs
//! root and script(1).

use crate::common;

use common::Fixture;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn indexed(names: &[&[u8]]) -> (Fixture, PathBuf) {
    let place = Fixture::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    for name in names {
        fs::write(tree.join(OsStr::from_bytes(name)), "x").unwrap();
    }
    let index = place.path("index");
    place.index(&index, &tree);
    (place, index)
}

fn sql(place: &Fixture, index: &Path, arguments: &[&str]) -> Output {
    let all: Vec<&OsStr> = ["sql"].iter().chain(arguments).map(OsStr::new).collect();
    place.canopy(index, &all)
}

const QUERY: &str = "SELECT name, size FROM entries";

#[test]
fn a_file_is_of_the_form_that_its_name_tells() {
    let (place, index) = indexed(&[b"a"]);
    for (name, begins) in [
        ("x.csv", "name,size\na,1\n"),
        ("x.json", "[{\"name\":\"a\",\"size\":1}]\n"),
        ("x.ndjson", "{\"name\":\"a\",\"size\":1}\n"),
        ("x.parquet", "PAR1"),
        ("x.md", "| name | size |\n|------|-----:|\n"),
        ("x.txt", "+------+------+\n| name | size |\n"),
        ("x", "+------+------+\n"),
    ] {
        let path = place.path(name);
        fs::write(&path, "old").unwrap();
        let output = sql(&place, &index, &["-o", path.to_str().unwrap(), QUERY]);
        assert!(output.status.success() && output.stdout.is_empty(), "{name}: {output:?}");
        let written = fs::read(&path).unwrap();
        assert!(written.starts_with(begins.as_bytes()), "{name}: {written:?}");
    }
    // The option counts more than the name.
    let path = place.path("y.txt");
    let arguments = ["--format", "csv", "--output", path.to_str().unwrap(), QUERY];
    assert!(sql(&place, &index, &arguments).status.success());
    assert_eq!(fs::read_to_string(&path).unwrap(), "name,size\na,1\n");
}

#[test]
fn a_file_that_cannot_be_what_its_name_promises_is_refused_and_nothing_is_lost() {
    let (place, index) = indexed(&[b"a"]);
    for (name, query, words) in [
        ("x.csv.gz", QUERY, "gzip x.csv"),
        ("x.parquet.zst", QUERY, "zstd"),
        ("x.html", QUERY, "set the form with --format"),
        ("x.csv", "SELECT nme FROM entries", "did you mean 'name'?"),
        ("x.parquet", "SELECT 1; SELECT 2", "the answer of one statement"),
        ("missing/x.csv", QUERY, "No such file"),
    ] {
        let path = place.path(name);
        let exists = path.parent().unwrap().exists();
        if exists {
            fs::write(&path, "old").unwrap();
        }
        let output = sql(&place, &index, &["-o", path.to_str().unwrap(), query]);
        let said = String::from_utf8_lossy(&output.stderr)
            .replace(&place.path("").display().to_string(), "");
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(words), "{name}: {said}");
        if exists {
            assert_eq!(fs::read(&path).unwrap(), b"old", "{name}");
        }
    }
    let left: Vec<OsString> = fs::read_dir(place.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.as_bytes().starts_with(b".") || name.as_bytes().contains(&b'~'))
        .collect();
    assert_eq!(left, Vec::<OsString>::new());
}

#[test]
fn spreadsheets_compute_nothing_of_safe_csv() {
    let (place, index) = indexed(&[b"=cmd|' calc'!A0", b"+1", b"-1", b"@x", b"\tx", b"plain"]);
    let query = "SELECT name, size - 2 AS \"=n\", [name] FROM entries ORDER BY name";
    let csv = |options: &[&str]| {
        let all: Vec<&str> =
            ["--format", "csv"].iter().chain(options).chain([&query]).copied().collect();
        let output = sql(&place, &index, &all);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let safe = csv(&["--csv-safe"]);
    let mut lines = safe.lines();
    assert!(lines.next().unwrap().starts_with("name,'=n,"), "{safe}");
    for (line, expected) in
        lines.zip(["'\tx,-1,", "+1,-1,", "-1,-1,", "'=cmd|' calc'!A0,-1,", "'@x,-1,", "plain,-1,"])
    {
        let line = line.replace('"', "");
        assert!(line.starts_with(expected), "{line}: {expected}");
    }
    assert!(csv(&[]).contains("\n=cmd|' calc'!A0,-1,"));
    let refused = sql(&place, &index, &["--csv-safe", query]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--csv-safe is for --format csv"));
}

/// Runs a command on a terminal of this width and locale.
fn on_terminal(
    place: &Fixture,
    index: &Path,
    columns: usize,
    locale: &str,
    arguments: &str,
) -> Vec<u8> {
    let canopy = format!("{} --index {}", place.canopy.display(), index.display());
    let line = format!("stty cols {columns} && {canopy} {arguments}");
    let output = Command::new("script")
        .args(["-qefc", &line, "/dev/null"])
        .env("LC_ALL", locale)
        .env("SHELL", "/bin/sh")
        .env_remove("COLUMNS")
        .output()
        .unwrap();
    output.stdout
}

#[test]
fn no_terminal_gets_control_characters_of_eight_bits() {
    // A byte alone, the character U+009B, and one whose second byte in UTF-8 is 0x9b.
    let (place, index) = indexed(&[b"a\x9b2Jz", "b\u{9b}2Jz".as_bytes(), "c\u{11b}2Jz".as_bytes()]);
    for form in ["table", "box", "markdown", "line", "csv", "json", "ndjson"] {
        for columns in [40, 200] {
            let arguments = format!(
                "sql --format {form} \"SELECT name, repeat(name, 20), size FROM entries ORDER BY 1\""
            );
            let shown = on_terminal(&place, &index, columns, "C", &arguments);
            assert!(shown.windows(2).any(|two| two == b"2J"), "{form}");
            let control = shown.iter().find(|byte| matches!(**byte, 0x80..=0x9f));
            assert_eq!(control, None, "{form} {}", String::from_utf8_lossy(&shown));
            let shown = on_terminal(&place, &index, columns, "C.UTF-8", &arguments);
            let text = String::from_utf8(shown).unwrap();
            assert!(!text.contains(|c: char| ('\u{80}'..'\u{a0}').contains(&c)), "{form} {text}");
        }
    }
    // Messages, too.
    let shown =
        on_terminal(&place, &index, 80, "C", "sql \"SELECT '\u{11b}' FROM nothing\u{11b}\"");
    assert!(!shown.iter().any(|byte| matches!(byte, 0x80..=0x9f)), "{shown:?}");
}

#[test]
fn a_wide_answer_shows_the_columns_that_fit_and_counts_the_others() {
    let (place, index) = indexed(&[b"a", b"b"]);
    let shown = on_terminal(&place, &index, 80, "C.UTF-8", "sql 'SELECT * FROM entries'");
    let shown = String::from_utf8(shown).unwrap().replace('\r', "");
    // A line a row, none wider than the terminal, with paths that can be read.
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert_eq!(shown.lines().count(), 7, "{shown}");
    assert!(shown.contains("of 21 columns shown; '--format line'"), "{shown}");
    let path = place.path("tree/a").display().to_string();
    let begin: String = path.chars().take(20).collect();
    assert!(shown.contains(&begin), "{shown}");
    let line =
        on_terminal(&place, &index, 80, "C.UTF-8", "sql --format line 'SELECT * FROM entries'");
    assert!(String::from_utf8(line).unwrap().contains(&path));
}

#[test]
fn help_and_places_of_errors_fit_into_a_terminal() {
    let (place, index) = indexed(&[b"a"]);
    let commands = place.path("commands");
    std::fs::write(&commands, ".help\n").unwrap();
    let words = format!("sql -f {}", commands.display());
    let help = on_terminal(&place, &index, 60, "C.UTF-8", &words);
    let help = String::from_utf8(help).unwrap().replace('\r', "");
    assert!(help.contains("\n.tables"), "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 60), "{help}");
    assert!(help.contains("show answers by $PAGER"), "{help}");
    let columns = "size, ".repeat(30);
    let query = format!("SELECT {columns}nme, {columns}uid FROM entries");
    let output = sql(&place, &index, &[&query]);
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    let (text, mark) = (lines[lines.len() - 2], lines[lines.len() - 1]);
    assert!(text.len() <= 78 && text.starts_with("  ...") && text.ends_with("..."), "{said}");
    assert!(text[mark.len() - 1..].starts_with("nme"), "{said}");
}

#[test]
fn names_that_are_not_utf8_stay_what_they_are() {
    let (place, index) = indexed(&[b"a\x9b"]);
    let output = sql(&place, &index, &["--format", "csv", "SELECT name FROM entries"]);
    let name = OsString::from_vec(output.stdout);
    assert_eq!(name.as_bytes(), "name\na\u{10FF9B}\n".as_bytes());
}
