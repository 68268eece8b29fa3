//! Standard output that is closed or takes nothing: no answer is lost without an error. Needs root.

use crate::common::Fixture;
use std::fs;
use std::process::Command;

/// Commands that print something, by the words of a shell.
const COMMANDS: &[&str] = &[
    "find tree",
    "find tree -printf %p",
    "find tree -print0",
    "find tree --count",
    "find tree --sum",
    "find tree --json",
    "find tree --sort size",
    "find tree -name a -fprint /dev/stdout",
    "find --live tree",
    "find --live tree -depth -ls",
    "du tree",
    "du -s tree",
    "du --json tree",
    "du --tree tree",
    "du --by user tree",
    "ls tree",
    "ls -lR tree",
    "ls --json tree",
    "stat tree/a",
    "stat --printf %n tree/a",
    "stat --json tree/a",
    "locate a",
    "locate --json a",
    "export --format ndjson tree",
    "export --format csv tree",
    "export --format gufi-trace tree",
    "export --format ncdu tree",
    "export --format parquet tree",
    "report tree",
    "report --json tree",
    "report --html tree",
    "report --csv --section users tree",
    "top largest tree",
    "top largest --json tree",
    "info",
    "info --json",
    "info --max-age 7d",
    "check",
    "check --json",
    "source list",
    "source list --json",
    "diff 1 2 tree",
    "diff --json 1 2 tree",
    "history tree/a",
    "top growth tree",
    "sql 'SELECT * FROM entries'",
    "sql --format csv 'SELECT name FROM entries'",
    "sql --format json 'SELECT count(*) FROM entries'",
    "sql --format parquet 'SELECT name FROM entries'",
    "ns info NAMESPACE",
    "ns find NAMESPACE",
    "ns du NAMESPACE",
    "ns snapshot list NAMESPACE",
    "ns check NAMESPACE",
    "store list NAMESPACE",
    "completions bash",
    "man",
    "help",
    "help config",
    "--help",
    "--version",
    "du --help",
    "index tree",
    "index --dry-run tree",
    "index --json tree",
    "update tree/sub",
];

struct Output {
    place: Fixture,
}

impl Output {
    fn new() -> Self {
        let place = Fixture::new();
        fs::create_dir_all(place.path("tree/sub")).unwrap();
        fs::write(place.path("tree/a"), "x").unwrap();
        fs::write(place.path("tree/sub/b"), "y").unwrap();
        let output = Output { place };
        output.succeed("canopy index --quiet --keep 3 tree");
        fs::write(output.place.path("tree/new"), "more").unwrap();
        output.succeed("canopy index --quiet tree");
        output.succeed("canopy ns create namespace && canopy ns import tree namespace && canopy ns snapshot create namespace s");
        output
    }

    fn run(&self, line: &str) -> (Option<i32>, String) {
        let path =
            format!("{}:{}", self.place.dir.path().display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(self.place.dir.path()).env("PATH", path);
        shell.env("CANOPY_INDEX", self.place.path("index")).env("LC_ALL", "C.UTF-8");
        let output = shell.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn succeed(&self, line: &str) {
        let (code, said) = self.run(line);
        assert_eq!(code, Some(0), "{line}: {said}");
    }
}

/// The bug: `canopy find D >&-` exited 0 and lost the answer.
#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    let output = Output::new();
    for words in COMMANDS {
        let words = words.replace("NAMESPACE", "namespace");
        let whole = format!("canopy {words}");
        output.succeed(&format!("{whole} >/dev/null"));
        for (to, why) in [(">&-", "standard output is closed"), (">/dev/full", "No space left")] {
            let line = format!("{whole} {to}");
            let (code, said) = output.run(&line);
            assert!(matches!(code, Some(1 | 2)), "{line}: {code:?} {said}");
            assert_eq!(said.matches(why).count(), 1, "{line}: {said}");
            assert_eq!(said.lines().count(), 1, "{line}: {said}");
        }
        // A reader that stops early is not an error.
        let (code, said) =
            output.run(&format!("({whole}; echo $? >code) | true; exit $(cat code)"));
        assert_eq!((code, said.as_str()), (Some(0), ""), "{whole}");
    }
    // No answer went into a file of the index.
    output.succeed("test \"$(canopy find tree | wc -l)\" = 5 && canopy find tree --count");
}

/// The bug: commands whose answer is all that they do ended as if their work was done.
#[test]
fn an_answer_that_is_lost_is_a_failure() {
    let output = Output::new();
    for words in ["info", "info --max-age 7d", "check", "check --json", "check --repair"] {
        for (to, why) in [(">&-", "standard output is closed"), (">/dev/full", "No space left")] {
            let (code, said) = output.run(&format!("canopy {words} {to}"));
            assert_eq!(code, Some(2), "{words}: {said}");
            assert!(said.contains(why) && !said.contains("work is done"), "{words}: {said}");
        }
    }
}

#[test]
fn commands_of_find_get_the_closed_output_that_find_has() {
    let output = Output::new();
    for live in ["", "--live"] {
        let line = format!("canopy find {live} tree -name a -exec sh -c 'echo x' ';' >&-");
        let (code, said) = output.run(&line);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("Bad file descriptor") || said.contains("I/O error"), "{said}");
    }
}

/// A closed standard input is not an empty list.
#[test]
fn an_input_that_is_closed_is_an_error() {
    let output = Output::new();
    for words in ["find -files0-from -", "du --files0-from=-", "find --live -files0-from -"] {
        let (code, said) = output.run(&format!("canopy {words} <&-"));
        assert_eq!((code, said.lines().count()), (Some(1), 1), "{words}: {said}");
        let (code, said) = output.run(&format!("canopy {words} </dev/null"));
        assert_eq!((code, said.as_str()), (Some(0), ""), "{words}");
    }
}

#[test]
fn files_that_find_writes_must_take_what_is_written() {
    let output = Output::new();
    for live in ["", "--live"] {
        let line = format!("canopy find {live} tree -fprint /dev/full");
        let (code, said) = output.run(&line);
        assert_eq!(code, Some(2), "{said}");
        assert_eq!(said, "canopy: cannot write the answer: No space left on device\n");
    }
}
