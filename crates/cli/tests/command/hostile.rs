//! Trees that an unprivileged user makes to stop an index, to swell it, or to see through it. What
//! others see stays exact, and the cost linear.

use crate::common::{Fixture, User, all_paths, assert_same, sorted};
use canopy_index::Index;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Output;

const MALLORY: u32 = 2001;

fn user(uid: u32) -> User {
    User { uid, gid: uid, groups: Vec::new() }
}

fn dir(path: &Path, mode: u32, owner: u32) {
    fs::create_dir(path).unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn file(path: &Path, owner: u32) {
    fs::write(path, b"x").unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
}

fn index(place: &Fixture, at: &Path, tree: &Path) -> (Output, String) {
    let output = place.canopy(at, &["index".as_ref(), tree.as_os_str()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

/// The files of an index and the bytes in them.
fn size(index: &Path) -> (u64, u64) {
    let mut size = (0, 0);
    let mut waiting = vec![index.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            match metadata.is_dir() {
                true => waiting.push(entry.path()),
                false => size = (size.0 + 1, size.1 + metadata.len()),
            }
        }
    }
    size
}

/// Expects that a user finds from a path what find(1) finds.
fn same_as_find(place: &Fixture, index: &Path, who: &User, start: &Path) -> usize {
    let ask = [start.as_os_str(), "-print0".as_ref()];
    let expected = sorted(&who.run("find".as_ref(), &ask).stdout, 0);
    let arguments: Vec<&OsStr> =
        ["--index".as_ref(), index.as_os_str(), "find".as_ref()].into_iter().chain(ask).collect();
    let found = sorted(&who.run(place.canopy.as_os_str(), &arguments).stdout, 0);
    assert_same(&found, &expected, &format!("{who:?} from {}", start.display()));
    expected.len()
}

#[test]
fn nested_gates_cost_no_more_than_other_directories() {
    let place = Fixture::new();
    let (tree, at) = (place.path("tree"), place.path("index"));
    dir(&tree, 0o755, 0);
    dir(&tree.join("home"), 0o755, 0);
    let mut path = tree.join("home/mallory");
    dir(&path, 0o711, MALLORY);
    for depth in 0..300 {
        path.push(format!("d{depth}"));
        dir(&path, 0o711, MALLORY);
    }
    file(&path.join("end"), MALLORY);
    file(&tree.join("home/note"), 2002);
    let (output, said) = index(&place, &at, &tree);
    assert!(output.status.success(), "{said}");
    let (files, bytes) = size(&at);
    assert!(files < 40 && bytes < 300_000, "{files} files, {bytes} bytes");
    let middle: PathBuf = path.ancestors().nth(150).unwrap().to_owned();
    for who in [user(2002), user(MALLORY), user(0)] {
        for start in [&tree, &path, &middle, &path.join("end"), &tree.join("home")] {
            same_as_find(&place, &at, &who, start);
        }
    }
    assert_eq!(same_as_find(&place, &at, &user(2002), &path.join("end")), 1);
}

#[test]
fn homes_behind_a_gate_cost_one_file_more_each_at_most() {
    let place = Fixture::new();
    let (tree, at, plain) = (place.path("tree"), place.path("index"), place.path("plain"));
    dir(&tree, 0o755, 0);
    let home = tree.join("home");
    dir(&home, 0o711, 0);
    const HOMES: u32 = 400;
    for number in 0..HOMES {
        let (path, owner) = (home.join(format!("user{number}")), 10_000 + number);
        dir(&path, [0o700, 0o755, 0o711, 0o750][number as usize % 4], owner);
        for name in ["a", "b"] {
            file(&path.join(name), owner);
        }
        dir(&path.join("sub"), 0o755, owner);
        file(&path.join("sub/c"), owner);
    }
    let (output, said) = index(&place, &at, &tree);
    assert!(output.status.success(), "{said}");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    index(&place, &plain, &tree);
    let (behind, without) = (size(&at), size(&plain));
    assert!(
        behind.0 <= without.0 + u64::from(HOMES),
        "{behind:?} with a gate, {without:?} without"
    );
    assert!(behind.1 <= 2 * without.1, "{behind:?} with a gate, {without:?} without");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o711)).unwrap();
    let (output, said) = index(&place, &at, &tree);
    assert!(output.status.success(), "{said}");
    for number in (0..8).chain(HOMES - 4..HOMES) {
        let path = home.join(format!("user{number}"));
        for who in [user(10_000 + number), user(10_001), user(9_999)] {
            same_as_find(&place, &at, &who, &path);
            same_as_find(&place, &at, &who, &path.join("sub"));
            same_as_find(&place, &at, &who, &path.join("sub/c"));
        }
    }
    for who in [user(0), user(10_000)] {
        same_as_find(&place, &at, &who, &tree);
    }
}

/// A user who may list an inner gate but not the outer one gets in by one name and finds the
/// others.
#[test]
fn names_lead_on_through_gates_that_can_be_listed() {
    let place = Fixture::new();
    let (tree, at) = (place.path("tree"), place.path("index"));
    dir(&tree, 0o755, 0);
    let outer = tree.join("outer");
    dir(&outer, 0o711, 0);
    dir(&outer.join("known"), 0o755, 0);
    let inner = outer.join("known/inner");
    dir(&inner, 0o751, 0);
    chown(&inner, None, Some(3001)).unwrap();
    for name in ["one", "two"] {
        dir(&inner.join(name), 0o755, 0);
        dir(&inner.join(name).join("gate"), 0o711, 3001);
        file(&inner.join(name).join("gate/last"), 0);
        // More than fit into a sealed record.
        for number in 0..5000 {
            file(&inner.join(name).join(format!("f{number}")), 0);
        }
    }
    let (output, said) = index(&place, &at, &tree);
    assert!(output.status.success(), "{said}");
    let lister = User { uid: 2001, gid: 2001, groups: vec![3001] };
    for who in [&lister, &user(2002), &user(3001), &user(0)] {
        for start in ["", "outer", "outer/known", "outer/known/inner", "outer/known/inner/two"] {
            same_as_find(&place, &at, who, &tree.join(start));
        }
        same_as_find(&place, &at, who, &inner.join("one/gate/last"));
    }
    let all = same_as_find(&place, &at, &lister, &outer.join("known"));
    assert_eq!(all, 2 + 2 * (2 + 5000));
    assert_eq!(same_as_find(&place, &at, &user(2002), &outer.join("known")), 2);
}

fn setfacl(path: &Path, entries: &str) {
    let done = std::process::Command::new("setfacl").args(["-m", entries]).arg(path).status();
    assert!(done.unwrap().success());
}

#[test]
fn costs_of_one_owner_do_not_burden_others() {
    let place = Fixture::new();
    let (tree, at) = (place.path("tree"), place.path("index"));
    dir(&tree, 0o755, 0);
    let own = tree.join("mallory");
    dir(&own, 0o755, MALLORY);
    let mut nested = own.join("nested");
    dir(&nested, 0o755, MALLORY);
    for number in 0..300 {
        let path = own.join(format!("d{number}"));
        dir(&path, 0o755, MALLORY);
        let names: Vec<String> =
            (0..100).map(|at| format!("u:{}:---", 100_000 + 100 * number + at)).collect();
        setfacl(&path, &names.join(","));
        nested.push("n");
        dir(&nested, 0o755, MALLORY);
        setfacl(&nested, &format!("u:{}:---", 50_000 + number));
    }
    dir(&tree.join("other"), 0o750, 2002);
    chown(tree.join("other"), None, Some(3001)).unwrap();
    file(&tree.join("other/file"), 2002);
    let (output, said) = index(&place, &at, &tree);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("uid 2001 owns asks for more access classes"), "{said}");
    assert!(missing(&place, &at).contains("uid 2001 and root alone"), "{}", missing(&place, &at));
    let told: u64 = recorded_bytes(&at).iter().sum();
    assert!(told < 300_000, "the catalog and the lists have {told} bytes");
    let member = User { uid: 2005, gid: 2005, groups: vec![3001] };
    for who in [&member, &user(2002)] {
        assert_eq!(same_as_find(&place, &at, who, &tree.join("other")), 2);
    }
    for who in [user(MALLORY), user(0)] {
        same_as_find(&place, &at, &who, &tree);
    }
    // Whom an ACL keeps out is kept out, beyond the limits too.
    let denied = same_as_find(&place, &at, &user(100_000 + 50), &own.join("d0"));
    assert_eq!(denied, 1);

    // Once the lists are gone, they leave the catalog.
    fs::remove_dir_all(&own).unwrap();
    assert!(index(&place, &at, &tree).0.status.success());
    // Nobody reads any more.
    assert!(place.canopy(&at, &["compact".as_ref(), "--replace".as_ref()]).status.success());
    assert_eq!(missing(&place, &at), "");
    let told = recorded_bytes(&at);
    assert!(told.len() < 8 && *told.iter().max().unwrap() < 1000, "{told:?}");
}

/// The warnings to root about missing parts of an index.
fn missing(place: &Fixture, index: &Path) -> String {
    let output = place.canopy(index, &["info".as_ref()]).stdout;
    let lines = String::from_utf8(output).unwrap();
    lines.lines().filter(|line| line.starts_with("incomplete ")).collect()
}

/// Returns the sizes of the files that describe classes.
fn recorded_bytes(index: &Path) -> Vec<u64> {
    let is_one = |path: &&PathBuf| {
        let name = path.file_name().unwrap().as_bytes();
        name.starts_with(b"catalog") || path.parent().unwrap().ends_with("lists")
    };
    let paths = all_paths(index);
    paths.iter().filter(is_one).map(|path| path.metadata().unwrap().len()).collect()
}

/// Limits hold for what all runs together have made, and as they were given last; a scan of the whole
/// begins anew.
#[test]
fn limits_an_owner_hold_over_runs() {
    let place = Fixture::new();
    let (tree, at) = (place.path("tree"), place.path("index"));
    dir(&tree, 0o777, 0);
    let run = |words: &[&str]| {
        let words: Vec<&OsStr> =
            words.iter().copied().map(OsStr::new).chain([tree.as_os_str()]).collect();
        let output = place.canopy(&at, &words);
        let code = output.status.code();
        assert!(code < Some(2), "{words:?}: {output:?}");
        code == Some(0)
    };
    let classes = || Index::open(&at).unwrap().classes().all.unwrap();
    assert!(run(&["index", "--owner-classes=10"]));
    let mut group = 4000;
    let mut make = |count: u32| {
        for _ in 0..count {
            group += 1;
            let path = tree.join(format!("d{group}"));
            dir(&path, 0o750, MALLORY);
            chown(path, None, Some(group)).unwrap();
        }
    };
    for round in 0..4 {
        make(6);
        assert_eq!(run(&["update", "--recursive"]), round == 0);
        assert!(classes() <= 12, "{} classes after {round}", classes());
    }
    assert_eq!(classes(), 12);
    for entry in fs::read_dir(&tree).unwrap() {
        fs::remove_dir(entry.unwrap().path()).unwrap();
    }
    make(10);
    assert!(run(&["index"]));
    make(2);
    assert!(!run(&["index", "--incremental"]));
    assert!(run(&["index", "--owner-classes=20"]));
    make(2);
    assert!(run(&["update"]));
}

/// Both commands that fill an index take the limits.
#[test]
fn limits_an_owner_are_options() {
    let place = Fixture::new();
    let (tree, trace) = (place.path("tree"), place.path("trace"));
    dir(&tree, 0o755, 0);
    for number in 0..8 {
        dir(&tree.join(format!("d{number}")), 0o750, MALLORY);
        chown(tree.join(format!("d{number}")), None, Some(4000 + number)).unwrap();
    }
    let whole = place.path("whole");
    assert!(index(&place, &whole, &tree).0.status.success());
    let arguments = ["export", "--format", "gufi-trace", "-o"].map(OsStr::new);
    let mut export = arguments.to_vec();
    export.extend([trace.as_os_str(), tree.as_os_str()]);
    assert!(place.canopy(&whole, &export).status.success());
    let at = place.path("index");
    for (option, number) in [("--owner-classes", "5"), ("--owner-names", "12")] {
        for words in [
            vec!["index", option, number, tree.to_str().unwrap()],
            vec![
                "import",
                "--format=gufi-trace",
                "--root=/tree",
                option,
                number,
                trace.to_str().unwrap(),
            ],
        ] {
            let _ = fs::remove_dir_all(&at);
            let words: Vec<&OsStr> = words.into_iter().map(OsStr::new).collect();
            let output = place.canopy(&at, &words);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
            assert!(said.contains("uid 2001 owns asks for more"), "{words:?}: {said}");
            if words[0] == "index" {
                // A scan that keeps what is there tells the same.
                let again = place.canopy(&at, &[&words[..], &["--incremental".as_ref()]].concat());
                assert_eq!(String::from_utf8_lossy(&again.stderr), said, "{words:?}");
                assert_eq!(again.status.code(), Some(1), "{words:?}");
            }
        }
    }
}

/// A directory above the root of a source is closed: nobody goes on through it.
#[test]
fn a_way_that_ended_is_not_followed() {
    let place = Fixture::new();
    let at = place.path("index");
    let srv = place.path("srv");
    dir(&srv, 0o711, 0);
    let proj = srv.join("proj");
    dir(&proj, 0o755, 0);
    let other = place.path("other");
    dir(&other, 0o755, 0);
    file(&proj.join("old-secret"), 0);
    for tree in [&proj, &other] {
        assert!(index(&place, &at, tree).0.status.success());
    }
    let who = user(2002);
    assert_eq!(same_as_find(&place, &at, &who, &proj), 2);
    let query = format!("SELECT path FROM entries WHERE path LIKE '{}/%'", proj.display());
    let asks: [&[&OsStr]; 3] = [
        &["find".as_ref(), proj.as_os_str()],
        &["du".as_ref(), "-a".as_ref(), proj.as_os_str()],
        &["sql".as_ref(), query.as_ref()],
    ];
    let answer = |ask: &[&OsStr]| {
        let index: [&OsStr; 2] = ["--index".as_ref(), at.as_os_str()];
        let output = who.run(place.canopy.as_os_str(), &[&index, ask].concat());
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned())
    };
    for ask in asks {
        assert!(answer(ask)[0].contains("old-secret"), "{ask:?}");
    }
    fs::set_permissions(&srv, fs::Permissions::from_mode(0o700)).unwrap();
    file(&proj.join("new-secret"), 0);
    assert!(index(&place, &at, &proj).0.status.success());
    for ask in asks {
        let [said, errors] = answer(ask);
        assert!(!said.contains("secret"), "{said}");
        let refused = ["Permission denied", "not for you to see", "no index covers"];
        let refused = errors.is_empty() || refused.iter().any(|text| errors.contains(text));
        assert!(refused, "{ask:?}: {errors}");
    }
    same_as_find(&place, &at, &user(0), &proj);
}
