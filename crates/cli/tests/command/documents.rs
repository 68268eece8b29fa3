//! Checks the documents. Options that `docs/coming-from-gufi.md` and `docs/users.md` name beside a
//! command are options of it, and tests of find are found. Each row of `docs/differences.md` has
//! its test. README links to existing files and shows commands that exist.

use crate::common::Fixture;
use crate::options::{Known, known_options};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const DOCUMENT: &str = include_str!("../../../../docs/coming-from-gufi.md");
const DIFFERENCES: &str = include_str!("../../../../docs/differences.md");
const README: &str = include_str!("../../../../README.md");
const USERS: &str = include_str!("../../../../docs/users.md");

/// The rows of the table of programs, as what GUFI has and what is here.
fn programs() -> Vec<(String, String)> {
    let (_, rest) = DOCUMENT.split_once("\n## Programs\n").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = rows.map(|row| row.replace("\\|", "/"));
    let rows = rows.filter_map(|row| {
        let (theirs, ours) = row.split_once(" | ")?;
        Some((theirs.to_owned(), ours.to_owned()))
    });
    rows.collect()
}

/// The options between backquotes, but for those of GUFI that are said to be others here.
fn options(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split('`').collect();
    let is_ours = |at: &usize| !parts.get(at + 1).is_some_and(|rest| rest.starts_with(" is "));
    let code = (1..parts.len()).step_by(2).filter(is_ours).map(|at| parts[at]);
    let words = code.flat_map(str::split_whitespace);
    let words = words.map(|word| word.trim_start_matches('[').trim_end_matches([']', ',']));
    let words = words.filter(|word| word.len() > 1 && word.starts_with('-'));
    words.map(|word| word.split('=').next().unwrap().to_owned()).collect()
}

fn is_option(known: &BTreeSet<Known>, command: &str, option: &str) -> bool {
    known.iter().filter(|one| one.command == [command]).any(|one| match option.strip_prefix("--") {
        Some(name) => one.name.as_deref() == Some(name),
        None => option[1..].chars().eq(one.letter),
    })
}

#[test]
fn options_beside_a_command_are_options_of_it() {
    let known = known_options();
    let mut checked = BTreeSet::new();
    for (_, ours) in programs() {
        // All that follows a command, up to the next one.
        for part in ours.split("`canopy ").skip(1) {
            // Sentences behind it are about what there is no counterpart of.
            let part = part.split(". `").next().unwrap();
            let text = format!("`{part}");
            let command = part.split([' ', '`']).next().unwrap();
            if matches!(command, "find" | "sql") {
                continue;
            }
            for option in options(&text) {
                assert!(is_option(&known, command, &option), "canopy {command} {option}: {ours}");
                checked.insert((command.to_owned(), option));
            }
        }
    }
    for (command, option) in [("ls", "-B"), ("du", "-S"), ("stat", "-c"), ("import", "--root")] {
        assert!(checked.contains(&(command.to_owned(), option.to_owned())), "{checked:?}");
    }
}

#[test]
fn users_are_told_of_all_options() {
    let known = known_options();
    for (heading, commands) in [("du", &["du"][..]), ("ls and stat", &["ls", "stat"])] {
        let (_, rest) = USERS.split_once(&format!("\n## {heading}\n")).unwrap();
        let section = rest.split("\n## ").next().unwrap();
        // Examples stand between three backquotes.
        let text: String = section.split("```").step_by(2).collect();
        let named = options(&text);
        for option in &named {
            let found = commands.iter().any(|command| is_option(&known, command, option));
            assert!(found, "{heading} {option}");
        }
        // Those of one letter; what has no letter may be another name of such a one.
        for option in known.iter().filter(|option| option.command == [commands[0]]) {
            // -Z is refused by its name.
            let letter = option.letter.filter(|letter| !matches!(letter, 'V' | 'Z'));
            let letter = letter.map(|letter| format!("-{letter}"));
            let is_named = letter.is_none_or(|letter| named.contains(&letter));
            assert!(is_named, "{heading}: {option:?}");
        }
    }
}

#[test]
fn tests_of_find_that_are_named_are_found() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a.h5"), "x").unwrap();
    place.index(&index, &tree);
    let find = |words: &[&str]| {
        let mut command = Command::new(&place.canopy);
        command.args(["--index", index.to_str().unwrap(), "find"]).args(words);
        let output = command.current_dir(&tree).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (theirs, _) = programs().into_iter().find(|(row, _)| row.contains("-lname")).unwrap();
    let named = options(&theirs);
    assert!(named.len() > 6, "{named:?}");
    for test in named {
        let (words, expected): (&[&str], _) = match test.as_str() {
            "-lname" => (&["-lname", "*"], ""),
            "-samefile" => (&["-samefile", "a.h5"], "./a.h5\n"),
            "-iregex" => (&["-iregex", ".*/A[.]h5"], "./a.h5\n"),
            "-fprint" => (&["-type", "f", "-fprint", "out"], ""),
            access => {
                (&["-type", "f", access], if access == "-executable" { "" } else { "./a.h5\n" })
            }
        };
        assert_eq!(find(words), expected, "{test}");
    }
    assert_eq!(fs::read_to_string(tree.join("out")).unwrap(), "./a.h5\n");
    let sorted = find(&[".", "-type", "f", "--sort", "size", "--reverse", "--limit", "1"]);
    assert_eq!(sorted, "./a.h5\n");
}

#[test]
fn readme_links_to_what_is_there_and_shows_what_commands_print() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let links = README.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
    let links: Vec<&str> = links.filter(|link| !link.contains("://")).collect();
    assert!(links.iter().filter(|link| link.starts_with("docs/pictures/")).count() >= 2);
    for link in links {
        assert!(root.join(link).exists(), "{link}");
    }
    // The blocks that scripts/pictures fills.
    let known = known_options();
    let blocks = README.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut commands = 0;
    for block in blocks {
        assert!(block.starts_with("$ "), "{block}");
        assert!(block.lines().any(|line| !line.starts_with("$ ")), "nothing printed: {block}");
        let lines = block.lines().filter_map(|line| line.strip_prefix("$ "));
        for (_, words) in lines.filter_map(|line| line.split_once("canopy ")) {
            let command = words.split(' ').next().unwrap();
            assert!(
                known.iter().any(|one| one.command.first().is_some_and(|first| first == command)),
                "{words}"
            );
            commands += 1;
        }
    }
    assert!(commands > 20, "{commands}");
}

#[test]
fn each_difference_names_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut source = String::new();
    read_sources(&root.join("crates"), &mut source);
    let sections: Vec<&str> = DIFFERENCES.split("\n## ").skip(1).collect();
    let names = sections.iter().map(|section| section.lines().next().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["du, ls and stat", "du", "ls", "stat", "find"]);
    for section in sections {
        assert!(!section.contains("\n- "), "a difference without a test: {section}");
        let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).collect();
        assert!(rows.len() > 6, "{rows:?}");
        assert_eq!(rows[0], "| subject | difference | reason | test |");
        for row in &rows[2..] {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let [_, _, _, test] = cells[..] else { panic!("not four cells: {row}") };
            let name = test.trim_matches('`');
            assert!(source.contains(&format!("fn {name}(")), "no test of that name: {row}");
        }
    }
}

/// Adds the text of all files of Rust below a directory.
fn read_sources(directory: &Path, text: &mut String) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}
