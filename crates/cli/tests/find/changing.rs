//! Cases of a source that changes while it is scanned, with entries that no user may learn. Needs
//! root.

use crate::common;

use common::{Fixture, User};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{RenameFlags, XattrFlags};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const ALICE: u32 = 2001;
pub(super) const BOB: u32 = 2002;

pub(super) fn user(uid: u32) -> User {
    User { uid, gid: uid + 1000, groups: vec![uid + 1000] }
}

pub(super) fn dir(path: &Path, mode: u32, owner: u32) {
    fs::create_dir_all(path).unwrap();
    chown(path, Some(owner), Some(owner + 1000)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns the output of a command as a user.
pub(super) fn answer_for(place: &Fixture, index: &Path, uid: u32, arguments: &[&OsStr]) -> String {
    let mut all = vec!["--index".as_ref(), index.as_os_str()];
    all.extend(arguments);
    let output = user(uid).run(place.canopy.as_os_str(), &all);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Tells another thread that it is over, if only because a test has failed.
pub(super) struct Ended<'a>(pub(super) &'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Bob may rename in a directory of his, and has a file of Alice's there take the place of one of
/// his own for moments.
#[test]
fn a_value_is_shown_by_the_permissions_of_its_own_file() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    dir(&tree, 0o755, 0);
    let shared = tree.join("shared");
    dir(&shared, 0o777, BOB);
    let pairs = 300;
    let [bait, private] = ["bait", "private"]
        .map(|name| move |number: usize| PathBuf::from(format!("{name}{number}")));
    for number in 0..pairs {
        for (name, owner, mode, value) in [
            (bait(number), BOB, 0o644, "nothing-worth"),
            (private(number), ALICE, 0o600, "private-value"),
        ] {
            let path = shared.join(name);
            fs::write(&path, "x").unwrap();
            rustix::fs::setxattr(&path, "user.note", value.as_bytes(), XattrFlags::empty())
                .unwrap();
            chown(&path, Some(owner), Some(owner + 1000)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ended = Ended(&done);
        let attack = scope.spawn(|| {
            let directory = rustix::fs::open(&shared, rustix::fs::OFlags::PATH, 0.into()).unwrap();
            // From here on the kernel judges this thread as Bob.
            nix::unistd::setfsgid((BOB + 1000).into());
            nix::unistd::setfsuid(BOB.into());
            assert!(
                rustix::fs::open(shared.join(private(0)), rustix::fs::OFlags::RDONLY, 0.into())
                    .is_err()
            );
            while !done.load(Ordering::Relaxed) {
                for number in 0..pairs {
                    let (one, other) = (bait(number), private(number));
                    rustix::fs::renameat_with(
                        &directory,
                        one,
                        &directory,
                        other,
                        RenameFlags::EXCHANGE,
                    )
                    .unwrap();
                }
            }
        });
        for _ in 0..40 {
            let output = place.canopy(&index, &["index".as_ref(), tree.as_os_str()]);
            assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
            let query = ["sql", "--format=csv", "SELECT name, value FROM xattrs"];
            let seen = answer_for(&place, &index, BOB, &query.map(OsStr::new));
            assert!(seen.contains("nothing-worth"), "{seen}");
            assert!(!seen.contains("private-value"), "{seen}");
        }
        drop(ended);
        attack.join().unwrap();
    });
}

/// A tree of which the scan reads `tree/srv/home/0...` first and `tree/srv/home/z` last.
pub(super) fn slow_tree(tree: &Path, dirs: u32) {
    dir(tree, 0o755, 0);
    dir(&tree.join("srv"), 0o755, ALICE);
    dir(&tree.join("srv/home"), 0o755, ALICE);
    for number in 0..dirs {
        let path = tree.join(format!("srv/home/{number:04}"));
        dir(&path, 0o755, ALICE);
        (0..3).for_each(|file| fs::write(path.join(file.to_string()), "").unwrap());
    }
    dir(&tree.join("srv/home/z"), 0o755, ALICE);
}

/// Scans with `change` made in the midst of it, while the scan stands still. A scan that was over
/// by then, or nearly, is made again.
fn index_while(place: &Fixture, index: &Path, source: &Path, change: impl Fn()) -> Output {
    for _ in 0..100 {
        let mut child = Command::new(&place.canopy)
            .args(["--index".as_ref(), index.as_os_str()])
            .args(["index", "--threads", "1"])
            .arg(source)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(child.id() as i32);
        // By the second hundred the listing of the home itself is handed over.
        let is_midway = || open_homes(&child).iter().any(|name| ("02".."09").contains(&&**name));
        let mut midway = false;
        while !midway && child_runs(pid) {
            midway = is_midway();
        }
        kill(pid, Signal::SIGSTOP).unwrap();
        midway = is_midway() && !open_homes(&child).iter().any(|name| "z" == name);
        if midway {
            change();
        }
        kill(pid, Signal::SIGCONT).unwrap();
        if midway {
            return child.wait_with_output().unwrap();
        }
        child.wait().unwrap();
    }
    panic!("every scan was too fast");
}

/// The directories in `home` that a scan has open.
pub(super) fn open_homes(scan: &Child) -> Vec<String> {
    let open = fs::read_dir(format!("/proc/{}/fd", scan.id())).into_iter().flatten();
    let paths = open.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let name = |path: PathBuf| Some(path.to_str()?.split_once("/home/")?.1.to_owned());
    paths.filter_map(name).collect()
}

/// Whether a child has not ended yet.
pub(super) fn child_runs(pid: Pid) -> bool {
    let options = nix::sys::wait::WaitPidFlag::WNOHANG | nix::sys::wait::WaitPidFlag::WNOWAIT;
    let id = nix::sys::wait::Id::Pid(pid);
    let ended = nix::sys::wait::waitid(id, options | nix::sys::wait::WaitPidFlag::WEXITED);
    matches!(ended, Ok(nix::sys::wait::WaitStatus::StillAlive))
}

/// Makes a change to a tree while it is scanned, and then a file in a directory that the scan has
/// yet to read, of which Bob must not be told. Root is, unless the directory is where it is not looked
/// for, `gone`. Returns what Bob is told, and Alice.
fn closed_meanwhile(source: &str, gone: bool, change: impl Fn(&Path)) -> [String; 2] {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    slow_tree(&tree, 1000);
    let z = fs::File::open(tree.join("srv/home/z")).unwrap();
    let output = index_while(&place, &index, &tree.join(source), || {
        change(&tree);
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
        let file = rustix::fs::openat(&z, "made-in-private", flags, 0o644.into()).unwrap();
        rustix::fs::fsetxattr(&file, "user.note", b"x", XattrFlags::empty()).unwrap();
    });
    let start = tree.join(source);
    let told =
        [BOB, ALICE].map(|uid| answer_for(&place, &index, uid, &["find".as_ref(), start.as_ref()]));
    assert!(!told[0].contains("made-in-private"), "{}", told[0]);
    let query = ["sql", "--format=csv", "SELECT name FROM xattrs"].map(OsStr::new);
    let values = [BOB, 0].map(|uid| self::answer_for(&place, &index, uid, &query));
    assert!(!values[0].contains("made-in-private"));
    assert_eq!(values[1].contains("made-in-private"), !gone);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let what = if gone { "moved under the scan" } else { "changed under the scan" };
    assert!(said.contains(what), "{said}");
    let root = place.canopy(&index, &["find".as_ref(), start.as_os_str()]);
    assert_eq!(String::from_utf8_lossy(&root.stdout).contains("made-in-private"), !gone);
    assert!(told[0].contains("/home/0000"), "what was read before is told: {}", told[0]);
    told
}

pub(super) fn close(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_directory_closed_during_the_scan_is_closed_in_the_index() {
    let [_, alice] = closed_meanwhile("", false, |tree| close(&tree.join("srv/home")));
    assert!(alice.contains("/z/made-in-private"));
}

#[test]
fn a_directory_closed_above_the_root_is_closed_in_the_index() {
    let [_, alice] = closed_meanwhile("srv/home", false, |tree| close(&tree.join("srv")));
    assert!(alice.contains("/z/made-in-private"));
}

#[test]
fn a_directory_moved_into_a_closed_one_during_the_scan_is_closed_in_the_index() {
    closed_meanwhile("", true, |tree| {
        dir(&tree.join("private"), 0o700, ALICE);
        fs::rename(tree.join("srv/home"), tree.join("private/home")).unwrap();
    });
}

/// Bob knows the path, which is all that it takes in a directory that he may enter but not list.
#[test]
fn a_directory_that_some_may_only_enter_is_closed_in_the_index_when_it_was_during_the_scan() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    slow_tree(&tree, 500);
    let home = tree.join("srv/home");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o711)).unwrap();
    // Who may list the last directory is not the question, but who finds what is in it.
    fs::set_permissions(home.join("z"), fs::Permissions::from_mode(0o711)).unwrap();
    let file = home.join("z/made-in-private");
    let find = ["find".as_ref(), file.as_os_str()];
    let seen = || answer_for(&place, &index, BOB, &find).contains("made-in-private");
    fs::write(&file, "").unwrap();
    place.index(&index, &tree);
    assert!(seen());
    index_while(&place, &index, &tree, || close(&home));
    assert!(!seen());
    let early = home.join("0000/0");
    let early = answer_for(&place, &index, BOB, &["find".as_ref(), early.as_os_str()]);
    assert!(early.contains("0000/0"), "what was read before is told");
}

/// A change of an ACL without the mode changes who is let in, too.
#[test]
fn an_acl_changed_during_the_scan_counts() {
    let [_, alice] = closed_meanwhile("", false, |tree| {
        let acl = format!("u:{BOB}:---,m::r-x");
        let home = tree.join("srv/home");
        let set = Command::new("setfacl").args(["-m", &acl]).arg(&home).status().unwrap();
        assert!(set.success() && home.metadata().unwrap().mode() & 0o777 == 0o755);
    });
    assert!(alice.contains("/z/made-in-private"));
}

/// A directory that is renamed again and again, so that it is always where the scan comes next, is
/// read a few times and no more.
#[test]
fn a_directory_moved_ahead_of_the_scan_is_not_read_for_ever() {
    const SIBLINGS: usize = 300;
    const FILES: usize = 4000;
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    dir(&tree, 0o755, 0);
    let sibling = |number: usize| tree.join(format!("{number:04}"));
    (0..SIBLINGS).for_each(|number| dir(&sibling(number), 0o755, ALICE));
    dir(&sibling(0).join("moving"), 0o755, ALICE);
    for file in 0..FILES {
        fs::write(sibling(0).join(format!("moving/{file}")), "").unwrap();
    }
    let child = Command::new(&place.canopy)
        .args(["--index".as_ref(), index.as_os_str(), "index".as_ref(), tree.as_os_str()])
        .args(["--threads", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    let fds = format!("/proc/{}/fd", child.id());
    let is_open = |name: &Path| {
        let open = fs::read_dir(&fds).into_iter().flatten().flatten();
        open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path == name)
    };
    let mut at = 0;
    while child_runs(pid) && at + 1 < SIBLINGS {
        let now = sibling(at).join("moving");
        // What was opened elsewhere and moved has this name too, but not the directory around it.
        if is_open(&sibling(at)) && is_open(&now) {
            kill(pid, Signal::SIGSTOP).unwrap();
            fs::rename(&now, sibling(at + 1).join("moving")).unwrap();
            at += 1;
            kill(pid, Signal::SIGCONT).unwrap();
        }
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!((1..=4).contains(&at), "it was read {at} times: {said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("moved under the scan"), "{said}");
    let found = place.canopy(&index, &["find".as_ref(), tree.as_os_str()]).stdout;
    let lines = found.iter().filter(|&&byte| byte == b'\n').count();
    assert!(lines <= 1 + SIBLINGS + 4 + FILES, "{lines}");
}
