//! Formats of output files: from their names, numbers that JSON keeps, CSV for spreadsheets, and
//! output on a terminal. Needs root and script(1).

use crate::common;

use common::{Fixture, SmallDisk};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn indexed(names: &[&[u8]]) -> (Fixture, PathBuf, PathBuf) {
    let place = Fixture::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    for name in names {
        fs::write(tree.join(OsStr::from_bytes(name)), "x").unwrap();
    }
    let index = place.path("index");
    place.index(&index, &tree);
    (place, index, tree)
}

fn run(place: &Fixture, index: &Path, arguments: &[&str]) -> Output {
    let all: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    place.canopy(index, &all)
}

#[test]
fn the_name_of_a_file_tells_its_form() {
    let (place, index, tree) = indexed(&[b"a"]);
    let tree = tree.to_str().unwrap();
    for (command, name, begins) in [
        ("export", "x.parquet", "PAR1"),
        ("export", "x.csv", "path,source,name,"),
        ("export", "x.ndjson", "{\"path\":\""),
        ("export", "x.arrow", "ARROW1"),
        ("export", "x.trace", ""),
        ("report", "x.html", "<!DOCTYPE html>"),
        ("report", "x.json", "{\n  \"generation\": 1,"),
        ("report", "x.txt", ""),
        ("report", "x", ""),
    ] {
        let path = place.path(name);
        let output = run(&place, &index, &[command, "-o", path.to_str().unwrap(), tree]);
        assert!(output.status.success(), "{command} {name}: {output:?}");
        let written = fs::read(&path).unwrap();
        assert!(!written.is_empty() && written.starts_with(begins.as_bytes()), "{command} {name}");
        fs::remove_file(&path).unwrap();
    }
    let path = place.path("users.csv");
    let arguments = ["report", "--section", "users", "-o", path.to_str().unwrap(), tree];
    assert!(run(&place, &index, &arguments).status.success());
    assert!(fs::read_to_string(&path).unwrap().lines().next().unwrap().contains("user"));
    for (command, name, words) in [
        ("export", "x.csv.gz", "gzip x.csv"),
        ("export", "x.parquet.zst", "zstd x.parquet"),
        ("export", "x.json", "--format ndjson has an object a line"),
        ("export", "x.html", "say the form"),
        ("export", "x", "say the form"),
        ("report", "x.html.xz", "xz x.html"),
        ("report", "x.parquet", "a report is text, or HTML, JSON or CSV"),
        ("report", "x.tsv", "a report is text, or HTML, JSON or CSV"),
        ("report", "x.sqlite", "a report is text, or HTML, JSON or CSV"),
        ("report", "x.csv", "a CSV file has one section (--section NAME)"),
    ] {
        let path = place.path(name);
        let output = run(&place, &index, &[command, "-o", path.to_str().unwrap(), tree]);
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.replace(&format!("{}/", place.dir.path().display()), "");
        assert_eq!(output.status.code(), Some(2), "{command} {name}: {said}");
        assert!(said.contains(words), "{command} {name}: {said}");
        assert!(!path.exists(), "{command} {name}");
    }
    // Parts are of one form alone.
    let parts = place.path("parts");
    let arguments = ["export", "--parts", "2", "-o", parts.to_str().unwrap(), tree];
    assert!(run(&place, &index, &arguments).status.success());
    assert!(parts.join("part-0000.trace").exists());
}

#[test]
fn spreadsheets_compute_nothing_of_a_safe_export() {
    let (place, index, tree) = indexed(&[b"=1+1", b"-1", b"+x", b"plain"]);
    let tree = tree.to_str().unwrap();
    let names = |options: &[&str]| {
        let all: Vec<&str> =
            ["export", "--format", "csv"].iter().chain(options).chain([&tree]).copied().collect();
        let output = run(&place, &index, &all);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let names = text.lines().skip(1).map(|line| line.split(',').nth(2).unwrap().to_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    assert_eq!(names(&["--csv-safe"]), ["'+x", "'=1+1", "-1", "plain", "tree"]);
    assert_eq!(names(&[]), ["+x", "-1", "=1+1", "plain", "tree"]);
    let output = run(&place, &index, &["export", "--csv-safe", "--format", "ndjson", tree]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--csv-safe is for --format csv"));
}

/// A file of 2^63 - 1 bytes, whose last digits floating point does not have.
fn huge() -> (Fixture, SmallDisk, PathBuf, PathBuf) {
    let place = Fixture::new();
    let disk = place.small_disk("disk", "16m");
    let tree = disk.0.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::File::create(tree.join("huge")).unwrap().set_len(i64::MAX as u64).unwrap();
    fs::write(tree.join("small"), "x").unwrap();
    let index = place.path("index");
    place.index(&index, &tree);
    (place, disk, index, tree)
}

#[test]
fn numbers_that_floating_point_rounds_have_texts_beside_them_in_json() {
    let (place, _disk, index, tree) = huge();
    let tree = tree.to_str().unwrap();
    let huge = format!("{tree}/huge");
    let small = format!("{tree}/small");
    let text = "\"size_text\":\"9223372036854775807\"";
    for (arguments, path) in [
        (vec!["find", "PATH", "--ndjson"], &huge),
        (vec!["ls", "--json", "PATH"], &huge),
        (vec!["stat", "--json", "PATH"], &huge),
        (vec!["export", "--format", "ndjson", "PATH"], &huge),
    ] {
        let of = |path: &str| {
            let arguments: Vec<&str> =
                arguments.iter().map(|word| if *word == "PATH" { path } else { word }).collect();
            let output = run(&place, &index, &arguments);
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap().replace("\": ", "\":")
        };
        let shown = of(path);
        assert!(shown.contains(text), "{shown}");
        assert!(shown.contains("\"size\":9223372036854775807"), "{shown}");
        assert!(!of(&small).contains("_text"), "{arguments:?}");
    }
    let du = run(&place, &index, &["du", "-b", "--json", &huge]);
    let du = String::from_utf8(du.stdout).unwrap();
    assert!(du.contains("\"bytes_text\":\"9223372036854775807\""), "{du}");
    for arguments in [
        vec!["info", "--json"],
        vec!["source", "list", "--json"],
        vec!["report", "--json", "--section", "totals", tree],
    ] {
        let output = run(&place, &index, &arguments);
        let shown = String::from_utf8(output.stdout).unwrap();
        let document: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let mut pairs = Vec::new();
        times(&document, &mut pairs);
        assert!(!pairs.is_empty(), "{arguments:?} {shown}");
        for (nanoseconds, time) in pairs {
            let expected = chrono::DateTime::from_timestamp_nanos(nanoseconds);
            let read = chrono::DateTime::parse_from_rfc3339(&time).unwrap();
            assert_eq!(read, expected, "{arguments:?}");
        }
    }
}

/// All times of a document, with the texts beside them.
fn times(document: &serde_json::Value, found: &mut Vec<(i64, String)>) {
    match document {
        serde_json::Value::Array(values) => values.iter().for_each(|value| times(value, found)),
        serde_json::Value::Object(members) => {
            for (name, value) in members {
                if let (Some(beside), Some(number)) = (name.strip_suffix("_ns"), value.as_i64()) {
                    let text = members[beside].as_str().unwrap_or_else(|| panic!("{name}"));
                    found.push((number, text.to_owned()));
                }
                times(value, found);
            }
        }
        _ => {}
    }
}

#[test]
fn no_command_shows_a_terminal_control_characters_of_eight_bits() {
    // A byte alone, the character U+009B, and one whose second byte in UTF-8 is 0x9b.
    let names = [&b"a\x9b2Jz"[..], "b\u{9b}2Jz".as_bytes(), "c\u{11b}2Jz".as_bytes()];
    let (place, index, tree) = indexed(&names);
    fs::write(tree.join("later\u{11b}"), "y").unwrap();
    place.index(&index, &tree);
    let tree = tree.display();
    let canopy = format!("{} --index {}", place.canopy.display(), index.display());
    for arguments in [
        format!("find {tree}"),
        format!("find {tree} -ls"),
        format!("find {tree} -printf '%f %p\\n'"),
        format!("find {tree} --json"),
        format!("find {tree} --live"),
        format!("find {tree}/missing$(printf '\\304\\233')"),
        format!("du -a {tree}"),
        format!("du -a --json {tree}"),
        format!("ls {tree}"),
        format!("ls -l {tree}"),
        format!("ls --json {tree}"),
        format!("stat {tree}/*"),
        format!("stat -c '%n %N' {tree}/*"),
        format!("stat --json {tree}/*"),
        "locate 2J".to_owned(),
        format!("report {tree}"),
        format!("report --json {tree}"),
        format!("report --csv --section largest {tree}"),
        format!("report --html {tree}"),
        format!("top largest {tree}"),
        format!("export --format csv {tree}"),
        format!("export --format ndjson {tree}"),
        format!("export --format ncdu {tree}"),
        "diff 1 2".to_owned(),
        "diff --json 1 2".to_owned(),
        format!("history {tree}"),
        "info".to_owned(),
        "source list".to_owned(),
    ] {
        for locale in ["C", "C.UTF-8"] {
            let line = format!("{canopy} {arguments}");
            let output = Command::new("script")
                .args(["-qec", &line, "/dev/null"])
                .env("LC_ALL", locale)
                .output()
                .unwrap();
            let shown = output.stdout;
            assert!(!shown.is_empty(), "{locale} {arguments}");
            let is_bad = match locale {
                "C" => shown.iter().any(|byte| matches!(byte, 0x80..=0x9f)),
                _ => match std::str::from_utf8(&shown) {
                    Ok(text) => text.contains(|c| ('\u{80}'..'\u{a0}').contains(&c)),
                    Err(_) => true,
                },
            };
            assert!(!is_bad, "{locale} {arguments}: {:?}", String::from_utf8_lossy(&shown));
        }
    }
}
