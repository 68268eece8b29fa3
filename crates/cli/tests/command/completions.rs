//! Completions in the shells themselves: bash, zsh on a terminal, fish. Those that are
//! missing are left out, unless `CANOPY_REQUIRE=1`.

use crate::common;

use common::Fixture;
use common::requirements::has;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn script(shell: &str) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_canopy")).args(["completions", shell]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn lines(command: &mut Command) -> BTreeSet<String> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Has bash say what it would offer.
fn bash(file: &Path, words: &[&str]) -> Command {
    let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let line = format!(
        "set -eu; source {}; set +u; COMP_WORDS=({}); COMP_CWORD={}; \
         _canopy canopy \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; printf '%s\\n' \
         \"${{COMPREPLY[@]}}\"",
        file.display(),
        words.join(" "),
        words.len() - 1
    );
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", &line]);
    command
}

/// Operands behind some words of find.
const NEWER: [&str; 4] = ["-newer", "-newerat", "-newerct", "-newermt"];
const TYPES: [&str; 7] = ["b", "c", "d", "f", "l", "p", "s"];

/// The words of find's language, as its help has them.
fn words_of_find() -> BTreeSet<String> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_canopy")).args(["find", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let (_, rest) = help.split_once("Tests: ").unwrap();
    let (language, _) = rest.split_once("Besides").unwrap();
    let words = language.split_whitespace().filter(|word| word.starts_with('-'));
    let words: BTreeSet<String> =
        words.map(|word| word.trim_end_matches([';', '.', ':', ',']).to_owned()).collect();
    assert!(words.len() > 60, "{words:?}");
    words.into_iter().filter(|word| word != "-newerXY").collect()
}

/// An index with a source and a table, and the programs where shells find them.
struct Indexed {
    place: Fixture,
}

impl Indexed {
    fn new() -> Self {
        let place = Fixture::new();
        fs::create_dir(place.path("tree")).unwrap();
        let index = place.path("index");
        place.index(&index, &place.path("tree"));
        let words = ["table", "derive", "large", "SELECT path FROM entries WHERE size > 9"];
        let made = place.canopy(&index, &words.map(OsStr::new));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Indexed { place }
    }

    fn source(&self) -> String {
        self.place.path("tree").to_str().unwrap().to_owned()
    }

    /// Gives a shell the index, and the command by its name.
    fn known_to<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let programs = self.place.canopy.parent().unwrap().to_owned();
        let others = std::env::var_os("PATH").unwrap();
        let paths = std::iter::once(programs).chain(std::env::split_paths(&others));
        command.env("PATH", std::env::join_paths(paths).unwrap());
        command.env("CANOPY_INDEX", self.place.path("index"))
    }

    /// The completions of bash.
    fn offered(&self, words: &[&str]) -> BTreeSet<String> {
        let file = self.place.path("bash");
        fs::write(&file, script("bash")).unwrap();
        lines(self.known_to(&mut bash(&file, words)))
    }
}

#[test]
fn bash_completes_commands_options_and_values() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("canopy");
    fs::write(&file, script("bash")).unwrap();
    let offered = |words: &[&str]| lines(&mut bash(&file, words));
    let all = offered(&["canopy", ""]);
    assert!(
        all.is_superset(&set(&["index", "find", "du", "ls", "stat", "sql", "table", "help"])),
        "{all:?}"
    );
    assert_eq!(offered(&["canopy", "inde"]), set(&["index"]));
    assert_eq!(offered(&["canopy", "index", "--no-"]), set(&["--no-prune", "--no-xattrs"]));
    assert_eq!(offered(&["canopy", "table", "dr"]), set(&["drop"]));
    assert_eq!(offered(&["canopy", "sql", "--format", "n"]), set(&["ndjson"]));
    assert_eq!(offered(&["canopy", "du", "--by", "e"]), set(&["extension"]));
    assert_eq!(offered(&["canopy", "ls", "--sort", "v"]), set(&["version"]));
    assert_eq!(offered(&["canopy", "report", "--section", "ow"]), set(&["owners"]));
    assert_eq!(offered(&["canopy", "top", "lar"]), set(&["largest"]));
    assert_eq!(offered(&["canopy", "help", "config"]), set(&["config"]));
    let find = offered(&["canopy", "find", "tree", "-"]);
    assert!(words_of_find().is_subset(&find), "{:?}", &words_of_find() - &find);
    assert_eq!(offered(&["canopy", "find", "-newe"]), set(&NEWER));
    assert_eq!(offered(&["canopy", "find", ".", "-type", ""]), set(&TYPES));
    assert_eq!(offered(&["canopy", "find", ".", "-user", "roo"]), set(&["root"]));
    assert_eq!(offered(&["canopy", "find", "--sort", "mt"]), set(&["mtime"]));
    let index = Indexed::new();
    assert_eq!(index.offered(&["canopy", "table", "drop", "lar"]), set(&["large"]));
    assert_eq!(index.offered(&["canopy", "table", "refresh", "la"]), set(&["large"]));
    assert!(index.offered(&["canopy", "source", "remove", "/"]).contains(&index.source()));
    let topics = offered(&["canopy", "help", ""]);
    assert!(all.iter().all(|word| word.starts_with('-') || topics.contains(word)), "{topics:?}");
}

#[test]
fn zsh_completes_what_is_typed() {
    if !has("zsh") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    fs::write(at.join("_canopy"), script("zsh")).unwrap();
    // The command is a function that keeps what it was given.
    let setup = format!(
        "PS1='> '\nfpath=({0} $fpath)\nautoload -Uz compinit\ncompinit -u -D\n\
         canopy() {{ print -r -- \"${{(j:|:)@}}\" >> {0}/given }}\n",
        at.display()
    );
    fs::write(at.join(".zshrc"), setup).unwrap();
    let index = Indexed::new();
    let mut child = index
        .known_to(&mut Command::new("timeout"))
        .args(["120", "script", "-qec", "zsh -d -i", "/dev/null"])
        .env("ZDOTDIR", at)
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut typed = child.stdin.take().unwrap();
    let keys = "canopy sq\t--fi\tx\ncanopy inde\t--no-pr\t/x\ncanopy ls --group-d\t\ncanopy table \
    dr\tmine\ncanopy top larg\t\ncanopy du --by ext\t\ncanopy find . -mti\t3 \
    -regextype posix-eg\t\ncanopy find --liv\t-nogr\t\ncanopy table drop la\t\ncanopy report --section own\t\ncanopy help exit\t\nexit\n";
    typed.write_all(keys.as_bytes()).unwrap();
    // The terminal stays open until the shell has ended.
    child.wait().unwrap();
    drop(typed);
    let given = fs::read_to_string(at.join("given")).unwrap();
    assert_eq!(
        given,
        "sql|--file=x\nindex|--no-prune|/x\nls|--group-directories-first\ntable|drop|mine\n\
         top|largest\ndu|--by|extension\nfind|.|-mtime|3|-regextype|posix-egrep\n\
         find|--live|-nogroup\ntable|drop|large\nreport|--section|owners\n\
         help|exit-codes\n"
    );
}

#[test]
fn fish_completes_commands_options_and_values() {
    if !has("fish") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("canopy.fish");
    fs::write(&file, script("fish")).unwrap();
    let offered = |line: &str| {
        let commands = format!("source {}; complete -C '{line}'", file.display());
        let fish = lines(fish(dir.path()).args(["-c", &commands]));
        // Behind a tabulator stands what it is.
        fish.iter()
            .filter_map(|line| line.split('\t').next().map(str::to_owned))
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(offered("canopy inde"), set(&["index"]));
    assert_eq!(offered("canopy index --no-"), set(&["--no-prune", "--no-xattrs"]));
    assert_eq!(offered("canopy table dr"), set(&["drop"]));
    assert_eq!(offered("canopy sql --format n"), set(&["ndjson"]));
    assert_eq!(offered("canopy du --by e"), set(&["extension"]));
    assert_eq!(offered("canopy report --section own"), set(&["owners"]));
    assert_eq!(offered("canopy top larg"), set(&["largest"]));
    assert_eq!(offered("canopy help exit"), set(&["exit-codes"]));
    let find = offered("canopy find . -");
    assert!(words_of_find().is_subset(&find), "{:?}", &words_of_find() - &find);
    assert_eq!(offered("canopy find -newe"), set(&NEWER));
    assert_eq!(offered("canopy find . -type "), set(&TYPES));
    assert_eq!(offered("canopy find --sort mt"), set(&["mtime"]));
    let index = Indexed::new();
    let commands = format!("source {}; complete -C 'canopy table drop lar'", file.display());
    let words = lines(index.known_to(fish(dir.path()).args(["-c", &commands])));
    assert_eq!(words, set(&["large"]));
}

/// Fish with a home of its own.
fn fish(home: &Path) -> Command {
    let mut command = Command::new("fish");
    command
        .arg("--no-config")
        .env("HOME", home)
        .env("XDG_CONFIG_HOME", home)
        .env("XDG_DATA_HOME", home);
    command
}
