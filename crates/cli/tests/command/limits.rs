//! Trees and systems that an index has to say no to, or less than all: long paths, file systems
//! with rules of their own, user namespaces, umasks. Needs root.

use crate::common;

use common::{Fixture, User};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn bob() -> User {
    User { uid: 2002, gid: 3002, groups: vec![3002] }
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// Makes nested directories with long names, and gives the last.
pub(super) fn chain(root: &Path, levels: usize) -> rustix::fd::OwnedFd {
    let name = "n".repeat(255);
    let open = |at: rustix::fd::BorrowedFd<'_>, name: &str| {
        rustix::fs::openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    };
    let mut last =
        rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(&last, &*name, 0o755.into()).unwrap();
        last = open(rustix::fd::AsFd::as_fd(&last), &name);
    }
    last
}

/// A scan had every directory of a path open at once, and left out what lies deeper than the system
/// allows open files.
#[test]
fn trees_may_be_deeper_than_files_may_be_open() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    fs::create_dir(&tree).unwrap();
    for chain in 0..6 {
        let path = (0..60).fold(tree.clone(), |path, level| path.join(format!("c{chain}l{level}")));
        fs::create_dir_all(&path).unwrap();
        // Each level is come back to, when those above it were closed.
        path.ancestors().take(60).for_each(|level| fs::write(level.join("z-file"), "").unwrap());
        path.ancestors().take(60).for_each(|level| fs::create_dir(level.join("z-dir")).unwrap());
    }
    let command = |words: &[&str], open_max: u32| {
        let mut run = Command::new("sh");
        run.args(["-c", &format!("ulimit -n {open_max}; exec \"$@\""), "sh"]);
        run.arg(&place.canopy).arg("--index").arg(&index).args(words).arg(&tree);
        run.output().unwrap()
    };
    for open_max in [48, 64, 100] {
        for words in [&["index"][..], &["index", "--incremental"], &["index", "--threads", "2"]] {
            let run = command(words, open_max);
            assert_eq!(run.status.code(), Some(0), "{open_max} {words:?}: {}", text(&run.stderr));
            let expected = Command::new("find").arg(&tree).output().unwrap();
            let found = command(&["find"], open_max);
            let (found, expected) = (&found.stdout, &expected.stdout);
            common::assert_same(
                &common::sorted(found, b'\n'),
                &common::sorted(expected, b'\n'),
                &format!("{open_max} {words:?}"),
            );
        }
    }
}

#[test]
fn paths_beyond_the_limit_are_counted_and_left_out() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("short"), "").unwrap();
    let last = chain(&tree, 16);
    for name in ["one", "two"] {
        rustix::fs::mkdirat(&last, name, 0o755.into()).unwrap();
    }
    drop(last);
    let run = |path_max: &str| -> Output {
        Command::new(&place.canopy)
            .args(["--index".as_ref(), index.as_os_str(), "index".as_ref(), tree.as_os_str()])
            .env("CANOPY_PATH_MAX", path_max)
            .output()
            .unwrap()
    };
    let short = run("4096");
    let said = text(&short.stderr);
    assert_eq!(short.status.code(), Some(1), "{said}");
    assert!(said.contains("what is in 2 directories is left out") && said.contains("nnn..."));
    assert!(text(&short.stdout).contains(": 1 file and 19 directories, "), "{short:?}");
    // Sums were silently too small.
    for words in [&["du", "-s"][..], &["du"], &["du", "-a"]] {
        let words = words.iter().map(OsStr::new).chain([tree.as_os_str()]);
        let summed = place.canopy(&index, &Vec::from_iter(words));
        assert_eq!(summed.status.code(), Some(1), "{summed:?}");
        let said = text(&summed.stderr);
        assert!(
            said.contains("cannot read directory") && said.contains("not in the index"),
            "{said}"
        );
    }
    let whole = run("5000");
    assert!(whole.status.success() && whole.stderr.is_empty(), "{whole:?}");
    let summed = place.canopy(&index, &["du".as_ref(), "-s".as_ref(), tree.as_os_str()]);
    assert!(summed.status.success() && summed.stderr.is_empty(), "{summed:?}");
    assert!(text(&whole.stdout).contains(": 1 file and 19 directories, "), "{whole:?}");
    assert_eq!(run("100").status.code(), Some(2));
}

/// Threads hold the names of what they still have to read, not the paths.
#[test]
fn many_directories_at_the_end_of_a_long_path_take_little_memory() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    fs::create_dir(&tree).unwrap();
    let last = chain(&tree, 250);
    for number in 0..4000 {
        rustix::fs::mkdirat(&last, format!("{number}"), 0o755.into()).unwrap();
        let name = format!("{number}/file");
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = rustix::fs::openat(&last, name, flags, 0o644.into()).unwrap();
        rustix::fs::fsetxattr(&file, "user.a", b"v", rustix::fs::XattrFlags::empty()).unwrap();
    }
    let output = Command::new(&place.canopy)
        .args(["--index".as_ref(), index.as_os_str(), "index".as_ref(), tree.as_os_str()])
        .args(["--memory", "64M"])
        .env("CANOPY_PATH_MAX", "65536")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    // Of the largest of all commands that this test has run.
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN);
    let kilobytes = usage.unwrap().max_rss();
    assert!(kilobytes < 400 << 10, "{kilobytes} kB");
}

/// On tmpfs, a file may have any number of extended attributes.
#[test]
fn values_of_one_file_take_bounded_memory() {
    let place = Fixture::new();
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = shm.path().join("file");
    fs::write(&file, "").unwrap();
    for number in 0..1000 {
        let (name, value) = (format!("trusted.n{number}"), [b'v'; 60_000]);
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&file, name, &value, flags).unwrap();
    }
    let (index, errors) = (place.path("index"), place.path("errors"));
    let words: [&OsStr; 4] =
        ["index".as_ref(), "--errors".as_ref(), errors.as_ref(), shm.path().as_ref()];
    let output = place.canopy(&index, &words);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let listed = fs::read_to_string(&errors).unwrap();
    assert!(listed.contains("cannot read the extended attributes of"), "{listed}");
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN);
    let kilobytes = usage.unwrap().max_rss();
    assert!(kilobytes < 150 << 10, "{kilobytes} kB");
    // What there was room for is there.
    let words: [&OsStr; 4] =
        ["find".as_ref(), shm.path().as_ref(), "-xattr".as_ref(), "trusted.n0".as_ref()];
    assert!(place.canopy(&index, &words).status.success());
}

/// Runs a script in a mount namespace of its own.
fn with_mounts(place: &Fixture, script: &str) -> Output {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script]);
    command.env("C", &place.canopy).current_dir(place.dir.path()).output().unwrap()
}

#[test]
fn file_systems_without_files_are_left_out_unless_asked_for() {
    let place = Fixture::new();
    fs::create_dir_all(place.path("tree/proc")).unwrap();
    fs::create_dir_all(place.path("tree/disk")).unwrap();
    let mounted =
        "mount -t proc proc tree/proc; mount -t tmpfs tmpfs tree/disk; echo > tree/disk/f;";
    let indexed = |options: &str| {
        let output = with_mounts(
            &place,
            &format!(
                "{mounted} $C --index i index {options} tree >&2 || [ $? = 1 ]
                 $C --index i find tree
                 echo --
                 setpriv --reuid 2002 --clear-groups $C --index i find tree"
            ),
        );
        assert!(output.status.success(), "{output:?}");
        let found = text(&output.stdout);
        let (root, user) = found.split_once("--\n").unwrap();
        (root.to_owned(), user.to_owned(), text(&output.stderr))
    };
    let (root, user, said) = indexed("");
    let paths = ["tree", "tree/disk", "tree/disk/f", "tree/proc"];
    assert_eq!(common::sorted(root.as_bytes(), b'\n'), paths);
    assert_eq!(common::sorted(user.as_bytes(), b'\n'), paths);
    assert!(!said.contains("warning"), "{said}");
    // Asked for, what is in it is for root alone: hidepid and its like are not permissions.
    for options in ["--no-prune", "tree/proc/sys/kernel"] {
        let (root, user, said) = indexed(options);
        assert_eq!(root.contains("tree/proc/uptime"), options == "--no-prune", "{root}");
        assert_eq!(common::sorted(user.as_bytes(), b'\n'), paths);
        assert!(said.contains("tree/proc (proc) does not leave it to modes and ACLs"), "{said}");
    }
    let output = with_mounts(
        &place,
        &format!(
            "{mounted} CANOPY_TRUST_FS='x proc' $C --index i index tree/proc/sys/kernel >&2
             setpriv --reuid 2002 --clear-groups $C --index i find tree/proc/sys/kernel"
        ),
    );
    assert!(text(&output.stdout).contains("kernel/ostype"), "{output:?}");
}

/// The values of a mount point's attributes are those of the file system that is mounted there, by
/// whose rules they are shown.
#[test]
fn values_of_mount_points_are_shown() {
    let place = Fixture::new();
    fs::create_dir_all(place.path("tree/disk")).unwrap();
    fs::create_dir_all(place.path("tree/bound")).unwrap();
    let script = "mount -t tmpfs -o mode=755 tmpfs tree/disk; mount --bind tree/disk tree/bound
         setfattr -n user.note -v shown tree/disk
         $C --index i index tree >&2
         setpriv --reuid 2002 --clear-groups $C --index i find tree -xattr user.note=shown";
    let output = with_mounts(&place, script);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(common::sorted(&output.stdout, b'\n'), ["tree/bound", "tree/disk"], "{output:?}");
}

/// A mount of a user may let nobody in, or never answer: here nobody serves it at all.
#[test]
fn file_systems_that_users_mount_are_left_out_untouched() {
    let place = Fixture::new();
    fs::create_dir_all(place.path("tree/home/mount")).unwrap();
    fs::write(place.path("tree/home/file"), "").unwrap();
    for more in ["", ",allow_other"] {
        let output = with_mounts(
            &place,
            &format!(
                "exec 3<>/dev/fuse
                 owner=rootmode=40000,user_id=2002,group_id=3002
                 mount -i -t fuse -o fd=3,$owner{more} none tree/home/mount
                 timeout 20 $C --index i index tree >&2
                 $C --index i find tree"
            ),
        );
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("tree/home/mount (fuse) was mounted by a user"), "{said}");
        let paths = ["tree", "tree/home", "tree/home/file"];
        assert_eq!(common::sorted(&output.stdout, b'\n'), paths);
    }
}

/// File systems of other machines are left out unless they are asked for. Here nobody serves it.
#[test]
fn file_systems_of_other_machines_are_left_out_untouched() {
    let place = Fixture::new();
    fs::create_dir_all(place.path("tree/net")).unwrap();
    fs::write(place.path("tree/file"), "").unwrap();
    let mounted = "exec 3<>/dev/fuse
         mount -i -t fuse.sshfs -o fd=3,rootmode=40000,user_id=0,group_id=0 none tree/net";
    let script = format!(
        "{mounted}
         timeout 20 $C --index i index tree >&2
         $C --index i find tree
         timeout 20 $C --index i index --dry-run tree
         timeout 20 $C --index i index --quiet tree"
    );
    let output = with_mounts(&place, &script);
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("tree/net (fuse.sshfs) is of another machine and left out"), "{said}");
    assert_eq!(said.matches("another machine").count(), 1, "{said}");
    assert!(shown.starts_with("tree\ntree/file\n/"), "{shown}");
    assert!(shown.contains("tree/net (fuse.sshfs: another machine's, not entered)"), "{shown}");
}

#[test]
fn the_umask_of_root_locks_nobody_out() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("above/index"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "").unwrap();
    let script = "umask 077; exec \"$@\"";
    let output = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(&place.canopy)
        .args(["--index".as_ref(), index.as_os_str(), "index".as_ref(), tree.as_os_str()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let words: [&OsStr; 4] = ["--index".as_ref(), index.as_ref(), "find".as_ref(), tree.as_ref()];
    let found = bob().run(place.canopy.as_os_str(), &words);
    assert_eq!(common::sorted(&found.stdout, b'\n').len(), 2, "{found:?}");
    // A directory that was there is left as it is.
    let closed = place.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    place.index(&closed.join("index"), &tree);
    assert_eq!(closed.metadata().unwrap().mode() & 0o777, 0o700);
    assert_eq!(closed.join("index").metadata().unwrap().mode() & 0o777, 0o755);
}

#[test]
fn the_list_of_errors_is_for_its_owner_alone() {
    let place = Fixture::new();
    let (tree, index, errors) = (place.path("tree"), place.path("index"), place.path("errors"));
    fs::create_dir(&tree).unwrap();
    for _ in 0..2 {
        let words: [&OsStr; 4] =
            ["index".as_ref(), "--errors".as_ref(), errors.as_ref(), tree.as_ref()];
        assert!(place.canopy(&index, &words).status.success());
        assert_eq!(errors.metadata().unwrap().mode() & 0o777, 0o600);
        // The second time it is there already, and open to all.
        fs::set_permissions(&errors, fs::Permissions::from_mode(0o644)).unwrap();
    }
}

/// In a user namespace, whoever is not mapped shows as one group. Its members are let in by nobody
/// who is named so.
#[test]
fn groups_that_a_user_namespace_does_not_know_are_told_of_and_closed() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    fs::create_dir_all(tree.join("team")).unwrap();
    fs::write(tree.join("team/plan"), "").unwrap();
    std::os::unix::fs::chown(tree.join("team"), Some(0), Some(123_456)).unwrap();
    fs::set_permissions(tree.join("team"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::create_dir(&index).unwrap();
    let mut child = Command::new("unshare")
        .args(["--user", "sh", "-c", "read line; exec \"$@\"", "sh"])
        .arg(&place.canopy)
        .args(["--index".as_ref(), index.as_os_str(), "index".as_ref(), tree.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Before there is a namespace of its own, its maps are the system's and cannot be written.
    for map in ["uid_map", "gid_map"] {
        let path = format!("/proc/{}/{map}", child.id());
        while fs::write(&path, "0 0 65534").is_err() {}
    }
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("warning: 1 directory of users or groups that this user"), "{said}");
    let nobody = User { uid: 2002, gid: 65534, groups: vec![65534] };
    let words: [&OsStr; 4] = ["--index".as_ref(), index.as_ref(), "find".as_ref(), tree.as_ref()];
    let found = text(&nobody.run(place.canopy.as_os_str(), &words).stdout);
    assert!(found.contains("/team") && !found.contains("plan"), "{found}");
    let root = text(&place.canopy(&index, &["find".as_ref(), tree.as_os_str()]).stdout);
    assert!(root.contains("plan"), "{root}");
}
