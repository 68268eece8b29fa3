//! `-j`: commands that run beside each other, and how many; colours of `find` on terminals. In the
//! index and live. Needs root and script(1).

use crate::common;

use common::Fixture;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A tree of files, indexed, and what runs find in it.
struct Tree {
    place: Fixture,
}

impl Tree {
    fn new(files: usize) -> Self {
        let place = Fixture::new();
        fs::create_dir_all(place.path("tree/below")).unwrap();
        for number in 0..files {
            let directory = if number % 2 == 0 { "tree" } else { "tree/below" };
            fs::write(place.path(&format!("{directory}/f{number}")), "").unwrap();
        }
        fs::create_dir(place.path("state")).unwrap();
        place.index(&place.path("index"), &place.path("tree"));
        Tree { place }
    }

    fn find(&self, live: bool, words: &[&str]) -> Output {
        Command::new(&self.place.canopy)
            .args(["--index".as_ref(), self.place.path("index").as_os_str(), OsStr::new("find")])
            .args(live.then_some("--live"))
            .args(words)
            .current_dir(self.place.dir.path())
            .env("TERM", "xterm")
            .output()
            .unwrap()
    }

    fn state(&self) -> PathBuf {
        self.place.path("state")
    }
}

fn lines(output: &Output) -> Vec<String> {
    common::sorted(&output.stdout, b'\n')
}

/// Each command waits until there is another one.
#[test]
fn commands_run_beside_each_other() {
    for live in [false, true] {
        let tree = Tree::new(4);
        let script = "touch state/$$; for try in $(seq 1000); do \
                      test $(ls state | wc -l) -gt 1 && exit 0; sleep 0.1; done; exit 1";
        let words = ["tree", "-j", "2", "-type", "f", "-exec", "sh", "-c", script, ";", "-print"];
        let output = tree.find(live, &words);
        assert_eq!(lines(&output).len(), 4, "{output:?}");
    }
}

#[test]
fn no_more_commands_run_than_may() {
    for live in [false, true] {
        let tree = Tree::new(20);
        let script = "mkdir state/$$ && sleep 0.01 && test $(ls state | wc -l) -le 3; status=$?; \
                      rmdir state/$$; exit $status";
        let words = ["-j3", "tree", "-type", "f", "-exec", "sh", "-c", script, ";", "-print"];
        assert_eq!(lines(&tree.find(live, &words)).len(), 20);
        assert_eq!(fs::read_dir(tree.state()).unwrap().count(), 0);
    }
}

#[test]
fn the_rest_of_an_expression_waits_for_each_command() {
    let tree = Tree::new(9);
    for live in [false, true] {
        let words =
            ["tree", "-j4", "-type", "f", "-exec", "test", "{}", "-ef", "tree/f4", ";", "-print"];
        let output = tree.find(live, &words);
        assert_eq!((lines(&output), output.status.code()), (vec!["tree/f4".to_owned()], Some(0)));
        let words = ["tree", "-j4", "-type", "f", "-execdir", "echo", "{}", ";"];
        let plain = [&words[..1], &words[2..]].concat();
        assert_eq!(lines(&tree.find(live, &words)), lines(&tree.find(live, &plain)));
        // Of a batch, all get to one command, and how that ends is how find ends.
        let words =
            ["tree", "-j4", "-type", "f", "-exec", "sh", "-c", "echo $#; exit 3", "sh", "{}", "+"];
        let output = tree.find(live, &words);
        assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"9\n"[..], Some(1)));
        let words = ["tree", "-j4", "-type", "f", "-exec", "true", "{}", "+"];
        assert_eq!(tree.find(live, &words).status.code(), Some(0));
        let output = tree.find(live, &["tree", "-j4", "-name", "f1", "-exec", "not-there", ";"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("not-there") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn orders_and_ends_do_not_go_with_it() {
    let tree = Tree::new(1);
    for (words, expected) in [
        (&["-j", "0"][..], "-j needs a number from 1 to 1024"),
        (&["-j", "two"], "-j needs a number"),
        (&["-j2", "-ok", "true", ";"], "leave -j out"),
        (&["-j2", "--limit", "1", "-exec", "true", ";"], "leave one out"),
        (&["-j2", "-depth", "-exec", "true", ";"], "leave one out"),
        (&["-j2", "-exec", "true", ";", "-quit"], "leave one out"),
    ] {
        let output = tree.find(false, &[&["tree"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(expected), "{words:?}: {said}");
    }
}

#[test]
fn names_have_colours_on_terminals_alone() {
    let tree = Tree::new(2);
    fs::write(tree.place.path("tree/c.c"), "").unwrap();
    tree.place.index(&tree.place.path("index"), &tree.place.path("tree"));
    let piped = |words: &[&str]| {
        String::from_utf8(tree.find(false, &[&["tree", "-name", "c.c"], words].concat()).stdout)
            .unwrap()
    };
    assert_eq!(piped(&[]), "tree/c.c\n");
    assert_eq!(piped(&["--color=auto"]), "tree/c.c\n");
    let shown = |live: &str, words: &str, variables: &[(&str, &str)]| {
        let line = format!(
            "{} --index {} find {live} {} {words}",
            tree.place.canopy.display(),
            tree.place.path("index").display(),
            "tree -name c.c"
        );
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(tree.place.dir.path());
        command.env_remove("NO_COLOR").env("TERM", "xterm").env("LS_COLORS", "di=35:*.c=33");
        let output = command.envs(variables.iter().copied()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")
    };
    let colored = "\u{1b}[35mtree/\u{1b}[0m\u{1b}[33mc.c\u{1b}[0m\n";
    for live in ["", "--live"] {
        assert_eq!(shown(live, "", &[]), colored);
        assert_eq!(shown(live, "-print", &[]), colored);
        for (words, variables) in [
            ("--color=never", &[][..]),
            ("", &[("NO_COLOR", "1")]),
            ("", &[("TERM", "dumb")]),
            ("-printf '%p\\n'", &[]),
        ] {
            assert_eq!(shown(live, words, variables), "tree/c.c\n", "{words} {variables:?}");
        }
        assert_eq!(shown(live, "--color=always", &[("NO_COLOR", "1")]), colored);
    }
    assert!(piped(&["--color"]).contains("tree/\u{1b}[0m"));
}
