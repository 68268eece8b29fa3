//! An index that a user has made says of what could not be read that it could not, as GNU's tools
//! say on the file system. Needs root.

use crate::common::{self, Fixture, User};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Output;

const OWNER: u32 = 2001;

fn owner() -> User {
    User { uid: OWNER, gid: OWNER, groups: vec![OWNER] }
}

/// A tree with a directory that may be listed but not searched, and one that may not be listed.
fn tree(place: &Fixture) -> PathBuf {
    let tree = place.path("t");
    for directory in ["t", "t/no-x", "t/no-x/y", "t/closed", "t/closed/z", "t/ok"] {
        fs::create_dir(place.path(directory)).unwrap();
    }
    fs::write(tree.join("no-x/f"), "").unwrap();
    fs::write(tree.join("ok/f"), "").unwrap();
    for path in common::all_paths(&tree) {
        chown(path, Some(OWNER), Some(OWNER)).unwrap();
    }
    for (name, mode) in [("no-x", 0o600), ("closed", 0)] {
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    tree
}

struct Case {
    place: Fixture,
    tree: PathBuf,
    index: PathBuf,
}

impl Case {
    fn new() -> Self {
        let place = Fixture::new();
        let tree = tree(&place);
        let home = place.path("home");
        fs::create_dir(&home).unwrap();
        chown(&home, Some(OWNER), Some(OWNER)).unwrap();
        Case { tree, index: home.join("index"), place }
    }

    fn canopy(&self, index: &Path, words: &[&str]) -> Output {
        let words = words.iter().map(OsStr::new);
        let words = ["--index".as_ref(), index.as_os_str()].into_iter().chain(words);
        owner().run(self.place.canopy.as_os_str(), &words.collect::<Vec<_>>())
    }

    /// Asks with the tree as the last word.
    fn own(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let tree = self.tree.to_str().unwrap();
        let output = self.canopy(&self.index, &[words, &[tree]].concat());
        code_and_text(&output)
    }

    fn gnu(&self, words: &[&str]) -> String {
        let mut words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        words.push(self.tree.as_os_str());
        let output = owner().run(words[0], &words[1..]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn code_and_text(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// du, ls and find printed no error and exited with 0, though the scan had said that entries could
/// not be read.
#[test]
fn an_own_index_says_what_could_not_be_read() {
    let case = Case::new();
    let (code, _, said) = case.own(&["index"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("2 entries could not be read"), "{said}");
    for incremental in [false, true] {
        if incremental {
            assert_eq!(case.own(&["index", "--incremental"]).0, Some(1));
        }
        for words in [&["du"][..], &["du", "-s"], &["du", "--inodes"], &["du", "-sh"]] {
            let (code, shown, said) = case.own(words);
            let lines = |shown: &str| common::sorted(shown.as_bytes(), b'\n');
            assert_eq!(
                (code, lines(&shown)),
                (Some(1), lines(&case.gnu(words))),
                "{words:?} {said}"
            );
            for name in ["no-x", "closed"] {
                let message = format!("cannot read directory '{}/{name}'", case.tree.display());
                assert!(said.contains(&message), "{words:?}: {said}");
            }
        }
        for words in [&["ls", "-R"][..], &["ls", "-lR"]] {
            let (code, _, said) = case.own(words);
            assert_eq!(code, Some(1), "{words:?}: {said}");
            assert_eq!(said.matches("cannot open directory").count(), 2, "{words:?}: {said}");
        }
        let (code, shown, said) = case.own(&["find"]);
        assert_eq!((code, shown.lines().count()), (Some(1), 5), "{shown} {said}");
        assert!(said.contains("/closed") && said.contains("Permission denied"), "{said}");
        assert!(said.contains("/no-x"), "{said}");
    }
    let find = |words: &[&str]| {
        let tree = case.tree.to_str().unwrap();
        code_and_text(&case.canopy(&case.index, &[&["find", tree], words].concat()))
    };
    assert_eq!(find(&["-maxdepth", "1"]), (Some(0), find(&["-maxdepth", "1"]).1, String::new()));
    let (code, _, said) = find(&["-name", "no-x", "-prune", "-o", "-print"]);
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    let sub = case.tree.join("ok");
    let whole = case.canopy(&case.index, &["find", sub.to_str().unwrap()]);
    assert_eq!(whole.status.code(), Some(0));
}

/// A directory that can be listed but not searched, and is empty, counted as one that can be searched.
#[test]
fn an_empty_directory_without_search_permission_is_closed() {
    let case = Case::new();
    let empty = case.tree.join("ok/empty");
    fs::create_dir(&empty).unwrap();
    let link = case.tree.join("ok/link");
    std::os::unix::fs::symlink("empty/x", &link).unwrap();
    chown(&empty, Some(OWNER), Some(OWNER)).unwrap();
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o644)).unwrap();
    case.own(&["index"]);
    let (link, empty) = (link.to_str().unwrap(), empty.to_str().unwrap());
    let inside = format!("{empty}/.");
    for words in [
        &["find", link, "-printf", "%Y"][..],
        &["find", link, "-xtype", "l"],
        &["find", &inside],
        &["ls", "-d", &inside],
        &["stat", "-c", "%n", &inside],
        &["du", &inside],
    ] {
        let (code, shown, said) = code_and_text(&case.canopy(&case.index, words));
        let rest: Vec<&OsStr> = words[1..].iter().map(OsStr::new).collect();
        let (of_gnu, shown_by_gnu, _) = code_and_text(&owner().run(words[0].as_ref(), &rest));
        assert_eq!((code, &shown), (of_gnu, &shown_by_gnu), "{words:?}: {said}");
        assert_eq!(said.contains("Permission denied"), code != Some(0), "{words:?}: {said}");
    }
}

/// `du -s` printed its line and exited with 0 whatever lay closed further below.
#[test]
fn a_sum_says_what_it_is_without() {
    let case = Case::new();
    let index = case.place.path("index");
    case.place.index(&index, &case.tree);
    let tree = case.tree.to_str().unwrap();
    let (code, shown, said) = code_and_text(&case.canopy(&index, &["du", "-s", tree]));
    assert_eq!((code, shown), (Some(1), case.gnu(&["du", "-s"])), "{said}");
    assert_eq!(said.matches("cannot read directory").count(), 2, "{said}");
    // Directories of others are many in an index of the site.
    assert_eq!(case.canopy(&index, &["find", tree]).status.code(), Some(0));
    let words = ["du".as_ref(), "-s".as_ref(), case.tree.as_os_str()];
    let root = code_and_text(&case.place.canopy(&index, &words));
    assert_eq!((root.0, &*root.2), (Some(0), ""));
}
