//! find's language against find(1), on random trees and the same command lines; SQL against find.
//! Needs root.

use crate::common;

use common::expressions::LANGUAGE;
use common::length::rounds;
use common::{Fixture, assert_same, random_tree, seeded, sorted};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

fn words(line: &str, reference: &Path) -> Vec<String> {
    let reference = reference.to_str().unwrap();
    line.split_whitespace()
        .map(|word| if word == "REF" { reference.to_owned() } else { word.to_owned() })
        .collect()
}

#[test]
fn expressions_mean_what_they_mean_to_find() {
    let place = Fixture::new();
    let reference = place.path("reference");
    std::fs::write(&reference, "").unwrap();
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(86_400 * 400);
    std::fs::File::open(&reference).unwrap().set_modified(past).unwrap();
    for seed in 1000..1000 + rounds(5, 12) {
        let (tree, index) =
            (place.path(&format!("tree{seed}")), place.path(&format!("index{seed}")));
        random_tree(&tree, &mut seeded(seed), true);
        place.index(&index, &tree);
        for line in LANGUAGE {
            // From the path itself, with a slash at its end, and from within.
            let slash = format!("{}/", tree.display());
            for (directory, start) in
                [(Path::new("/"), tree.to_str().unwrap()), (Path::new("/"), &slash), (&*tree, ".")]
            {
                let words = words(line, &reference);
                let run = |program: &OsStr, first: &[&OsStr]| {
                    let mut command = Command::new(program);
                    command.args(first).arg(start).args(&words).current_dir(directory);
                    command.env("TZ", "UTC").env("LC_ALL", "C.UTF-8").output().unwrap()
                };
                let expected = run("find".as_ref(), &[]);
                let index_option = ["--index".as_ref(), index.as_os_str(), "find".as_ref()];
                let shown = run(place.canopy.as_os_str(), &index_option);
                let errors = String::from_utf8_lossy(&shown.stderr);
                assert_eq!(shown.status.code(), expected.status.code(), "{line}: {errors}");
                // Without ends of lines, what one action prints may stand before or behind what
                // another does.
                let what = format!("seed {seed} find {start} {line}");
                // -ls widens its columns as it goes; the words are the same.
                let squeeze = |output: &[u8]| {
                    let lines = sorted(output, b'\n').into_iter();
                    let mut lines: Vec<String> = lines
                        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                        .collect();
                    lines.sort();
                    lines
                };
                if *line == "-print -printf %y" {
                    assert_eq!(shown.stdout.len(), expected.stdout.len(), "{what}");
                } else if *line == "-ls" {
                    assert_same(&squeeze(&shown.stdout), &squeeze(&expected.stdout), &what);
                } else {
                    assert_same(
                        &sorted(&shown.stdout, b'\n'),
                        &sorted(&expected.stdout, b'\n'),
                        &what,
                    );
                }
            }
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one course of steps")]
fn sql_agrees_with_find_and_du_whatever_the_threads() {
    let place = Fixture::new();
    for seed in 2000..2000 + rounds(3, 6) {
        let (tree, index) =
            (place.path(&format!("tree{seed}")), place.path(&format!("index{seed}")));
        random_tree(&tree, &mut seeded(seed), true);
        place.index(&index, &tree);
        let sql = |query: &str, threads: &str| -> Vec<String> {
            let arguments = ["sql", "--threads", threads, "--format", "csv", query].map(OsStr::new);
            let output = place.canopy(&index, &arguments);
            assert!(
                output.status.success(),
                "{query}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            let text = String::from_utf8(output.stdout).unwrap();
            text.lines().skip(1).map(str::to_owned).collect()
        };
        let find = |arguments: &[&str]| -> Vec<String> {
            let output = Command::new("find").arg(&tree).args(arguments).output().unwrap();
            String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
        };
        for threads in ["1", "4"] {
            let count = |query: &str| sql(query, threads)[0].clone();
            let inodes = |arguments: &[&str]| {
                let mut all = arguments.to_vec();
                all.extend(["-printf", "%i\\n"]);
                find(&all).len().to_string()
            };
            assert_eq!(count("SELECT count(*) FROM entries"), inodes(&["!", "-type", "d"]));
            assert_eq!(count("SELECT count(path) FROM directories"), inodes(&["-type", "d"]));
            assert_eq!(
                count("SELECT count(*) FROM entries WHERE size > 5000"),
                inodes(&["!", "-type", "d", "-size", "+5000c"])
            );
            assert_eq!(
                count("SELECT count(*) FROM entries WHERE type = 'f' AND uid = 2001"),
                inodes(&["-type", "f", "-uid", "2001"])
            );
            let old = "SELECT count(*) FROM directories WHERE mtime < now() - INTERVAL '100 days'";
            assert_eq!(count(old), inodes(&["-type", "d", "-mmin", "+144000"]));
            let below =
                format!("SELECT count(*) FROM entries WHERE path LIKE '{}/%'", tree.display());
            assert_eq!(count(&below), inodes(&["!", "-type", "d"]));
            assert_eq!(count("SELECT count(*) FROM entries WHERE path LIKE '/no/such/%'"), "0");
            let sizes: i64 = find(&["!", "-type", "d", "-printf", "%s\\n"])
                .iter()
                .map(|s| s.parse::<i64>().unwrap())
                .sum();
            assert_eq!(count("SELECT coalesce(sum(size), 0) FROM entries"), sizes.to_string());
            assert_eq!(count("SELECT coalesce(sum(size), 0) FROM usage"), sizes.to_string());
            assert_eq!(count("SELECT coalesce(sum(size), 0) FROM summaries"), sizes.to_string());
            // Totals of every directory are those of a du of that directory.
            let mut compared = 0;
            for line in sql(
                "SELECT path, blocks, entries + subdirs + 1 FROM trees WHERE path NOT LIKE '%\"%' \
                 AND depth < 3",
                threads,
            ) {
                let fields: Vec<&str> = line.rsplitn(3, ',').collect();
                let [_, _, path] = fields[..] else { continue };
                let path = Path::new(path);
                if !path.is_dir() {
                    // A name with a line's end, or that is not UTF-8.
                    continue;
                }
                let du = |option: &str| -> String {
                    let output =
                        Command::new("du").args(["-s", option]).arg(path).output().unwrap();
                    String::from_utf8_lossy(&output.stdout).split('\t').next().unwrap().to_owned()
                };
                assert_eq!(
                    (fields[1].parse::<i64>().unwrap() * 512).to_string(),
                    du("-B1"),
                    "seed {seed} {path:?}"
                );
                assert_eq!(fields[0], du("--inodes"), "seed {seed} {path:?}");
                compared += 1;
            }
            assert!(compared > 0, "seed {seed}: no directory was compared");
        }
    }
}

/// Reading the root's extended attributes once moved the command's working directory into the first
/// tree.
#[test]
fn relative_trees_are_indexed_one_after_the_other() {
    let place = Fixture::new();
    for name in ["first", "second"] {
        std::fs::create_dir(place.path(name)).unwrap();
        std::fs::write(place.path(name).join("file"), "x").unwrap();
    }
    let output = std::process::Command::new(&place.canopy)
        .args(["--index", "index", "index", "first", "second"])
        .current_dir(place.dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The birth of what lies below the start once was 1970: another column had been read.
#[test]
fn births_are_read_below_the_start() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), "x").unwrap();
    place.index(&index, &tree);
    let arguments = ["-type", "f", "-printf", "%Bs\n"].map(OsStr::new);
    let words: Vec<&OsStr> =
        [OsStr::new("find"), tree.as_os_str()].into_iter().chain(arguments).collect();
    let printed = place.canopy(&index, &words);
    let birth = Command::new("stat").args(["-c", "%W"]).arg(tree.join("file")).output().unwrap();
    assert_eq!(printed.stdout, birth.stdout);
}
