//! `canopy update` and `canopy index --incremental` as users type them; what they do to an index is
//! compared with new ones in `find/random_sites.rs` and `tools/updated.rs`.

use crate::common::{Fixture, User};
use serde_json::json;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// Lists what the index has below the tree.
fn listed(place: &Fixture) -> Vec<String> {
    let tree = place.path("tree");
    let output = place.canopy(&place.path("index"), &["find".as_ref(), tree.as_os_str()]);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<String> =
        text.lines().map(|line| line.replace(tree.to_str().unwrap(), "")).collect();
    lines.sort();
    lines
}

fn run(place: &Fixture, words: &[&str]) -> Output {
    let tree = place.path("tree");
    let words = words.iter().map(|word| word.replace("TREE", tree.to_str().unwrap()));
    let words: Vec<String> = words.collect();
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    place.canopy(&place.path("index"), &words)
}

fn place() -> Fixture {
    let place = Fixture::new();
    fs::create_dir_all(place.path("tree/a/b")).unwrap();
    fs::write(place.path("tree/a/b/file"), "x").unwrap();
    let output = run(&place, &["index", "TREE"]);
    assert!(output.status.success(), "{}", said(&output));
    place
}

#[test]
fn an_update_lists_what_it_is_told_to() {
    let place = place();
    fs::write(place.path("tree/a/b/new"), "").unwrap();
    fs::write(place.path("tree/a/other"), "").unwrap();
    let output = run(&place, &["update", "TREE/a/b"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).starts_with("generation 2: "), "{}", said(&output));
    // The directory above is listed, too, since it has the directory's row.
    assert_eq!(listed(&place), ["", "/a", "/a/b", "/a/b/file", "/a/b/new", "/a/other"]);

    // Of a file, the directory that it is in; of what is gone, the next one above.
    fs::remove_dir_all(place.path("tree/a/b")).unwrap();
    let output = run(&place, &["update", "TREE/a/b/deeper/file"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(listed(&place), ["", "/a", "/a/other"]);

    fs::create_dir_all(place.path("tree/c/d/e")).unwrap();
    fs::write(place.path("tree/c/d/e/f"), "").unwrap();
    let output = run(&place, &["update", "TREE"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(listed(&place), ["", "/a", "/a/other", "/c", "/c/d", "/c/d/e", "/c/d/e/f"]);

    fs::write(place.path("tree/c/d/e/g"), "").unwrap();
    let output = run(&place, &["update", "--recursive", "TREE/c", "--threads=2"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(listed(&place).contains(&"/c/d/e/g".to_owned()));
    let info = said(&run(&place, &["info"]));
    assert!(info.contains(" ago, updated "), "{info}");
}

#[test]
fn new_directories_on_the_way_have_their_rows() {
    let place = place();
    fs::create_dir_all(place.path("tree/a/new/c/d")).unwrap();
    let output = run(&place, &["update", "TREE/a/new/c/d"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let all = ["", "/a", "/a/b", "/a/b/file", "/a/new", "/a/new/c", "/a/new/c/d"];
    assert_eq!(listed(&place), all);
}

#[test]
fn a_directory_that_is_closed_closes_what_is_below() {
    let place = place();
    let user = crate::common::User { uid: 4321, gid: 4321, groups: Vec::new() };
    let (index, tree) = (place.path("index"), place.path("tree"));
    let asked = || {
        let words = ["--index".as_ref(), index.as_os_str(), "find".as_ref(), tree.as_os_str()];
        said(&user.run(place.canopy.as_os_str(), &words))
    };
    assert!(asked().contains("a/b/file"), "{}", asked());
    fs::set_permissions(place.path("tree/a"), fs::Permissions::from_mode(0o700)).unwrap();
    let output = run(&place, &["update", "TREE/a"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(!asked().contains("a/b"), "{}", asked());
    // A directory on the way that has changed is noticed, too.
    fs::set_permissions(place.path("tree/a"), fs::Permissions::from_mode(0o755)).unwrap();
    let words = ["update", "--owner-classes=100", "--owner-names=1000", "TREE/a/b"];
    let output = run(&place, &words);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(asked().contains("a/b/file"), "{}", asked());
}

#[test]
fn options_of_the_scan_are_kept() {
    let place = Fixture::new();
    fs::create_dir_all(place.path("tree/a")).unwrap();
    let output = run(&place, &["index", "TREE", "--exclude=*.o", "--no-xattrs"]);
    assert!(output.status.success(), "{}", said(&output));
    fs::write(place.path("tree/a/x.o"), "").unwrap();
    fs::write(place.path("tree/a/x.c"), "").unwrap();
    assert!(run(&place, &["update", "TREE/a"]).status.success());
    assert_eq!(listed(&place), ["", "/a", "/a/x.c"]);
    // What is below something that the scan has left out is left out, too.
    fs::create_dir_all(place.path("tree/x.o.d/y.o/z")).unwrap();
    fs::create_dir_all(place.path("tree/a/y.o/b/c")).unwrap();
    assert!(run(&place, &["update", "TREE/a/y.o/b/c"]).status.success());
    assert!(run(&place, &["update", "--recursive", "TREE/x.o.d/y.o/z"]).status.success());
    assert_eq!(listed(&place), ["", "/a", "/a/x.c", "/x.o.d"]);
    fs::remove_dir_all(place.path("tree/x.o.d")).unwrap();
    fs::remove_dir_all(place.path("tree/a/y.o")).unwrap();
    assert!(run(&place, &["update", "TREE"]).status.success());
    // A scan goes by what it is told.
    assert!(run(&place, &["index", "--incremental", "TREE"]).status.success());
    assert_eq!(listed(&place), ["", "/a", "/a/x.c", "/a/x.o"]);
}

#[test]
fn an_incremental_scan_keeps_what_is_as_it_was() {
    let place = place();
    for name in ["one", "two"] {
        fs::create_dir(place.path("tree").join(name)).unwrap();
        (0..50).for_each(|at| {
            fs::write(place.path("tree").join(name).join(format!("f{at}")), "").unwrap()
        });
    }
    assert!(run(&place, &["index", "--incremental", "TREE"]).status.success());
    let before = listed(&place);
    let output = run(&place, &["update", "--recursive", "TREE", "--copied-rows=0"]);
    let expected = "nothing has changed since generation 2: 105 entries in 5 directories";
    assert!(said(&output).starts_with(expected), "{}", said(&output));
    assert_eq!(listed(&place), before);
    fs::set_permissions(place.path("tree/two/f7"), fs::Permissions::from_mode(0o600)).unwrap();
    let output = run(&place, &["update", "--recursive", "TREE", "--copied-rows=0"]);
    assert!(said(&output).contains(" 55 of them as they were"), "{}", said(&output));
    assert_eq!(listed(&place), before);
}

#[test]
fn programs_get_one_object() {
    let place = place();
    let object = |words: &[&str], code: i32| {
        let output = run(&place, words);
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    fs::write(place.path("tree/a/b/new"), "").unwrap();
    let object_of_update = object(&["update", "--json", "TREE/a/b"], 0);
    let expected = json!({
        "generation": 2, "unchanged": false, "complete": true,
        "entries": 3, "kept_entries": 0, "directories": 2, "shards": 1,
        "unreadable": 0, "vanished": 0,
        "sources": [place.path("tree").to_str().unwrap()], "failed": [],
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(object_of_update[key], *value, "{key}: {object_of_update}");
    }
    assert!(object_of_update["bytes"].as_u64() > Some(0), "{object_of_update}");
    assert!(object_of_update["seconds"].as_f64() > Some(0.0), "{object_of_update}");
    let unchanged = object(&["update", "--json", "TREE/a/b"], 0);
    assert_eq!((&unchanged["generation"], &unchanged["unchanged"]), (&2.into(), &true.into()));
    // What has a name there has it in the object of a scan.
    let of_index = object(&["index", "--json", "TREE"], 0);
    let keys: Vec<&String> = object_of_update.as_object().unwrap().keys().collect();
    let missing = keys.iter().filter(|key| of_index.get(key.as_str()).is_none());
    assert_eq!(missing.collect::<Vec<_>>(), [&&"kept_entries".to_owned()]);
}

/// However often it is looked: what is kept of the past are changes.
#[test]
fn updates_without_changes_publish_nothing() {
    let place = Fixture::new();
    let home = place.path("tree/home");
    fs::create_dir_all(home.join("open")).unwrap();
    // Of what some know by name alone, not all is written as others.
    for (uid, mode) in [(4321, 0o711), (4322, 0o700), (4323, 0o755)] {
        let own = home.join(uid.to_string());
        fs::create_dir_all(own.join("public")).unwrap();
        fs::write(own.join("public/file"), "").unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&own, Some(uid), Some(uid)).unwrap();
    }
    let scan = ["index", "--incremental", "TREE"];
    assert!(run(&place, &["index", "--keep=2", "TREE"]).status.success());
    fs::write(home.join("open/one"), "").unwrap();
    assert!(said(&run(&place, &scan)).starts_with("generation 2: "));
    assert!(said(&run(&place, &scan)).starts_with("nothing has changed since generation 2: "));
    let files = || crate::common::all_paths(&place.path("index"));
    let before = files();
    for words in [
        &scan[..],
        &["index", "--incremental", "--trust-directory-times", "TREE"],
        &["index", "--incremental", "--keep=2", "TREE"],
        &["index", "--incremental", "--memory=16M", "--threads=3", "TREE"],
        &["update", "TREE"],
        &["update", "TREE/home/4321", "TREE/home/4321/public/file"],
        &["update", "--recursive", "TREE/home"],
    ] {
        let output = run(&place, words);
        let expected = "nothing has changed since generation 2: ";
        assert!(said(&output).starts_with(expected), "{words:?}: {}", said(&output));
        assert_eq!(output.status.code(), Some(0), "{words:?}");
    }
    assert_eq!(files(), before);
    let info = said(&run(&place, &["info"]));
    assert!(info.contains(", found as it was "), "{info}");
    // Anything counts: a policy, a name, who may go there.
    assert!(said(&run(&place, &[&scan[..], &["--keep=3"]].concat())).starts_with("generation 3: "));
    let named = [&scan[..], &["--name=other"]].concat();
    assert!(said(&run(&place, &named)).starts_with("generation 4: "));
    assert!(said(&run(&place, &["info"])).contains(" (other): "));
    assert!(said(&run(&place, &named)).starts_with("nothing has changed since generation 4: "));
    for (number, (path, mode)) in
        [("tree/home/4321", 0o710), ("tree/home", 0o711), ("tree", 0o711), ("tree/home", 0o755)]
            .into_iter()
            .enumerate()
    {
        fs::set_permissions(place.path(path), fs::Permissions::from_mode(mode)).unwrap();
        let expected = format!("generation {}: ", 5 + number);
        let output = run(&place, &scan);
        assert!(said(&output).starts_with(&expected), "{path}: {}", said(&output));
    }
}

/// Users who may look the root of a source up are in no listing of it.
#[test]
fn a_way_to_a_root_that_is_closed_is_a_change() {
    let place = Fixture::new();
    let tree = place.path("tree/on/the/way");
    fs::create_dir_all(&tree).unwrap();
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o700)).unwrap();
    let root = tree.to_str().unwrap();
    let user = crate::common::User { uid: 4321, gid: 4321, groups: Vec::new() };
    let index = place.path("index");
    let words = ["--index".as_ref(), index.as_os_str(), "stat".as_ref(), tree.as_os_str()];
    let is_seen = || user.run(place.canopy.as_os_str(), &words).status.success();
    let set = |mode| {
        let above = place.path("tree/on");
        fs::set_permissions(above, fs::Permissions::from_mode(mode)).unwrap();
    };
    set(0o711);
    assert!(run(&place, &["index", root]).status.success());
    assert!(is_seen());
    for (number, mode) in [(2, 0o700), (3, 0o711), (4, 0o755), (5, 0o711), (6, 0o700)] {
        set(mode);
        let scan = [&["index", "--incremental"][..], &[root]].concat();
        let more = [&scan[..], &["--trust-directory-times"]].concat();
        let output = run(&place, if number % 2 == 0 { &scan } else { &more });
        let expected = format!("generation {number}: ");
        assert!(said(&output).starts_with(&expected), "{mode:o}: {}", said(&output));
        assert_eq!(is_seen(), mode != 0o700, "{mode:o}");
    }
}

/// Users who search a gate and users who list it learn equally of changes of a source behind it,
/// whoever changed it and how.
#[test]
fn changes_of_a_source_behind_a_gate_reach_its_knowers() {
    let place = Fixture::new();
    let tree = place.path("tree/on/the/way");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::set_permissions(place.path("tree/on"), fs::Permissions::from_mode(0o711)).unwrap();
    let root = tree.to_str().unwrap();
    let sub = format!("{root}/sub");
    let user = crate::common::User { uid: 4321, gid: 4321, groups: Vec::new() };
    let index = place.path("index");
    let told = |is_root: bool| -> Vec<String> {
        [&["report", "--json", root][..], &["export", "--format", "csv", root]]
            .into_iter()
            .map(|words| {
                let words = [&["--index", index.to_str().unwrap()][..], words].concat();
                let words: Vec<&OsStr> = words.into_iter().map(OsStr::new).collect();
                let output = match is_root {
                    true => Command::new(&place.canopy).args(&words).output().unwrap(),
                    false => user.run(place.canopy.as_os_str(), &words),
                };
                assert!(output.status.success(), "{output:?}");
                let text = String::from_utf8(output.stdout).unwrap();
                let of_source = |line: &&str| line.contains("_ns\": ") || line.contains(root);
                let mut lines: Vec<&str> = text.lines().filter(of_source).collect();
                lines.sort_unstable();
                lines.join("\n").replace("published_ns", "").replace("asked_by", "")
            })
            .collect()
    };
    let mut before = Vec::new();
    for words in [
        &["index", "--name", "first", root][..],
        &["update", &sub],
        &["source", "rename", "first", "second"],
        &["index", "--incremental", root],
        &["index", &sub],
        &["index", root],
    ] {
        fs::write(tree.join("sub").join(words[0]), words.concat()).unwrap();
        assert!(run(&place, words).status.success(), "{words:?}");
        let now = told(false);
        assert_eq!(now, told(true), "{words:?}");
        assert_ne!(now, before, "{words:?}");
        before = now;
    }
    assert!(before[1].contains("second"), "{before:?}");
    let removed = run(&place, &["source", "remove", "second"]);
    assert!(removed.status.success());
    let words = ["--index".as_ref(), index.as_os_str(), "stat".as_ref(), tree.as_os_str()];
    let output = user.run(place.canopy.as_os_str(), &words);
    assert!(!output.status.success(), "{output:?}");
}

/// `tools/updated.rs` compares changes that set the times of directories with new indexes.
#[test]
fn directories_with_old_times_are_not_read() {
    let place = place();
    let file = place.path("tree/a/b/file");
    let size = || {
        let words = ["find", "TREE/a/b/file", "-printf", "%s"];
        said(&run(&place, &words))
    };
    let scan = |more: &[&str]| {
        let words = [&["index", "--incremental"], more, &["TREE"]].concat();
        let output = run(&place, &words);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        said(&output)
    };
    let trust = "--trust-directory-times";
    // The tree has just been made.
    fs::write(&file, "22").unwrap();
    scan(&[trust]);
    assert_eq!(size(), "2");
    std::thread::sleep(Duration::from_millis(2100));
    scan(&[]);
    fs::write(&file, "333").unwrap();
    let output = scan(&[trust]);
    assert!(!output.contains("are read"), "{output}");
    assert!(output.contains(": 1 file and 3 directories, "), "{output}");
    assert_eq!(size(), "2");
    // Whatever is new in a directory has it read, and what is below a directory that is closed.
    fs::write(place.path("tree/a/b/new"), "").unwrap();
    scan(&[trust]);
    assert_eq!((size().as_str(), listed(&place).len()), ("3", 5));
    fs::set_permissions(place.path("tree/a"), fs::Permissions::from_mode(0o700)).unwrap();
    scan(&[trust]);
    let user = crate::common::User { uid: 4321, gid: 4321, groups: Vec::new() };
    let (index, tree) = (place.path("index"), place.path("tree"));
    let words = ["--index".as_ref(), index.as_os_str(), "find".as_ref(), tree.as_os_str()];
    assert!(!said(&user.run(place.canopy.as_os_str(), &words)).contains("a/b"));

    // What other options have made is read.
    let output = scan(&[trust, "--exclude=new"]);
    assert!(output.contains("all directories of"), "{output}");
    assert!(!scan(&[trust, "--exclude=new"]).contains("are read"));
    assert!(run(&place, &["index", "--no-xattrs", "TREE/a/b"]).status.success());
    assert!(scan(&[trust, "--exclude=new"]).contains("all directories of"));
    assert_eq!(listed(&place), ["", "/a", "/a/b", "/a/b/file"]);
}

/// Only that it does not take less time can be told for sure.
#[test]
fn a_scan_is_no_faster_than_it_may_be() {
    let place = place();
    for directory in 0..20 {
        let directory = place.path(&format!("tree/{directory}"));
        fs::create_dir(&directory).unwrap();
        (0..99).for_each(|file| fs::write(directory.join(file.to_string()), "").unwrap());
    }
    for words in [
        &["index", "--max-rate=1000", "--threads=4", "TREE"][..],
        &["index", "--max-rate=1000", "--incremental", "TREE"],
        &["update", "--max-rate=1000", "--recursive", "TREE"],
    ] {
        let begun = Instant::now();
        let output = run(&place, words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", said(&output));
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(1900), "{words:?}: {took:?}");
        assert_eq!(listed(&place).len(), 2004);
    }
}

#[test]
fn suspects_come_from_standard_input() {
    let place = place();
    fs::write(place.path("tree/a/b/new"), "").unwrap();
    fs::create_dir_all(place.path("tree/c/d")).unwrap();
    let told = |text: &[u8]| {
        let mut command = Command::new(&place.canopy);
        command.arg("--index").arg(place.path("index")).args(["update", "--suspects"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text).unwrap();
        child.wait_with_output().unwrap()
    };
    let tree = place.path("tree");
    let output = told(format!("d{0}/a/b\0r{0}\0", tree.display()).as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(listed(&place), ["", "/a", "/a/b", "/a/b/file", "/a/b/new", "/c", "/c/d"]);
    // Alone, without the directory above.
    let alone = format!("o{}/c/d\0", tree.display());
    let expected = "nothing has changed since generation 2: ";
    assert!(said(&told(alone.as_bytes())).starts_with(expected));
    fs::write(place.path("tree/c/d/new"), "").unwrap();
    fs::write(place.path("tree/c/other"), "").unwrap();
    assert!(said(&told(alone.as_bytes())).starts_with("generation 3: "));
    assert!(listed(&place).contains(&"/c/d/new".to_owned()));
    assert!(!listed(&place).contains(&"/c/other".to_owned()));
    let output = told(b"whatever\0");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("no suspects"), "{}", said(&output));
}

#[test]
fn file_systems_without_files_stay_left_out() {
    let place = Fixture::new();
    fs::create_dir_all(place.path("tree/a/b/before")).unwrap();
    assert!(run(&place, &["index", "TREE"]).status.success());
    let point = place.path("tree/a/b");
    let status = Command::new("mount").args(["-t", "proc", "proc"]).arg(&point).status();
    assert!(status.unwrap().success());
    let mounted = crate::common::SmallDisk(point);
    assert!(run(&place, &["update", "TREE/a/b/self"]).status.success());
    assert_eq!(listed(&place), ["", "/a", "/a/b"]);
    drop(mounted);
    assert!(run(&place, &["update", "TREE/a/b/before"]).status.success());
    assert_eq!(listed(&place), ["", "/a", "/a/b", "/a/b/before"]);
}

#[test]
fn other_names_of_inodes_are_found() {
    let place = place();
    fs::create_dir_all(place.path("tree/c/d")).unwrap();
    fs::hard_link(place.path("tree/a/b/file"), place.path("tree/c/d/name")).unwrap();
    assert!(run(&place, &["update", "--recursive", "TREE"]).status.success());
    let inode = place.path("tree/a/b/file").metadata().unwrap().ino();
    fs::write(place.path("tree/a/b/file"), "longer").unwrap();
    let told = |below: &str| {
        let line = format!("i{inode}{}\0", place.path(below).display());
        let mut command = Command::new(&place.canopy);
        command.arg("--index").arg(place.path("index")).args(["update", "--suspects"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    };
    let sizes = || {
        let words = ["find", "TREE", "-type", "f", "-size", "+2c", "-printf", "%P\n"];
        let mut lines = Vec::from_iter(said(&run(&place, &words)).lines().map(str::to_owned));
        lines.sort();
        lines
    };
    told("tree/a/none");
    assert_eq!(sizes(), [""; 0]);
    told("tree/c");
    assert_eq!(sizes(), ["c/d/name"]);
    told("tree");
    assert_eq!(sizes(), ["a/b/file", "c/d/name"]);
}

/// `update` said of sources that are gone or were imported that they are in no source.
#[test]
fn sources_that_are_gone_or_imported_are_known() {
    let place = place();
    let (tree, away) = (place.path("tree"), place.path("away"));
    let export = run(&place, &["export", "--format=gufi-trace", "TREE"]);
    let trace = place.path("trace");
    std::fs::write(&trace, export.stdout).unwrap();
    let format = ["import", "--format=gufi-trace", "--root=/imported/tree"];
    let imported = run(&place, &[&format[..], &[trace.to_str().unwrap()]].concat());
    assert_eq!(imported.status.code(), Some(0), "{}", said(&imported));
    std::fs::rename(&tree, &away).unwrap();
    let gone = format!("the source {} is gone, or not mounted, and stays", tree.display());
    let unscanned = "the source /imported/tree was not scanned, so it cannot be listed again";
    for (path, error) in [
        ("TREE", &*gone),
        (tree.join("a/b").to_str().unwrap(), &*gone),
        ("/imported/tree", unscanned),
        ("/imported/tree/a", unscanned),
        ("/imported", "/imported does not exist, and is in no source of the index"),
    ] {
        let output = run(&place, &["update", path]);
        assert_eq!(output.status.code(), Some(2), "{path}: {}", said(&output));
        assert!(said(&output).contains(error), "{path}: {}", said(&output));
    }
    std::fs::rename(&away, &tree).unwrap();
    assert_eq!(run(&place, &["update", "TREE"]).status.code(), Some(0));
}

#[test]
fn wrong_words_are_one_clear_error() {
    let place = place();
    for (words, error) in [
        (&["update"][..], "missing <PATH>"),
        (
            &["update", "/etc"],
            "/etc is in no source of the index; 'canopy index PATH' makes it one",
        ),
        (
            &["update", "/nonexistent/path"],
            "/nonexistent/path does not exist, and is in no source of the index",
        ),
        (&["index", "--incremental", "--replace", "TREE"], "cannot be used with"),
        (&["index", "--trust-directory-times", "TREE"], "--incremental"),
        (&["update", "--memory=lots", "TREE"], "--memory"),
        (&["update", "--max-rate=0", "TREE"], "at least 1"),
        (&["index", "--max-rate=-1", "TREE"], "--max-rate"),
        (&["index", "--max-rate=10k", "TREE"], "a whole number of entries per second"),
        (&["update", "--errors=/nowhere/file", "TREE"], "/nowhere/file"),
    ] {
        let output = run(&place, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", said(&output));
        assert!(said(&output).contains(error), "{words:?}: {}", said(&output));
    }
    assert!(said(&run(&place, &["info"])).contains("generation  1"));
    let empty = place.path("empty");
    let output = place.canopy(&empty, &["update".as_ref(), place.path("tree").as_os_str()]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(!empty.exists(), "it makes no index");
    // An index that only root writes.
    let user = crate::common::User { uid: 4321, gid: 4321, groups: Vec::new() };
    let (index, tree) = (place.path("index"), place.path("tree"));
    let words = ["--index".as_ref(), index.as_os_str(), "update".as_ref(), tree.as_os_str()];
    let output = user.run(place.canopy.as_os_str(), &words);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

/// Damages files of the index whose names end so, or removes them.
fn damage(place: &Fixture, end: &str, is_gone: bool) {
    let is_one = |path: &std::path::PathBuf| path.to_string_lossy().ends_with(end);
    let paths = crate::common::all_paths(&place.path("index"));
    let paths: Vec<_> = paths.into_iter().filter(is_one).collect();
    assert!(!paths.is_empty(), "{end}");
    for path in paths {
        match is_gone {
            true => fs::remove_file(path).unwrap(),
            false => fs::write(path, "damaged").unwrap(),
        }
    }
}

/// Damaged parts of the index are replaced by listing the source anew: by an incremental scan, by
/// an update of all, and by the daemon's.
#[test]
fn damage_is_mended_by_what_lists_a_source_again() {
    let suspects = |place: &Fixture, words: &[&str]| {
        let mut run = Command::new(&place.canopy)
            .arg("--index")
            .arg(place.path("index"))
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let line = format!("d{}\0", place.path("tree/a").display());
        run.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
        run.wait_with_output().unwrap()
    };
    type Mend<'a> = &'a dyn Fn(&Fixture) -> Output;
    let mends: [Mend<'_>; 4] = [
        &|place| run(place, &["index", "--incremental", "TREE"]),
        &|place| run(place, &["index", "--incremental", "--trust-directory-times", "TREE"]),
        &|place| run(place, &["update", "--recursive", "TREE"]),
        &|place| suspects(place, &["update", "--suspects", "--repair"]),
    ];
    for mend in mends {
        for end in ["-page.bin", "-listings.parquet"] {
            for is_gone in [false, true] {
                let place = place();
                let named = run(&place, &["source", "rename", "TREE", "kept"]);
                assert!(named.status.success(), "{}", said(&named));
                fs::write(place.path("tree/a/new"), "").unwrap();
                damage(&place, end, is_gone);
                // If only one directory is named, this is not a reason to list all.
                for output in [
                    run(&place, &["update", "TREE/a"]),
                    suspects(&place, &["update", "--suspects"]),
                ] {
                    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
                    assert!(!said(&output).contains("scanned anew"), "{}", said(&output));
                }
                let output = mend(&place);
                assert_eq!(output.status.code(), Some(0), "{}", said(&output));
                let told = said(&output);
                assert!(told.contains(" is damaged: all of ") && told.contains(end), "{told}");
                let all = ["", "/a", "/a/b", "/a/b/file", "/a/new"];
                assert_eq!(listed(&place), all);
                assert!(said(&run(&place, &["info"])).contains("kept"));
                let output = run(&place, &["update", "TREE/a"]);
                assert_eq!(output.status.code(), Some(0), "{}", said(&output));
            }
        }
    }
}

#[test]
fn a_list_of_errors_is_emptied_where_nothing_is_listed() {
    let place = place();
    let list = place.path("list");
    fs::write(&list, "of an earlier run\n").unwrap();
    let mut update = Command::new(&place.canopy)
        .arg("--index")
        .arg(place.path("index"))
        .args(["update", "--suspects", "--errors"])
        .arg(&list)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // An inode that the index does not have.
    let line = format!("i1{}\0", place.path("tree").display());
    update.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
    assert!(update.wait().unwrap().success());
    assert_eq!(fs::read_to_string(&list).unwrap(), "");
}

/// Every run of `canopy index` checks the files that readers need and the writer does not, even if
/// the tree has not changed.
#[test]
#[expect(clippy::too_many_lines, reason = "one course of steps")]
fn files_for_users_are_corrected_though_nothing_has_changed() {
    let place = Fixture::new();
    let bob = User { uid: 2002, gid: 3002, groups: vec![3002] };
    for (path, mode, uid, gid) in [
        ("", 0o755, 0, 0),
        ("/team", 0o750, 0, 3002),
        ("/bob", 0o700, 2002, 0),
        ("/gate", 0o711, 0, 0),
        ("/gate/open", 0o755, 0, 0),
    ] {
        let path = place.path("tree").join(path.trim_start_matches('/'));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "x").unwrap();
        chown(&path, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    place.index(&place.path("index"), &place.path("tree"));
    let find = || {
        let names = ["bob", "team", "gate/open"].map(|name| place.path("tree").join(name));
        let mut words: Vec<&OsStr> = names.iter().map(|path| path.as_os_str()).collect();
        let index = place.path("index");
        words.splice(0..0, ["--index".as_ref(), index.as_os_str(), "find".as_ref()]);
        let output = bob.run(place.canopy.as_os_str(), &words);
        let tree = place.path("tree").to_str().unwrap().to_owned();
        let lines = String::from_utf8_lossy(&output.stdout).replace(&tree, "");
        let mut lines: Vec<String> = lines.lines().map(str::to_owned).collect();
        lines.sort();
        (lines, output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let all = ["/bob", "/bob/file", "/gate/open", "/gate/open/file", "/team", "/team/file"];
    let is_whole = || {
        let (found, code, told) = find();
        assert_eq!((found, code, &*told), (all.map(str::to_owned).to_vec(), Some(0), ""));
    };
    let incremental = || {
        let output = run(&place, &["index", "--incremental", "TREE"]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        said(&output)
    };
    is_whole();
    let is_one = |path: &Path, name: &str| {
        let path = path.to_str().unwrap();
        path.contains(name) && path.ends_with(".bin")
    };
    for name in ["/catalog-", "/lists/u2002-", "/lists/g3002-", "/manifest-", "-sealed"] {
        for is_gone in [true, false] {
            let paths = crate::common::all_paths(&place.path("index"));
            let paths: Vec<_> = paths.iter().filter(|path| is_one(path, name)).collect();
            assert!(!paths.is_empty(), "{name}");
            for path in paths {
                match is_gone {
                    true => fs::remove_file(path).unwrap(),
                    false => fs::write(path, "damaged").unwrap(),
                }
            }
            let (_, code, told) = find();
            assert_eq!(code, Some(2), "{name} {told}");
            assert!(told.contains(name.trim_matches('/')), "{told}");
            assert!(told.contains("'canopy check"), "{told}");
            assert!(incremental().contains(" is damaged"), "{name}");
            is_whole();
            assert!(incremental().contains("nothing has changed"), "{name}");
        }
    }
    let chmod = |mode: u32, name: &str, end: &str| {
        let paths = crate::common::all_paths(&place.path("index"));
        let is_one = |path: &&std::path::PathBuf| {
            let text = path.to_str().unwrap();
            text.contains(name) && text.ends_with(end)
        };
        let paths: Vec<_> = paths.iter().filter(is_one).collect();
        assert!(!paths.is_empty(), "{name} {end}");
        paths.iter().for_each(|path| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        });
    };
    for (name, end, told) in [
        ("/catalog-", ".bin", "is to be written anew"),
        ("/CURRENT", "", "is to be written anew"),
        ("/manifest-", ".bin", "is to be written anew"),
        ("-page.bin", "", "is scanned anew"),
        ("-entries.parquet", "", "is scanned anew"),
        ("-sealed.bin", "", "is scanned anew"),
    ] {
        chmod(0o600, name, end);
        let (_, code, said) = find();
        assert_eq!(code, Some(2), "{name} {said}");
        assert!(incremental().contains(told), "{name}");
        is_whole();
        assert!(incremental().contains("nothing has changed"), "{name}");
    }
    for name in ["/lists", "/classes"] {
        chmod(0o700, name, name);
        let (found, code, told) = find();
        assert!(found.len() < all.len() && code == Some(1), "{found:?} {told}");
        assert!(told.contains("answers may lack what not everybody sees"), "{told}");
        assert!(incremental().contains("nothing has changed"), "{name}");
        is_whole();
    }
    // To a user namespace that does not know the users, what is right looks wrong.
    fs::create_dir(place.path("other")).unwrap();
    place.index(&place.path("index"), &place.path("other"));
    let inside = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(&place.canopy)
        .arg("--index")
        .arg(place.path("index"))
        .args(["index", "--incremental"])
        .arg(place.path("other"))
        .output()
        .unwrap();
    assert_eq!(inside.status.code(), Some(0), "{}", said(&inside));
    assert!(said(&inside).contains("nothing has changed"), "{}", said(&inside));
    is_whole();
    // Copied without permissions, it shows less, and says so.
    let mut copied = Command::new("cp");
    copied.arg("-r").args([place.path("index"), place.path("copy")]);
    assert!(copied.status().unwrap().success());
    fs::remove_dir_all(place.path("index")).unwrap();
    fs::rename(place.path("copy"), place.path("index")).unwrap();
    let (found, code, told) = find();
    assert!(found.len() < all.len() && code != Some(0), "{found:?} {told}");
    assert!(told.contains("answers may lack what not everybody sees"), "{told}");
    assert!(incremental().contains("not for whom it should be"));
    is_whole();
    assert!(incremental().contains("nothing has changed"));
}

#[test]
fn a_list_of_errors_is_no_file_of_the_index() {
    let place = place();
    for words in [["index", "--errors"], ["update", "--errors"]] {
        let current = place.path("index/CURRENT");
        let before = fs::read(&current).unwrap();
        let output = run(&place, &[words[0], words[1], current.to_str().unwrap(), "TREE"]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("it would be in the index"), "{}", said(&output));
        assert_eq!(fs::read(&current).unwrap(), before);
    }
}
