//! `[duplicates]`, and views: queries under names of their own.

mod common;

use common::{Mounted, NOBODY, as_user, failure, ns, shell, success};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

/// The groups of equal files that a directory shows, as paths below `base`.
#[track_caller]
fn groups(duplicates: &Path, depth: usize) -> BTreeSet<BTreeSet<PathBuf>> {
    let mut groups = BTreeMap::<String, BTreeSet<PathBuf>>::new();
    for entry in fs::read_dir(duplicates).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let (hash, _) = name.split_once('-').unwrap();
        let mut target = fs::read_link(entry.path()).unwrap();
        for _ in 0..depth {
            target = target.strip_prefix("..").unwrap().to_owned();
        }
        groups.entry(hash.into()).or_default().insert(target);
    }
    groups.into_values().collect()
}

fn set<const N: usize, const M: usize>(all: [[&str; N]; M]) -> BTreeSet<BTreeSet<PathBuf>> {
    all.map(|group| group.map(PathBuf::from).into()).into()
}

#[test]
fn views_are_not_made_where_others_lead() {
    let mounted = Mounted::new();
    let elsewhere = mounted.place.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let view = |what: &str, name: &str| {
        let mut view = ns("view");
        view.arg(what).arg(&mounted.on).arg(name);
        if what == "add" {
            view.arg("[size>1]");
        }
        view.output().unwrap()
    };
    shell(&mounted.on, "chmod 1777 .");
    let user = |line: &str| {
        let made = as_user(NOBODY, "sh").args(["-c", line]).current_dir(&mounted.on).output();
        success(&made.unwrap());
    };
    user(&format!("mkdir .canopy; ln -s {} .canopy/views", elsewhere.display()));
    std::os::unix::fs::symlink("../../[size>1]", elsewhere.join("there")).unwrap();
    for (what, name) in [("add", "x"), ("remove", "there")] {
        let told = failure(&view(what, name));
        assert!(told.contains(".canopy is of uid "), "{told}");
    }
    shell(&mounted.on, "chown root .canopy");
    for (what, name) in [("add", "x"), ("remove", "there")] {
        let told = failure(&view(what, name));
        assert!(told.contains(".canopy/views is not a directory"), "{told}");
    }
    let there = fs::read_dir(&elsewhere).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(Vec::from_iter(there), ["there"]);
    shell(&mounted.on, "rm .canopy/views");
    success(&view("add", "x"));
    assert_eq!(
        fs::read_link(mounted.path(".canopy/views/x")).unwrap(),
        Path::new("../../[size>1]")
    );
    success(&view("remove", "x"));
    assert!(!mounted.path(".canopy/views/x").is_symlink());
}

#[test]
fn equal_files_are_found() {
    let mounted = Mounted::new();
    shell(
        &mounted.on,
        "mkdir a b; head -c 100000 /dev/urandom > a/large; cp a/large b/copy; ln a/large b/hard
         echo one > a/one; echo one > b/uno; echo two > b/two; : > e1; : > e2; ln -s a/one link
         (head -c 99999 a/large; echo x) | head -c 100000 > b/last-differs
         (echo xxxx; tail -c 99995 a/large) > b/first-differs; cp a/large open",
    );
    // What was written a moment ago counts.
    shell(&mounted.on, "exec 3<> open; printf x >&3; printf x > open");
    let all = mounted.path("[duplicates]");
    assert_eq!(groups(&all, 1), set([["a/large", "b/copy"], ["a/one", "b/uno"]]));
    let large = mounted.path("[size>4K]/[duplicates]");
    assert_eq!(groups(&large, 2), set([["a/large", "b/copy"]]));
    assert_eq!(groups(&mounted.path("b/[duplicates]"), 1), set([["copy", "hard"]]));
    assert_eq!(groups(&mounted.path("a/[duplicates]"), 1), set::<0, 0>([]));
    let one = shell(&mounted.on, "cd '[duplicates]'; cat *-1-one *-2-uno");
    assert_eq!(one, "one\none\n");
    assert!(!all.join("[size>1]").exists());
    success(&ns("snapshot").arg("create").arg(&mounted.on).arg("s").output().unwrap());
    shell(&mounted.on, "rm b/copy; echo more >> b/uno");
    assert_eq!(groups(&mounted.path("[@s]/[duplicates]"), 1).len(), 2);
    assert_eq!(groups(&all, 1), set::<0, 0>([]));
    mounted.assert_sound();
}

/// Two files of a hole each took so long that nobody got an answer.
#[test]
fn holes_are_not_read() {
    let mounted = Mounted::new();
    shell(
        &mounted.on,
        "mkdir a b; for d in a b; do truncate -s 4T $d/hole; truncate -s 3T $d/ends
         echo end >> $d/ends; truncate -s 1M $d/sparse; echo x >> $d/sparse; done
         truncate -s 3T b/other; echo END >> b/other; cp --sparse=never a/sparse a/zeros",
    );
    let all = [["a/ends", "b/ends"], ["a/hole", "b/hole"]];
    let is_right = |found: &BTreeSet<BTreeSet<PathBuf>>| {
        let sparse: BTreeSet<PathBuf> =
            ["a/sparse", "a/zeros", "b/sparse"].map(PathBuf::from).into();
        found.is_superset(&set(all)) && found.contains(&sparse) && found.len() == 3
    };
    let now = groups(&mounted.path("[duplicates]"), 1);
    assert!(is_right(&now), "{now:?}");
    success(&ns("snapshot").arg("create").arg(&mounted.on).arg("s").output().unwrap());
    shell(&mounted.on, "rm a/hole; echo x > b/ends");
    let then = groups(&mounted.path("[@s]/[duplicates]"), 1);
    assert!(is_right(&then), "{then:?}");
}

#[test]
fn nobody_learns_what_is_equal_to_what_cannot_be_read() {
    let mounted = Mounted::new();
    shell(
        &mounted.on,
        "mkdir open closed; for d in open closed; do for i in 1 2; do echo text > $d/$i; done; done
         echo other > open/3; echo other > open/4; chmod 600 open/4; chmod 711 closed",
    );
    let list = |path: &str| {
        let mut command = as_user(NOBODY, "ls");
        success(&command.arg("-1").arg(mounted.path(path)).output().unwrap())
    };
    let seen = list("[duplicates]");
    assert_eq!(seen.lines().count(), 2, "{seen}");
    assert!(seen.contains("-1-1\n") && seen.contains("-2-2\n"), "{seen}");
    // In a snapshot, what is hidden since too.
    success(&ns("snapshot").arg("create").arg(&mounted.on).arg("s").output().unwrap());
    assert_eq!(list("[@s]/[duplicates]"), seen);
    shell(&mounted.on, "chmod 600 open/1");
    assert_eq!(list("[@s]/[duplicates]"), "");
}

fn view(what: &str, place: &Path, rest: &[&str]) -> Output {
    ns("view").arg(what).arg(place).args(rest).output().unwrap()
}

#[test]
fn views_show_what_their_queries_do() {
    let mounted = Mounted::new();
    shell(&mounted.on, "mkdir raw; head -c 5000 /dev/urandom > raw/large; cp raw/large copy");
    success(&ns("snapshot").arg("create").arg(&mounted.on).arg("s").output().unwrap());
    for (name, query) in [
        ("big", "[size>4K]"),
        ("raw", "/raw/[size>4K]/[user=root]"),
        ("then", "[@s]"),
        ("new", "raw/[recent 1d]"),
        ("equal", "[duplicates]"),
    ] {
        success(&view("add", &mounted.on, &[name, query]));
    }
    let listed = success(&view("list", &mounted.on, &[]));
    let words = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let kinds = Vec::from_iter(listed.lines().map(words));
    assert_eq!(
        kinds,
        ["big query", "equal duplicates", "new recent", "raw query", "then snapshot"]
    );
    let first = success(&view("list", &mounted.on, &["--json"]));
    let first: serde_json::Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    assert_eq!(first, serde_json::json!({"name": "big", "type": "query", "query": "[size>4K]"}));
    let shown =
        shell(&mounted.on.join(".canopy/views"), "ls big raw then new; cat big/copy | wc -c");
    assert_eq!(
        shown,
        "big:\ncopy\nlarge\n\nnew:\nlarge\n\nraw:\nlarge\n\nthen:\ncopy\nraw\n5000\n"
    );
    assert_eq!(groups(&mounted.path(".canopy/views/equal"), 1), set([["copy", "raw/large"]]));
    success(&view("remove", &mounted.on, &["big"]));
    assert!(!mounted.path(".canopy/views/big").exists());
    mounted.assert_sound();
}

#[test]
fn wrong_views_say_what_would_be_right() {
    let mounted = Mounted::new();
    for (rest, expected) in [
        (["x", "size>4K"], "a query in brackets"),
        (["x", "[size>>4K]"], "unknown operator"),
        (["x", "../[size>4K]"], "no '..'"),
        (["x", "[size>4K"], "a query in brackets"),
        (["a/b", "[size>4K]"], "without a '/'"),
        (["[x]", "[size>4K]"], "a query itself"),
    ] {
        let said = failure(&view("add", &mounted.on, &rest));
        assert!(said.contains(expected), "{rest:?}: {said}");
    }
    assert_eq!(success(&view("list", &mounted.on, &[])), "");
    success(&view("add", &mounted.on, &["x", "[size>4K]"]));
    let said = failure(&view("add", &mounted.on, &["x", "[size>5K]"]));
    assert!(said.contains("there is a view x already"), "{said}");
    let said = failure(&view("remove", &mounted.on, &["y"]));
    assert!(said.contains("there is no view y"), "{said}");
    let said = failure(&view("list", mounted.place.path(), &[]));
    assert!(said.contains("no namespace is mounted there"), "{said}");
    shell(&mounted.on, "echo text > .canopy/views/file");
    let said = failure(&view("remove", &mounted.on, &["file"]));
    assert!(said.contains("a file of somebody's"), "{said}");
}
