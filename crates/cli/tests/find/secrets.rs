//! Secrets that an index must keep: cases by name, each as the user who must not learn it. Needs
//! root.

use crate::common;

use common::{Fixture, User, all_paths};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const ALICE: u32 = 2001;

fn bob() -> User {
    User { uid: 2002, gid: 3002, groups: vec![3002] }
}

fn dir(path: &Path, mode: u32, owner: u32) {
    fs::create_dir_all(path).unwrap();
    chown(path, Some(owner), Some(owner + 1000)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn file(path: &Path, owner: u32) {
    fs::write(path, b"x").unwrap();
    chown(path, Some(owner), Some(owner + 1000)).unwrap();
}

/// All that a user gets out of an index by its commands and by reading its files.
fn all_seen(place: &Fixture, index: &Path, tree: &Path, user: &User) -> String {
    let index_text = index.as_os_str();
    let mut seen = String::new();
    let queries = [
        "entries",
        "directories",
        "summaries",
        "trees",
        "usage",
        "xattrs",
        "acls",
        "layouts",
        "stripes",
        "directory_layouts",
        "hsm",
    ]
    .map(|table| format!("SELECT * FROM {table}"));
    let mut commands: Vec<Vec<&OsStr>> = vec![
        vec!["find".as_ref(), tree.as_os_str(), "-ls".as_ref()],
        vec!["du".as_ref(), "-a".as_ref(), tree.as_os_str()],
        vec!["info".as_ref()],
    ];
    commands.extend(queries.iter().map(|query| vec!["sql".as_ref(), OsStr::new(query.as_str())]));
    for command in commands {
        let mut arguments = vec!["--index".as_ref(), index_text];
        arguments.extend(command);
        let output = user.run(place.canopy.as_os_str(), &arguments);
        seen += &String::from_utf8_lossy(&output.stdout);
        seen += &String::from_utf8_lossy(&output.stderr);
    }
    let files = user.run("find".as_ref(), &[index_text, "-type".as_ref(), "f".as_ref()]);
    for file in String::from_utf8_lossy(&files.stdout).lines() {
        seen += &String::from_utf8_lossy(
            &user.run("strings".as_ref(), &["-n3".as_ref(), file.as_ref()]).stdout,
        );
        seen += file;
    }
    seen
}

/// A rollup of GUFI merges a directory with mode 0755 and one with mode 0700 below it when both
/// belong to the same owner, and shows what is in the second to all who may read the first.
#[test]
fn a_private_directory_below_a_public_one_of_the_same_owner_stays_private() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    dir(&tree, 0o755, 0);
    dir(&tree.join("public"), 0o755, ALICE);
    dir(&tree.join("public/private"), 0o700, ALICE);
    file(&tree.join("public/report"), ALICE);
    file(&tree.join("public/private/merger-plan"), ALICE);
    rustix::fs::setxattr(
        tree.join("public/private/merger-plan"),
        "user.buyer",
        b"secret-buyer",
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    place.index(&index, &tree);
    let alice = User { uid: ALICE, gid: 3001, groups: vec![3001] };
    assert!(all_seen(&place, &index, &tree, &alice).contains("merger-plan"));
    // At any stage: before, while and after the index is made again.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) || looks == 0 {
                let seen = all_seen(&place, &index, &tree, &bob());
                assert!(!seen.contains("merger-plan") && !seen.contains("secret-buyer"), "{seen}");
                looks += 1;
            }
        });
        for _ in 0..10 {
            place.index(&index, &tree);
        }
        done.store(true, Ordering::Relaxed);
        watch.join().unwrap();
    });
    let seen = all_seen(&place, &index, &tree, &bob());
    assert!(
        seen.contains("report") && !seen.contains("merger-plan") && !seen.contains("secret-buyer")
    );
}

/// A user who may enter a directory but not list it finds entries in it by name, and learns no
/// name.
#[test]
fn a_gate_is_passed_by_those_who_know_a_name_and_tells_none() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    dir(&tree, 0o755, 0);
    dir(&tree.join("homes"), 0o711, 0);
    for (name, owner) in [("alice-hidden", ALICE), ("bob-hidden", 2002)] {
        dir(&tree.join("homes").join(name), 0o755, owner);
        file(&tree.join("homes").join(name).join("inner-file"), owner);
    }
    file(&tree.join("homes/loose-file"), 0);
    place.index(&index, &tree);
    let seen = all_seen(&place, &index, &tree, &bob());
    for name in ["alice-hidden", "bob-hidden", "inner-file", "loose-file"] {
        assert!(!seen.contains(name), "{name} in {seen}");
    }
    let run = |path: &str| -> (String, bool) {
        let path: PathBuf = tree.join(path);
        let output = bob().run(
            place.canopy.as_os_str(),
            &[
                "--index".as_ref(),
                index.as_os_str(),
                "find".as_ref(),
                path.as_os_str(),
                "-printf".as_ref(),
                "%P;".as_ref(),
            ],
        );
        (String::from_utf8(output.stdout).unwrap(), output.status.success())
    };
    assert_eq!(run("homes/alice-hidden"), (";inner-file;".to_owned(), true));
    assert_eq!(run("homes/loose-file"), (";".to_owned(), true));
    assert_eq!(run("homes/carol"), (String::new(), false));
    assert_eq!(run("homes"), (";".to_owned(), true));
    let query = format!(
        "SELECT name FROM entries WHERE path LIKE '{}/homes/alice-hidden/%'",
        tree.display()
    );
    let arguments: [&OsStr; 6] = [
        "--index".as_ref(),
        index.as_os_str(),
        "sql".as_ref(),
        "--format".as_ref(),
        "csv".as_ref(),
        query.as_ref(),
    ];
    let output = bob().run(place.canopy.as_os_str(), &arguments);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "name\ninner-file\n");
}

/// The files of an index that a user can open, whatever their names: those that root finds.
fn readable<'a>(files: &'a [PathBuf], user: &User) -> Vec<&'a PathBuf> {
    let opens = |path: &&PathBuf| {
        path.is_file()
            && user.run("head".as_ref(), &["-c1".as_ref(), path.as_os_str()]).status.success()
    };
    files.iter().filter(opens).collect()
}

/// Below a directory that is closed to Bob, Alice shares with users and groups. Bob learns neither
/// that there is such a class nor with whom she shares, also not by looking at each file of the index.
#[test]
fn nobody_learns_what_others_share() {
    const GROUP: u32 = 424_242;
    const FRIEND: u32 = 434_343;
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    dir(&tree, 0o755, 0);
    dir(&tree.join("project"), 0o750, ALICE);
    chown(tree.join("project"), None, Some(GROUP)).unwrap();
    file(&tree.join("project/plan"), ALICE);
    let shared = tree.join("project/shared");
    dir(&shared, 0o700, ALICE);
    let acl = format!("u:{FRIEND}:rx,m:rx");
    let set = std::process::Command::new("setfacl").arg("-m").arg(&acl).arg(&shared).status();
    assert!(set.unwrap().success());
    file(&shared.join("draft"), ALICE);
    dir(&tree.join("of-bob"), 0o700, 2002);
    place.index(&index, &tree);

    let user = |uid, gid| User { uid, gid, groups: vec![gid] };
    for (who, sees) in [
        (user(ALICE, 3001), ["plan", "draft"].as_slice()),
        (user(2005, GROUP), &["plan"]),
        (user(FRIEND, GROUP), &["plan", "draft"]),
        (user(FRIEND, 3003), &[]),
        (bob(), &[]),
    ] {
        let seen = all_seen(&place, &index, &tree, &who);
        for name in ["plan", "draft"] {
            assert_eq!(seen.contains(name), sees.contains(&name), "{who:?}: {name}");
        }
    }
    for closed in ["classes", "lists"] {
        let listed = bob().run("ls".as_ref(), &[index.join(closed).as_os_str()]);
        assert!(!listed.status.success() && listed.stdout.is_empty(), "{closed}");
    }
    let files = all_paths(&index);
    let mine = readable(&files, &bob());
    let classes = std::fs::read_dir(index.join("classes")).unwrap();
    let classes: Vec<String> =
        classes.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut known = Vec::new();
    for path in &mine {
        let bytes = fs::read(path).unwrap();
        let said = canopy_index::fuzzing::describe(&bytes).unwrap_or_default();
        let numbers = [GROUP, FRIEND].map(|id| id.to_string());
        // The catalog says who has a list, and no more.
        if !path.file_name().unwrap().to_string_lossy().starts_with("catalog") {
            assert!(!numbers.iter().any(|number| said.contains(number)), "{path:?}: {said}");
        }
        let tag = |name: &&String| {
            let tag = u128::from_str_radix(name, 16).unwrap().to_be_bytes();
            bytes.windows(tag.len()).any(|window| window == tag)
        };
        known.extend(classes.iter().filter(tag));
    }
    // That of the directory of his own.
    assert_eq!((known.len(), classes.len()), (1, 3), "{mine:?}");
}
