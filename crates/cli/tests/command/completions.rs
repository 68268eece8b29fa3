//! Completions in the shells themselves: bash, zsh on a terminal, fish. A shell that is not
//! installed is left out and says so.

use std::collections::BTreeSet;
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

/// Whether there is such a shell.
fn is_there(shell: &str) -> bool {
    let found =
        Command::new(shell).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        eprintln!("skipped: no {shell} here");
    }
    found.is_ok()
}

fn lines(command: &mut Command) -> BTreeSet<String> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("canopy");
    fs::write(&file, script("bash")).unwrap();
    // Bash itself says what it would offer.
    let offered = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let line = format!(
            "set -eu; source {}; set +u; COMP_WORDS=({}); COMP_CWORD={}; \
             _canopy canopy \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; printf '%s\\n' \
             \"${{COMPREPLY[@]}}\"",
            file.display(),
            words.join(" "),
            words.len() - 1
        );
        lines(Command::new("bash").args(["--norc", "-c", &line]))
    };
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
    let topics = offered(&["canopy", "help", ""]);
    assert!(all.iter().all(|word| word.starts_with('-') || topics.contains(word)), "{topics:?}");
}

#[test]
fn zsh_completes_what_is_typed() {
    if !is_there("zsh") {
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
    let mut child = Command::new("timeout")
        .args(["120", "script", "-qec", "zsh -d -i", "/dev/null"])
        .env("ZDOTDIR", at)
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut typed = child.stdin.take().unwrap();
    let keys = "canopy sq\t--fi\tx\ncanopy inde\t--no-pr\t/x\ncanopy ls --group-d\t\ncanopy table \
    dr\tmine\ncanopy top larg\t\ncanopy du --by ext\t\nexit\n";
    typed.write_all(keys.as_bytes()).unwrap();
    // The terminal stays open until the shell has ended.
    child.wait().unwrap();
    drop(typed);
    let given = fs::read_to_string(at.join("given")).unwrap();
    assert_eq!(
        given,
        "sql|--file=x\nindex|--no-prune|/x\nls|--group-directories-first\ntable|drop|mine\n\
         top|largest\ndu|--by|extension\n"
    );
}

#[test]
fn fish_completes_commands_options_and_values() {
    if !is_there("fish") {
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
