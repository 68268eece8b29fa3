//! Names that hold ends of lines and control characters, in messages: whoever reads them, a person
//! at a terminal, a log or a mail of cron, must not take a piece of a name for a message. Needs
//! root.

use super::limits::chain;
use crate::common::{Fixture, User};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A line that somebody would like to forge in a log.
const FORGED: &str = "canopy: FORGED";

/// Behind each of these, it is at the beginning of a line, or of one on some terminal or in some
/// reader of logs.
const BREAKS: [&str; 8] =
    ["\n", "\r", "\u{85}", "\u{2028}", "\u{2029}", "\u{1b}[2K\u{1b}[G", "\u{9b}2K", "\t\u{b}"];

fn hostile() -> impl Iterator<Item = String> {
    BREAKS.iter().map(|end| format!("x{end}{FORGED}"))
}

/// Asserts that each line of what a command says is one of its own, with nothing that commands a
/// terminal.
fn assert_own(output: &Output, what: &str) -> String {
    for said in [&output.stderr, &output.stdout] {
        let said = String::from_utf8_lossy(said);
        for line in said.lines() {
            assert!(!line.starts_with(FORGED), "{what}: {said:?}");
        }
        let breaks = |c: char| {
            c != '\n' && c != '\t' && (c.is_control() || c == '\u{2028}' || c == '\u{2029}')
        };
        assert!(!said.contains(breaks), "{what}: {said:?}");
    }
    String::from_utf8_lossy(&output.stderr).into_owned()
}

struct Case {
    place: Fixture,
    index: PathBuf,
    /// How many messages had the forged text in them, somewhere in a line.
    met: std::cell::Cell<usize>,
}

impl Case {
    fn run(&self, words: &[&OsStr], input: &[u8]) -> String {
        let mut child = Command::new(&self.place.canopy)
            .arg("--index")
            .arg(&self.index)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let _ = std::io::Write::write_all(&mut stdin, input);
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        // On a pipe, find and others print names unchanged.
        let prints_no_names = ["index", "update", "info", "watch", "source"];
        let stdout = match prints_no_names.contains(&words[0].to_str().unwrap_or_default()) {
            true => output.stdout,
            false => Vec::new(),
        };
        let output = Output { stdout, stderr: output.stderr, status: output.status };
        let said = assert_own(&output, &format!("{words:?}"));
        self.met.set(self.met.get() + usize::from(said.contains("FORGED")));
        said
    }

    fn all(&self, words: &[&[&str]], operand: &OsStr) {
        for words in words {
            let mut words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
            words.push(operand);
            self.run(&words, b"");
        }
    }
}

/// `canopy index` as root printed a line that a user had written as the name of a directory.
#[test]
fn names_in_messages_of_a_scan_end_no_line() {
    let place = Fixture::new();
    for name in hostile() {
        let case = Case {
            index: place.path("index"),
            place: Fixture::new(),
            met: std::cell::Cell::new(0),
        };
        let tree = case.place.path("tree");
        // In each tree, a directory that is too deep gets a warning.
        fs::create_dir_all(tree.join(&name)).unwrap();
        drop(chain(&tree.join(&name), 17));
        let errors = case.place.path("errors");
        let with_errors = ["index", "--errors", errors.to_str().unwrap()];
        case.all(
            &[&["index"], &["index", "--incremental"], &with_errors, &["update"]],
            tree.as_ref(),
        );
        assert!(case.met.get() >= 3, "the name is in the warnings");
        let listed = fs::read_to_string(&errors).unwrap();
        assert!(listed.contains("FORGED"), "{listed:?}");
        assert!(!listed.lines().any(|line| line.starts_with(FORGED)), "{listed:?}");
        assert!(!listed.contains('\u{1b}') && !listed.contains('\r'), "{listed:?}");
        // A source of such a name, which is gone.
        let source = tree.join(&name);
        case.all(&[&["index"], &["update"], &["info"]], source.as_ref());
        fs::remove_dir_all(&source).unwrap();
        case.all(&[&["index"], &["update"], &["du"]], source.as_ref());
        case.run(&["index".as_ref()], b"");
        case.run(&["info".as_ref()], b"");
    }
}

/// Paths that lead nowhere, options and values of such names, and files of such paths.
#[test]
fn names_in_other_messages_end_no_line() {
    let case = {
        let place = Fixture::new();
        Case { index: place.path("index"), place, met: std::cell::Cell::new(0) }
    };
    let tree = case.place.path("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    case.all(&[&["index"]], tree.as_ref());
    for name in hostile() {
        let missing = tree.join(&name);
        case.all(
            &[
                &["find"],
                &["find", "--live"],
                &["du"],
                &["ls"],
                &["stat"],
                &["report"],
                &["export", "--format", "ncdu"],
                &["import", "--format", "ncdu"],
                &["import", "--format", "csv"],
                &["locate"],
                &["top", "largest"],
                &["diff", "--from", "1"],
                &["update"],
                &["index"],
                &["source", "remove"],
                &["index", "--errors"],
                &["watch", "--status"],
                &["sql", "-f"],
                &["ns", "info"],
                &["ns", "check"],
                &["ns", "du"],
                &["ns", "find"],
                &["ns", "mount"],
                &["ns", "create", "--no-such"],
                &["ns", "import"],
                &["store"],
                &["unmount"],
            ],
            missing.as_ref(),
        );
        // The path, as the start of another word.
        let option = OsString::from_vec([b"--no-such-", name.as_bytes()].concat());
        let value = OsString::from_vec([b"--threads=", name.as_bytes()].concat());
        for command in ["find", "du", "ls", "stat", "index", "info", "sql", "ns", "report"] {
            case.run(&[command.as_ref(), &option], b"");
            case.run(&[command.as_ref(), &value], b"");
        }
        case.run(&[&option], b"");
        let mut list = missing.as_os_str().as_bytes().to_vec();
        list.push(0);
        case.run(&["find".as_ref(), "-files0-from".as_ref(), "-".as_ref()], &list);
        case.run(&["du".as_ref(), "--files0-from=-".as_ref()], &list);
        let query = format!("SELECT CAST('{name}' AS BIGINT)");
        case.run(&["sql".as_ref(), query.as_ref()], b"");
        let query = format!("SELECT \"{name}\" FROM entries");
        case.run(&["sql".as_ref(), query.as_ref()], b"");
        for (format, record) in [
            ("csv", format!("path,size\n\"/r/{name}\",many\n")),
            ("csv", format!("\"{name}\",b\n1,2\n")),
            ("ncdu", format!("[1,0,{{}},[{{\"name\":\"{}\"}}", name.escape_default())),
            ("gufi-trace", format!("{name}\x1ed\x1e")),
            ("find", format!("{name}\0\0")),
        ] {
            let file = case.place.path("input");
            fs::write(&file, record).unwrap();
            let words = ["import", "--format", format, "--root", "/r", file.to_str().unwrap()];
            case.run(&words.map(OsStr::new), b"");
        }
    }
    assert!(case.met.get() > 100, "the names are in messages: {}", case.met.get());
}

/// A user's own commands, on a tree in which others have names that the user may not read.
#[test]
fn names_of_others_in_messages_end_no_line() {
    let place = Fixture::new();
    let tree = place.path("tree");
    for name in hostile() {
        fs::create_dir_all(tree.join(&name)).unwrap();
        fs::set_permissions(tree.join(&name), fs::Permissions::from_mode(0o700)).unwrap();
    }
    let home = place.path("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(2001), Some(2001)).unwrap();
    let index = home.join("index");
    let user = User { uid: 2001, gid: 2001, groups: vec![2001] };
    for words in [
        &["index"][..],
        &["index", "--incremental"],
        &["find"],
        &["find", "--live"],
        &["du"],
        &["du", "-s"],
        &["ls", "-R"],
        &["update"],
    ] {
        let words = words.iter().map(OsStr::new).chain([tree.as_os_str()]);
        let words = ["--index".as_ref(), index.as_os_str()].into_iter().chain(words);
        let output = user.run(place.canopy.as_os_str(), &words.collect::<Vec<_>>());
        let output = Output { stdout: Vec::new(), ..output };
        let said = assert_own(&output, &format!("{output:?}"));
        assert!(said.contains("FORGED") || output.status.success(), "{said}");
    }
}
