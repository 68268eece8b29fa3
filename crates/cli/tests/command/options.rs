//! Every option of every command is named in a test of that command; and what all commands have
//! alike. Needs root.

use crate::common;

use common::Fixture;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An option, by its letter, its name or both.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Known {
    /// The words of the command, such as `table add`; none for what stands before all commands.
    pub command: Vec<String>,
    pub letter: Option<char>,
    pub name: Option<String>,
}

/// All options, from the script for fish, which has each of them on a line of its own.
pub fn known_options() -> BTreeSet<Known> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_canopy")).args(["completions", "fish"]).output().unwrap();
    let script = String::from_utf8(output.stdout).unwrap();
    let lines = script.lines().filter_map(|line| line.strip_prefix("complete -c canopy -n \""));
    lines.filter_map(known_option).collect()
}

fn known_option(line: &str) -> Option<Known> {
    let (condition, rest) = line.split_once('"')?;
    let definition = rest.split(" -d '").next()?;
    let after = |flag: &str, text: &str| -> Option<String> {
        text.split_once(flag)
            .map(|(_, rest)| rest.split([' ', ';']).next().unwrap_or_default().to_owned())
    };
    let mut command = Vec::from_iter(after("using_subcommand ", condition));
    if !condition.contains("not ") {
        command.extend(after("seen_subcommand_from ", condition));
    }
    let letter = after(" -s ", definition).and_then(|letter| letter.chars().next());
    let name = after(" -l ", definition);
    (letter.is_some() || name.is_some()).then_some(Known { command, letter, name })
}

/// The sources of all tests of the command.
fn sources(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

/// The words of a source: options as they are typed, and names of commands.
fn words(source: &str) -> BTreeSet<&str> {
    source.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).collect()
}

/// Whether a word gives an option, alone or among other letters.
fn gives(word: &str, option: &Known) -> bool {
    if let Some(name) = word.strip_prefix("--") {
        return option.name.as_deref() == Some(name);
    }
    let letters = word.strip_prefix('-');
    letters.is_some_and(|letters| option.letter.is_some_and(|letter| letters.contains(letter)))
}

#[test]
fn every_option_is_named_in_a_test_of_its_command() {
    let options = known_options();
    let counts =
        options.iter().fold(BTreeMap::new(), |mut counts: BTreeMap<String, usize>, option| {
            *counts.entry(option.command.join(" ")).or_default() += 1;
            counts
        });
    // The script is understood: each command has its options.
    for (command, least) in
        [("ls", 40), ("du", 30), ("index", 9), ("table add", 2), ("table refresh", 2)]
    {
        assert!(counts.get(command).is_some_and(|&count| count >= least), "{command}: {counts:?}");
    }
    let mut found = Vec::new();
    for tests in [
        "tests",
        "../cli-sql/tests",
        "../cli-store/tests",
        "../cli-namespace/tests",
        "../cli-cluster/tests",
    ] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(tests), &mut found);
    }
    let sources: Vec<BTreeSet<&str>> = found.iter().map(|source| words(source)).collect();
    let named = |option: &&Known| {
        // That of each command is asked for below.
        if option.name.as_deref() == Some("version") {
            return true;
        }
        let mut tests = sources
            .iter()
            .filter(|words| option.command.iter().all(|command| words.contains(command.as_str())));
        tests.any(|words| words.iter().any(|word| gives(word, option)))
    };
    let missing: Vec<&Known> = options.iter().filter(|option| !named(option)).collect();
    assert!(missing.is_empty(), "no test names {missing:#?}");
}

/// A place with an index, and the directory that it is of.
fn indexed() -> (Fixture, PathBuf, PathBuf) {
    let place = Fixture::new();
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    (0..50).for_each(|number| fs::write(tree.join(format!("sub/file{number}")), "x").unwrap());
    let index = place.path("index");
    place.index(&index, &tree);
    (place, index, tree)
}

/// Commands that read an index, with what they need; '+' stands for a blank in a word.
const READERS: [&str; 14] = [
    "find",
    "du",
    "ls",
    "stat .",
    "sql --format=csv --gufi SELECT+1+AS+a",
    "export --format=csv",
    "export --format=ndjson",
    "export --format=parquet",
    "export --format=arrow",
    "export --format=ncdu .",
    "export --format=gufi-trace",
    "report",
    "top largest",
    "info",
];

fn run(place: &Fixture, index: &Path, tree: &Path, line: &str, more: &[&str]) -> Output {
    let words: Vec<String> = line.split(' ').map(|word| word.replace('+', " ")).collect();
    let mut words = words.iter();
    let mut command = Command::new(&place.canopy);
    command.args(words.next()).args(more).arg("--index").arg(index).args(words);
    command.current_dir(tree).output().unwrap()
}

#[test]
fn readers_take_threads_and_say_what_answers() {
    let (place, index, tree) = indexed();
    for line in READERS {
        let plain = run(&place, &index, &tree, line, &[]);
        let told = run(&place, &index, &tree, line, &["--verbose", "--threads", "2"]);
        assert!(plain.status.success() && plain.stderr.is_empty(), "{line}: {plain:?}");
        let said = String::from_utf8(told.stderr).unwrap();
        assert!(
            said.contains("answers from generation 1, published ") && said.lines().count() == 2,
            "{said}"
        );
        // Reports and 'info' tell how long ago it was; archives have the time in them.
        if !["report", "info", "export"].contains(&line.split(' ').next().unwrap()) {
            // The threads of find write as they find.
            let lines = |output: &[u8]| match line.starts_with("find") {
                true => common::sorted(output, b'\n'),
                false => vec![String::from_utf8_lossy(output).into_owned()],
            };
            assert_eq!(lines(&plain.stdout), lines(&told.stdout), "{line}");
        }
        let wrong = run(&place, &index, &tree, line, &["--threads", "many"]);
        assert_eq!(wrong.status.code(), Some(2), "{line}");
        assert!(wrong.stdout.is_empty() && !wrong.stderr.is_empty(), "{line}");
    }
    let info = run(&place, &index, &tree, "info --json", &[]).stdout;
    let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
    assert_eq!(info["generation"], 1);
    let found = run(&place, &index, &tree, "find --count", &[]).stdout;
    assert_eq!(info["visible_entries"].to_string(), String::from_utf8_lossy(&found).trim_end());
    assert_eq!(info["sources"][0]["root"], tree.to_str().unwrap());
}

#[test]
fn every_command_explains_itself() {
    let commands: BTreeSet<Vec<String>> =
        known_options().into_iter().map(|option| option.command).collect();
    assert!(commands.len() > 18, "{commands:?}");
    for command in commands {
        let shown = |words: &[String], option: &str| {
            Command::new(env!("CARGO_BIN_EXE_canopy")).args(words).arg(option).output().unwrap()
        };
        let help = shown(&command, "--help");
        let text = String::from_utf8(help.stdout).unwrap();
        assert!(help.status.success() && text.contains("Usage: canopy"), "{command:?}");
        let version = String::from_utf8(shown(&command, "--version").stdout).unwrap();
        assert!(version.ends_with(&format!(" {}\n", env!("CARGO_PKG_VERSION"))), "{command:?}");
        let wrong = shown(&command, "--no-such-option");
        // GNU's tools end so, too.
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let code = if matches!(words[..], [.., "find"] | ["du" | "stat"]) { 1 } else { 2 };
        assert_eq!(wrong.status.code(), Some(code), "{command:?}");
        assert!(wrong.stdout.is_empty() && !wrong.stderr.is_empty(), "{command:?}");
    }
    let short = Command::new(env!("CARGO_BIN_EXE_canopy")).arg("-h").output().unwrap();
    let version = Command::new(env!("CARGO_BIN_EXE_canopy")).arg("--version").output().unwrap();
    assert!(short.status.success());
    assert_eq!(version.stdout, format!("canopy {}\n", env!("CARGO_PKG_VERSION")).as_bytes());
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let (place, index, tree) = indexed();
    let table = place.path("site.csv");
    fs::write(&table, "a,b\n1,2\n").unwrap();
    let changes = [
        format!("table add site {}", table.display()),
        "table derive --threads 2 names SELECT+name+FROM+entries".to_owned(),
        "table refresh --threads 2 names".to_owned(),
        "table list".to_owned(),
        "table drop names".to_owned(),
        format!("index {}", tree.display()),
    ];
    let readers = READERS.map(str::to_owned);
    let formats = ["table", "json", "ndjson", "parquet"]
        .map(|form| format!("sql --format={form} SELECT+1+AS+a"));
    let others = ["help", "help config", "completions bash", "man", "find --json", "du --json -a"];
    let lines = readers.into_iter().chain(formats).chain(changes).chain(others.map(str::to_owned));
    for line in lines {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let words: Vec<OsString> =
            line.split(' ').map(|word| word.replace('+', " ").into()).collect();
        let ended = Command::new(&place.canopy)
            .args(&words)
            .env("CANOPY_INDEX", &index)
            .current_dir(&tree)
            .stdout(writer)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        let progress = line.starts_with("index") || said.is_empty();
        assert!(ended.status.success() && progress && !said.contains("panicked"), "{line}: {said}");
    }
    // Nor is it if nobody hears what goes wrong.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut missing = Command::new(&place.canopy);
    missing.args(["ls", "missing"]).env("CANOPY_INDEX", &index).current_dir(&tree).stderr(writer);
    assert_eq!(missing.status().unwrap().code(), Some(2));
}
