//! Paths of starts are resolved as the kernel resolves them: `..` from where a link has led, and
//! nothing beyond what is missing, no directory or closed. Also where the tree has gone.

use super::place::{OWN_WORDS, messages, users};
use crate::common::length::rounds;
use crate::common::shells::{self, Variables};
use crate::common::{Fixture, User};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Output;

/// Paths in the tree, from its root.
const PATHS: [&str; 64] = [
    ".",
    "./",
    "./.",
    "..",
    "../t",
    "../t/",
    "../t/l/../e",
    "../t/.",
    "l",
    "l/",
    "l/.",
    "l/..",
    "l/../",
    "l/../e",
    "l/../../e",
    "./l/../e",
    "l/./../e",
    "l//..//e",
    "abs/../e",
    "abs",
    "abs/",
    "chain/../e",
    "chain/",
    "chain",
    "dots",
    "dots/",
    "dots/e",
    "dots/../e",
    "a/../e",
    "a/b/../e",
    "a/./b//../e",
    "e/..",
    "e/../a/e",
    "no",
    "no/",
    "no/..",
    "no/../e",
    "no/./../e",
    "a/no/../e",
    "file",
    "file/",
    "file/.",
    "file/..",
    "file/../e",
    "lf",
    "lf/",
    "lf/.",
    "lf/../e",
    "broken",
    "broken/",
    "broken/.",
    "broken/../e",
    "loop",
    "loop/",
    "loop/x",
    "loop/../e",
    "private",
    "private/",
    "private/.",
    "private/..",
    "private/../e",
    "private/in/../../e",
    "out/..",
    "lp/../e",
];

/// Paths in and behind a directory that others may search but not list.
const GATED: [&str; 11] = [
    "gate",
    "gate/",
    "gate/.",
    "gate/../e",
    "gate/known/..",
    "gate/known/../known/x",
    "gate/known/../../e",
    "gate/l/x",
    "gate/l/../../a/e",
    "gate/l/.",
    "gate/no/../known",
];

const TOOLS: [&[&str]; 8] = [
    &["find"],
    &["find", "-H"],
    &["ls", "-1"],
    &["ls", "-ldi", "--time-style=+"],
    &["du", "-a"],
    &["du", "-sD"],
    &["stat", "-c", "%n %i %F %N"],
    &["stat", "-L", "-c", "%n %i %F"],
];

fn make_tree(place: &Fixture) {
    let tree = place.path("t");
    for directory in ["a/b/in", "e/in", "private/in", "gate/known/x", "a/e"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    for file in ["file", "e/of-top", "a/e/of-a", "private/in/secret", "gate/known/x/deep"] {
        fs::write(tree.join(file), file).unwrap();
    }
    for (link, target) in [
        ("l", "a/b"),
        ("chain", "./l"),
        ("dots", "l/../b/.."),
        ("lf", "file"),
        ("broken", "nowhere"),
        ("loop", "loop"),
        ("gate/l", "known"),
        ("lp", "private"),
    ] {
        symlink(target, tree.join(link)).unwrap();
    }
    symlink(tree.join("a/b"), tree.join("abs")).unwrap();
    symlink(place.dir.path(), tree.join("out")).unwrap();
    symlink("t", place.path("alias")).unwrap();
    chown(tree.join("private"), Some(2001), Some(3001)).unwrap();
    for (directory, mode) in [("private", 0o700), ("gate", 0o711)] {
        fs::set_permissions(tree.join(directory), fs::Permissions::from_mode(mode)).unwrap();
    }
}

fn run(who: Option<&User>, directory: &Path, program: &Path, words: &[&OsStr]) -> Output {
    let all = [program.as_os_str()].into_iter().chain(words.iter().copied());
    shells::run(who, Variables::Inherited, directory, &[], all)
}

fn words<'a>(tool: &'a [&'a str], path: &'a OsStr) -> Vec<&'a OsStr> {
    // Options of find stand before the paths, and -c takes what follows.
    tool[1..].iter().map(OsStr::new).chain([path]).collect()
}

fn lines(output: &Output) -> Vec<String> {
    let mut lines: Vec<String> =
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Returns whether a user asks a tool for a path. Short runs have half of these cases: any two of
/// user, tool and path come together in one.
fn is_asked(numbers: [usize; 3]) -> bool {
    rounds(numbers.iter().sum::<usize>().is_multiple_of(2), true)
}

struct Asked<'a> {
    who: Option<User>,
    tool: &'a [&'a str],
    directory: &'a Path,
    path: String,
}

impl Asked<'_> {
    fn expected(&self) -> Output {
        let words = words(self.tool, self.path.as_ref());
        run(self.who.as_ref(), self.directory, Path::new(self.tool[0]), &words)
    }

    fn check(&self, place: &Fixture, expected: &Output) -> Output {
        let index = place.path("index");
        let mut all: Vec<&OsStr> = vec!["--index".as_ref(), index.as_os_str()];
        all.push(self.tool[0].as_ref());
        all.extend(words(self.tool, self.path.as_ref()));
        let shown = run(self.who.as_ref(), self.directory, &place.canopy, &all);
        let what = format!(
            "{:?} {} as {:?}: {}\nexpected: {}",
            self.tool,
            self.path,
            self.who,
            String::from_utf8_lossy(&shown.stderr),
            String::from_utf8_lossy(&expected.stderr)
        );
        assert_eq!(lines(&shown), lines(expected), "{what}");
        if expected.stdout.is_empty() {
            assert_eq!(shown.status.code(), expected.status.code(), "{what}");
            let [said, told] = [&shown, expected]
                .map(|output| messages(self.tool[0], &String::from_utf8_lossy(&output.stderr)));
            let own = OWN_WORDS.iter().any(|own| said.iter().any(|line| line.contains(own)));
            assert!(said == told || own, "{what}");
        }
        shown
    }
}

#[test]
fn starts_are_resolved_as_by_the_kernel() {
    let place = Fixture::new();
    make_tree(&place);
    let tree = place.path("t");
    place.index(&place.path("index"), &tree);
    for (user, who) in users().into_iter().enumerate() {
        for (number, tool) in TOOLS.into_iter().enumerate() {
            let relative = PATHS.iter().chain(&GATED).map(|path| (*path).to_owned());
            // Through a link that is in no source, and around what is.
            let outside = ["l/../e", "no/../e", "e/../../t/e", "lf", "", "private/../e"]
                .map(|path| format!("../alias/{path}"));
            let around = ["../alias/../t/e", "../gone/../t/e", "../index/../t/e", "../alias"]
                .map(str::to_owned);
            let absolute = ["l/../e", "gate/l/../known", "./no/../e", "out/t/l/../e"]
                .map(|path| format!("{}/{path}", tree.display()));
            let all = relative.chain(outside).chain(around).chain(absolute);
            for (_, path) in all.enumerate().filter(|(at, _)| is_asked([user, number, *at])) {
                // The directory above the tree is in no source.
                if ["..", "out/..", "../alias"].contains(&&*path) {
                    continue;
                }
                let asked = Asked { who: who.clone(), tool, directory: &tree, path };
                asked.check(&place, &asked.expected());
            }
        }
    }
}

#[test]
fn links_are_too_many_where_they_are_for_the_kernel() {
    let place = Fixture::new();
    let tree = place.path("t");
    fs::create_dir_all(tree.join("end")).unwrap();
    fs::write(tree.join("end/file"), "").unwrap();
    symlink("end", tree.join("chain1")).unwrap();
    for number in 1..50 {
        symlink(format!("chain{number}"), tree.join(format!("chain{}", number + 1))).unwrap();
        let directory = tree.join(number.to_string());
        fs::create_dir(&directory).unwrap();
        symlink(format!("../{}", number + 1), directory.join("s")).unwrap();
    }
    symlink("end", tree.join("50")).unwrap();
    place.index(&place.path("index"), &tree);
    let chains = (39..43).flat_map(|number| {
        ["", "/", "/file", "/../chain1"].map(|end| format!("chain{number}{end}"))
    });
    let steps = (38..43)
        .flat_map(|steps| ["", "/", "/.."].map(|end| format!("1{}{end}", "/s".repeat(steps))));
    let mixed = (19..23).map(|number| format!("chain{number}/../chain20"));
    let around = (39..42).map(|number| format!("../t/chain{number}/file"));
    let paths: Vec<String> = chains.chain(steps).chain(mixed).chain(around).collect();
    let all = ["1", "2", "3", "20"].map(str::to_owned);
    let deep: [&[&str]; 4] = [&["du", "-aL"], &["du", "-L"], &["ls", "-1RL"], &["ls", "-1FL"]];
    let too_many = |output: &Output| {
        let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
        said.matches("too many levels of symbolic links").count()
    };
    let mut refused = 0;
    let singly = TOOLS.iter().flat_map(|tool| paths.iter().map(|path| (*tool, path.clone())));
    let deeply = deep.iter().flat_map(|tool| all.iter().map(|path| (*tool, path.clone())));
    for (tool, path) in singly.chain(deeply) {
        let asked = Asked { who: None, tool, directory: &tree, path };
        // A walk that the kernel begins anew, as beside other work, counts the links that it has
        // followed before: it may refuse 40 links. Of several answers, the most generous is right.
        let mut expected = asked.expected();
        for _ in 0..4 {
            if too_many(&expected) == 0 {
                break;
            }
            let again = asked.expected();
            if too_many(&again) < too_many(&expected) {
                expected = again;
            }
        }
        let shown = asked.check(&place, &expected);
        assert_eq!(too_many(&shown), too_many(&expected), "{tool:?} {}", asked.path);
        refused += too_many(&expected);
    }
    assert!(refused > 50);
}

#[test]
fn links_of_a_tree_that_has_gone_are_those_that_were_indexed() {
    let place = Fixture::new();
    make_tree(&place);
    let tree = place.path("t");
    place.index(&place.path("index"), &tree);
    let mut asked = Vec::new();
    for (user, who) in users().into_iter().enumerate() {
        for (number, tool) in TOOLS.into_iter().enumerate() {
            let paths = PATHS.iter().chain(&GATED).filter(|path| !path.starts_with(".."));
            let paths = paths.filter(|path| !path.starts_with("out")).enumerate();
            // Those that the tree is not asked for while it is there.
            for (_, path) in paths.filter(|(at, _)| is_asked([user, number, at + 1])) {
                let path = format!("{}/{path}", tree.display());
                asked.push(Asked { who: who.clone(), tool, directory: Path::new("/"), path });
            }
        }
    }
    let expected: Vec<Output> = asked.iter().map(Asked::expected).collect();
    // What is there now leads elsewhere.
    fs::rename(&tree, place.path("elsewhere")).unwrap();
    fs::create_dir_all(tree.join("e/other")).unwrap();
    symlink("e/other", tree.join("l")).unwrap();
    symlink("e", tree.join("no")).unwrap();
    for (asked, expected) in asked.iter().zip(&expected) {
        asked.check(&place, expected);
    }
}
