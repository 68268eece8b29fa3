//! Files that canopy did not make stay as they are, wherever an index is put and whatever somebody
//! put into it. Needs root.

use crate::common;

use common::{Fixture, User};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

/// All that is below a directory, links not followed: kind, path, content.
fn snapshot(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            let holds = match about.file_type() {
                kind if kind.is_dir() => {
                    waiting.push(path.clone());
                    String::new()
                }
                kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
                _ => format!("{:?}", fs::read(&path).unwrap()),
            };
            found.push(format!("{} {holds}", path.display()));
        }
    }
    found.sort();
    found
}

/// Files and directories with names such as an index has.
fn fill(directory: &Path) {
    for path in [
        "results.parquet",
        "image.bin",
        "CURRENT.new",
        "manifests-1.bin",
        "classes/1-0-entries.parquet",
        "classes/g0/manifest-1.bin",
        "g1/data.parquet",
        "home/a.bin",
        "k2-3/p0/x.parquet",
        "papers/thesis.parquet",
    ] {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "precious").unwrap();
    }
    fs::create_dir_all(directory.join("games/empty")).unwrap();
}

fn tree(place: &Fixture) -> PathBuf {
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("sub/file"), "x").unwrap();
    tree
}

fn index(place: &Fixture, index: &Path, tree: &Path) -> (i32, String) {
    let output = place.canopy(index, &["index".as_ref(), tree.as_os_str()]);
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_directory_that_is_no_index_is_left_alone() {
    let place = Fixture::new();
    let tree = tree(&place);
    let (data, home) = (place.path("data"), place.path("home"));
    fill(&data);
    fill(&home);
    // A file named as the marker, but none; and with what a crash of the first writer may leave.
    let (foreign, torn) = (place.path("foreign"), place.path("torn"));
    fill(&foreign);
    fs::write(foreign.join("lock"), "12345\n").unwrap();
    fill(&torn);
    fs::write(torn.join("lock"), "").unwrap();
    for directory in [&data, &foreign, &torn] {
        let before = snapshot(directory);
        for path in [tree.as_path(), Path::new("/no/such/tree")] {
            let (code, errors) = index(&place, directory, path);
            assert_eq!(code, 2, "{errors}");
            assert!(errors.contains("is not empty and no index of canopy's"), "{errors}");
        }
        assert_eq!(snapshot(directory), before);
    }
    // A user's own home.
    let user = User { uid: 2001, gid: 3001, groups: Vec::new() };
    for path in common::all_paths(&home) {
        chown(path, Some(user.uid), Some(user.gid)).unwrap();
    }
    let before = snapshot(&home);
    let arguments = ["--index".as_ref(), home.as_os_str(), "index".as_ref(), home.as_os_str()];
    let output = user.run(place.canopy.as_os_str(), &arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("is not empty and no index of canopy's"), "{errors}");
    assert_eq!(snapshot(&home), before);
    // Neither a pipe nor a link counts as the marker.
    for (name, pipe) in [("pipe", true), ("link", false)] {
        let directory = place.path(name);
        fs::create_dir(&directory).unwrap();
        let lock = directory.join("lock");
        match pipe {
            true => nix::unistd::mkfifo(&lock, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            false => symlink(tree.join("sub/file"), &lock).unwrap(),
        }
        let (code, errors) = index(&place, &directory, &tree);
        assert_eq!(code, 2, "{errors}");
        assert!(errors.contains("no index of canopy's"), "{errors}");
    }
    assert_eq!(fs::read_to_string(tree.join("sub/file")).unwrap(), "x");
}

#[test]
fn files_that_others_put_into_an_index_stay() {
    let place = Fixture::new();
    let (tree, own) = (tree(&place), place.path("index"));
    place.index(&own, &tree);
    // In classes that go away, too: the private directory is indexed once.
    let private = tree.join("private");
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    chown(&private, Some(2001), None).unwrap();
    place.index(&own, &tree);
    let class = fs::read_dir(own.join("classes")).unwrap().map(|entry| entry.unwrap().path());
    let class = class.into_iter().find(|path| path.is_dir()).unwrap();
    let mine = [
        own.join("notes.parquet"),
        own.join("old.bin"),
        own.join("everyone/1-99-entries.parquet"),
        class.join("1-0-mine.parquet"),
    ];
    mine.iter().for_each(|path| fs::write(path, "precious").unwrap());
    fs::remove_dir(&private).unwrap();
    for _ in 0..4 {
        place.index(&own, &tree);
    }
    assert!(place.canopy(&own, &["compact".as_ref(), "--replace".as_ref()]).status.success());
    for path in &mine {
        assert_eq!(fs::read_to_string(path).unwrap(), "precious", "{}", path.display());
    }
    let files = |kind: &str| {
        let entries = fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().file_name());
        entries.filter(|name| name.to_string_lossy().starts_with(kind)).count()
    };
    assert_eq!((files("manifests-"), files("leaving-"), files("journal")), (1, 0, 0));
}

#[test]
fn no_link_leads_a_writer_out_of_its_index() {
    let place = Fixture::new();
    let tree = tree(&place);
    let victim = place.path("victim");
    let private = tree.join("private");
    fs::create_dir_all(&private).unwrap();
    fs::set_permissions(&private, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    chown(&private, Some(2001), None).unwrap();
    for name in [
        "everyone",
        "classes",
        "lists",
        "a class",
        "CURRENT",
        "CURRENT.new",
        "journal",
        "failures.new",
    ] {
        let own = place.path(&format!("index-of-{name}"));
        let victim = victim.join(name);
        fs::create_dir_all(&victim).unwrap();
        place.index(&own, &tree);
        // What the next two runs would remove or write there.
        for path in common::all_paths(&own).iter().filter(|path| path.is_file()) {
            fs::copy(path, victim.join(path.file_name().unwrap())).unwrap();
        }
        fs::write(victim.join("file"), "precious").unwrap();
        let replaced = match name {
            "a class" => fs::read_dir(own.join("classes")).unwrap().next().unwrap().unwrap().path(),
            name => own.join(name),
        };
        let is_dir = replaced.is_dir();
        if replaced.exists() {
            fs::rename(&replaced, place.path(&format!("moved-{name}"))).unwrap();
        }
        let target = if is_dir { victim.clone() } else { victim.join("file") };
        symlink(&target, &replaced).unwrap();
        let before = snapshot(&victim);
        for path in [tree.as_os_str(), OsStr::new("/no/such/tree")] {
            for _ in 0..3 {
                let output = place.canopy(&own, &["index".as_ref(), path]);
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(!errors.contains("panicked"), "{errors}");
                assert_eq!(snapshot(&victim), before, "{name}: {errors}");
            }
        }
    }
}

#[test]
fn a_marker_alone_gives_no_right_to_anything() {
    let place = Fixture::new();
    let tree = tree(&place);
    let (own, other) = (place.path("index"), place.path("other"));
    place.index(&own, &tree);
    place.index(&other, &tree);
    // A directory with a marker and no manifest.
    let data = place.path("data");
    fill(&data);
    fs::copy(own.join("lock"), data.join("lock")).unwrap();
    let before = snapshot(&data);
    index(&place, &data, &tree);
    let after = snapshot(&data);
    for line in &before {
        assert!(after.contains(line), "{line} is gone");
    }
    // The documents of one index beside the marker of another.
    fs::copy(other.join("lock"), own.join("lock")).unwrap();
    let before = snapshot(&own);
    let (code, errors) = index(&place, &own, &tree);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("of another index than the file 'lock'"), "{errors}");
    assert_eq!(snapshot(&own), before);
}

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_list_of_errors_goes_into_no_file_of_another() {
    let place = Fixture::new();
    let (tree, own) = (tree(&place), place.path("index"));
    let precious = place.path("precious");
    fs::write(&precious, "precious").unwrap();
    fs::set_permissions(&precious, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let (link, hard, theirs) = (place.path("link"), place.path("hard"), place.path("theirs"));
    symlink(&precious, &link).unwrap();
    fs::hard_link(&precious, &hard).unwrap();
    fs::write(&theirs, "theirs").unwrap();
    chown(&theirs, Some(2003), None).unwrap();
    for (list, why) in
        [(&link, "a symbolic link"), (&hard, "other names"), (&theirs, "belongs to uid 2003")]
    {
        let words = ["index".as_ref(), "--errors".as_ref(), list.as_os_str(), tree.as_os_str()];
        let output = place.canopy(&own, &words);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(why), "{}", said(&output));
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&precious.metadata().unwrap().permissions())
            & 0o777,
        0o644
    );
    // Special files, and an earlier output of one's own, are written to.
    fs::remove_file(&link).unwrap();
    for list in [&PathBuf::from("/dev/null"), &link, &link] {
        let words = ["index".as_ref(), "--errors".as_ref(), list.as_os_str(), tree.as_os_str()];
        let output = place.canopy(&own, &words);
        assert!(output.status.success(), "{}", said(&output));
    }
    // A link of another one may lead to a device, and whoever has a pipe reads what is listed.
    let (device, pipe) = (place.path("device"), place.path("pipe"));
    symlink("/dev/null", &device).unwrap();
    std::os::unix::fs::lchown(&device, Some(2003), None).unwrap();
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
    chown(&pipe, Some(2003), None).unwrap();
    for (list, command) in [(&device, "index"), (&pipe, "index"), (&pipe, "update")] {
        let words = [command.as_ref(), "--errors".as_ref(), list.as_os_str(), tree.as_os_str()];
        let output = place.canopy(&own, &words);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("uid 2003"), "{}", said(&output));
    }
    // Nor does a list grow from run to run.
    let list = place.path("list");
    for command in ["index", "update"] {
        fs::write(&list, "before").unwrap();
        let words = [command.as_ref(), "--errors".as_ref(), list.as_os_str(), tree.as_os_str()];
        assert!(place.canopy(&own, &words).status.success());
        assert_eq!(fs::read_to_string(&list).unwrap(), "", "{command}");
    }
}

/// Users who may write to a directory could swap its contents for links while an index is made.
#[test]
fn the_way_to_an_index_leads_through_no_directory_of_others() {
    let place = Fixture::new();
    let tree = tree(&place);
    for (name, mode, owner, is_safe) in
        [("theirs", 0o755, 2003, false), ("open", 0o777, 0, false), ("sticky", 0o1777, 0, true)]
    {
        let directory = place.path(name);
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
        chown(&directory, Some(owner), None).unwrap();
        symlink(place.dir.path(), directory.join("link")).unwrap();
        let made = format!("made_by_{name}");
        let index = directory.join("link").join(&made);
        let output = place.canopy(&index, &["index".as_ref(), tree.as_os_str()]);
        assert_eq!(output.status.code(), Some(if is_safe { 0 } else { 2 }), "{}", said(&output));
        assert_eq!(said(&output).contains("is not a safe place"), !is_safe, "{}", said(&output));
        assert_eq!(place.path(&made).exists(), is_safe);
    }
}

/// The owner of a symbolic link decides where a path leads.
#[test]
fn links_of_others_lead_neither_to_an_index_nor_to_a_source() {
    let place = Fixture::new();
    let tree = tree(&place);
    let shared = place.path("shared");
    fs::create_dir(&shared).unwrap();
    let (theirs, mine) = (shared.join("theirs"), place.path("mine"));
    symlink(place.dir.path(), &theirs).unwrap();
    std::os::unix::fs::lchown(&theirs, Some(2003), None).unwrap();
    symlink(&theirs, &mine).unwrap();
    for link in [&theirs, &mine] {
        let output = place.canopy(&link.join("made"), &["index".as_ref(), tree.as_os_str()]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("is a symbolic link of uid 2003"), "{}", said(&output));
        assert!(!place.path("made").exists());
        let source = link.join("tree");
        let output = place.canopy(&place.path("index"), &["index".as_ref(), source.as_os_str()]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("is a symbolic link of uid 2003"), "{}", said(&output));
    }
    // One's own leads on.
    let own = place.path("own");
    symlink(place.dir.path(), &own).unwrap();
    place.index(&own.join("made"), &own.join("tree"));
}

/// A start that was a directory when it was indexed, and is a link by now.
#[test]
fn commands_run_in_no_directory_that_a_link_has_replaced() {
    let place = Fixture::new();
    let (tree, own) = (tree(&place), place.path("index"));
    let (work, other) = (tree.join("sub"), place.path("other"));
    place.index(&own, &tree);
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "precious").unwrap();
    fs::rename(&work, tree.join("moved")).unwrap();
    symlink(&other, &work).unwrap();
    let words: Vec<&OsStr> =
        ["-name", "file", "-execdir", "cat", "{}", ";"].map(OsStr::new).to_vec();
    let output = place.canopy(&own, &[&["find".as_ref(), work.as_os_str()], &words[..]].concat());
    assert!(!String::from_utf8_lossy(&output.stdout).contains("precious"), "{output:?}");
    assert!(!said(&output).is_empty());
    // The target of the link, followed on purpose.
    let follow: [&OsStr; 3] = ["find".as_ref(), "-H".as_ref(), work.as_os_str()];
    let output = place.canopy(&own, &[&follow, &words[..]].concat());
    assert!(String::from_utf8_lossy(&output.stdout).contains("precious"), "{output:?}");
}
