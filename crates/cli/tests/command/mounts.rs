//! `canopy mount`: an index as a file system, for everybody at once, through generations, when
//! helpers are killed, and for those who hold what others have opened. `find/mounts.rs` has who sees
//! what. Needs root and /dev/fuse.

use crate::common;

use canopy_index::Index;
use common::{Fixture, User};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid, setfsgid, setfsuid};
use rustix::fs::{CWD, Dir, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65_534;

/// An index of a small tree, mounted; nothing is left mounted, whatever happens.
struct Site {
    place: Fixture,
    tree: PathBuf,
    index: PathBuf,
    on: PathBuf,
}

impl Site {
    fn new() -> Self {
        let place = Fixture::new();
        let (tree, index, on) = (place.path("tree"), place.path("index"), place.path("on"));
        fs::create_dir_all(tree.join("public")).unwrap();
        fs::create_dir_all(tree.join("secret")).unwrap();
        fs::write(tree.join("public/file"), "text").unwrap();
        fs::write(tree.join("secret/hidden"), "text").unwrap();
        symlink("hidden", tree.join("secret/link")).unwrap();
        let set = |name: &str, mode| {
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        set("", 0o755);
        set("public", 0o755);
        set("secret", 0o700);
        fs::create_dir(&on).unwrap();
        place.index(&index, &tree);
        Site { place, tree, index, on }
    }

    fn mounted() -> Self {
        let site = Self::new();
        site.mount(&["--source", site.tree.to_str().unwrap()]);
        site
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(&self.place.canopy);
        command.arg("--index").arg(&self.index).args(["mount", "--log"]);
        command.arg(self.place.path("log")).args(options).arg(&self.on);
        command
    }

    fn mount(&self, options: &[&str]) {
        let output = self.command(options).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn log(&self) -> String {
        fs::read_to_string(self.place.path("log")).unwrap()
    }

    fn unmount(&self) -> Output {
        Command::new(&self.place.canopy).arg("unmount").arg(&self.on).output().unwrap()
    }

    fn is_mounted(&self) -> bool {
        let mounts = String::from_utf8_lossy(&fs::read("/proc/self/mounts").unwrap()).into_owned();
        mounts.lines().any(|line| line.split(' ').nth(1) == self.on.to_str())
    }

    /// The process that has the index mounted.
    fn daemon(&self) -> u32 {
        let is_it = |words: &[&[u8]]| {
            words.contains(&self.on.as_os_str().as_encoded_bytes())
                && words.contains(&b"--detached".as_slice())
        };
        let mut found = processes().into_iter().filter(|id| {
            let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            is_it(&line.split(|byte| *byte == 0).collect::<Vec<_>>())
        });
        found.next().expect("a process that has it mounted")
    }

    /// The processes that answer for a user.
    fn helpers(&self, uid: u32) -> Vec<u32> {
        let daemon = self.daemon().to_string();
        // Real, effective, saved, and that of the file system.
        let is_it = |id: &u32| {
            let ids = status(*id, "Uid").unwrap_or_default();
            let ids: Vec<u32> = ids.split('\t').filter_map(|id| id.parse().ok()).collect();
            status(*id, "PPid").as_deref() == Some(&*daemon)
                && ids.len() == 4
                && [ids[1], ids[3]] == [uid; 2]
                && ids[0] == ids[2]
                && ids[0] != uid
        };
        processes().into_iter().filter(is_it).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-lq").arg(&self.on).status();
    }
}

fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A line of what the kernel tells of a process.
fn status(id: u32, key: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let lines = text.lines().filter_map(|line| line.split_once(":\t"));
    lines.filter(|(name, _)| *name == key).map(|(_, value)| value.to_owned()).next()
}

fn nobody() -> User {
    User { uid: NOBODY, gid: NOBODY, groups: Vec::new() }
}

fn ls(user: &User, path: &Path) -> Output {
    user.run("ls".as_ref(), &[OsStr::new("-a"), path.as_os_str()])
}

/// Does something with the file system identity of another user, in a thread of its own.
fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    let work = move || {
        setfsgid(Gid::from_raw(uid));
        setfsuid(Uid::from_raw(uid));
        work()
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

fn open(path: impl AsRef<Path>, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    openat(CWD, path.as_ref(), flags | OFlags::CLOEXEC, Mode::empty())
}

/// How many names there are through a directory that is open, from the first one on.
fn names(directory: &OwnedFd) -> rustix::io::Result<usize> {
    let mut directory = Dir::new(directory.try_clone().unwrap())?;
    directory.rewind();
    directory.map(|entry| entry.map(|_| 1)).sum()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A mount of the index in a source would be indexed again and again.
#[test]
fn an_index_that_is_mounted_in_a_source_is_not_indexed() {
    let mut site = Site::new();
    fs::create_dir(site.tree.join("mounted")).unwrap();
    site.place.index(&site.index, &site.tree);
    let words = ["find".as_ref(), site.tree.as_os_str()];
    let before = site.place.canopy(&site.index, &words).stdout;
    site.on = site.tree.join("mounted");
    site.mount(&[]);
    for words in [&["index"][..], &["index", "--incremental"], &["update", "--recursive"]] {
        let words = words.iter().map(OsStr::new).chain([site.tree.as_os_str()]);
        site.place.canopy(&site.index, &words.collect::<Vec<_>>());
        let words = ["find".as_ref(), site.tree.as_os_str()];
        assert_eq!(site.place.canopy(&site.index, &words).stdout.len(), before.len());
    }
    site.unmount();
}

/// A mount of the past stays at the generation that a time meant when it was mounted, and is for
/// who writes the index alone.
#[test]
fn a_mount_shows_the_past_to_its_writer_alone() {
    let site = Site::new();
    let tree = site.tree.to_str().unwrap();
    let published = |words: &[&str]| {
        let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        let output = site.place.canopy(&site.index, &words);
        assert!(output.status.success(), "{output:?}");
    };
    published(&["compact", "--keep=9"]);
    published(&["index", tree]);
    fs::remove_file(site.tree.join("public/file")).unwrap();
    fs::write(site.tree.join("public/later"), "").unwrap();
    published(&["update", site.tree.join("public").to_str().unwrap()]);
    let names = |user: &User| {
        let output = ls(user, &site.on.join("public"));
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let root = User { uid: 0, gid: 0, groups: Vec::new() };
    site.mount(&["--source", tree]);
    assert_eq!(names(&root), (true, ".\n..\nlater\n".to_owned()));
    site.unmount();
    site.mount(&["--source", tree, "--at", "3"]);
    assert_eq!(names(&root), (true, ".\n..\nfile\n".to_owned()));
    assert!(!names(&nobody()).0);
    // However little of the past is kept, until it is unmounted.
    for number in 0..4 {
        fs::write(site.tree.join(format!("public/later{number}")), "").unwrap();
        published(&["compact", "--keep=none"]);
        published(&["update", site.tree.join("public").to_str().unwrap()]);
        published(&["compact", "--replace"]);
    }
    assert_eq!(names(&root), (true, ".\n..\nfile\n".to_owned()));
    let kept = || Index::open(&site.index).unwrap().kept().len();
    assert_eq!(kept(), 1);
    let info = site.place.canopy(&site.index, &["info".as_ref()]).stdout;
    assert!(String::from_utf8_lossy(&info).contains("\nkept        none: 3 ("));
    site.unmount();
    published(&["compact", "--keep=2"]);
    assert_eq!(kept(), 1);
    let said = site.command(&["--at", "3"]).output().unwrap();
    assert!(String::from_utf8(said.stderr).unwrap().contains("generation 3 is not kept"));
    let said = site.command(&["--at", "77"]).output().unwrap();
    assert_eq!(said.status.code(), Some(2));
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("generation 77 is not kept"), "{said}");
}

#[test]
fn files_that_others_hold_open_show_nothing_more() {
    let site = Site::mounted();
    let query = site.on.join("[name=hidden]");
    let directory = open(site.on.join("secret"), OFlags::DIRECTORY).unwrap();
    let file = open(site.on.join("secret/hidden"), OFlags::PATH).unwrap();
    let link = OFlags::PATH | OFlags::NOFOLLOW;
    let link = open(site.on.join("secret/link"), link).unwrap();
    let results = open(&query, OFlags::DIRECTORY).unwrap();
    let result = open(query.join("hidden"), OFlags::PATH | OFlags::NOFOLLOW).unwrap();
    // Once for root, so that the kernel and all else could remember.
    assert_eq!(names(&directory), Ok(4));
    assert_eq!(names(&results), Ok(3));
    assert_eq!(fstat(&file).unwrap().st_size, 4);
    assert_eq!(readlinkat(&link, "", Vec::new()).unwrap().as_bytes(), b"hidden");
    assert_eq!(readlinkat(&result, "", Vec::new()).unwrap().as_bytes(), b"../secret/hidden");
    as_user(NOBODY, || {
        assert_eq!(names(&directory), Err(Errno::ACCESS));
        assert_eq!(names(&results), Ok(2));
        assert_eq!(fstat(&file).unwrap_err(), Errno::ACCESS);
        assert_eq!(fstat(&result).unwrap_err(), Errno::ACCESS);
        assert_eq!(readlinkat(&link, "", Vec::new()).unwrap_err(), Errno::ACCESS);
        assert_eq!(readlinkat(&result, "", Vec::new()).unwrap_err(), Errno::ACCESS);
        for name in ["hidden", "link", "missing", "[true]"] {
            let opened = openat(&directory, name, OFlags::PATH, Mode::empty());
            assert_eq!(opened.unwrap_err(), Errno::ACCESS, "{name}");
        }
        assert_eq!(fs::read_dir(&query).unwrap().count(), 0);
        assert!(query.join("hidden").symlink_metadata().is_err());
    });
    assert_eq!(names(&directory), Ok(4));
    // A working directory that a process had before it became another user.
    let line = "ls; stat hidden; stat -c %n .; ls ..; cd ../secret";
    let line = format!(
        "cd '{}/secret' && exec setpriv --reuid 65534 --regid 65534 \
                        --clear-groups sh -c '{line}' 2>&1",
        site.on.display()
    );
    let said = Command::new("sh").args(["-c", &line]).output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    let denied = said.lines().filter(|line| line.contains("Permission denied")).count();
    assert!(
        denied == 2 && said.contains("can't cd to ../secret") && !said.contains("link"),
        "{said}"
    );
    assert!(said.contains("public") && said.contains("\n.\n"), "{said}");
}

#[test]
fn helpers_have_the_rights_of_one_user_and_no_others() {
    let site = Site::mounted();
    let user = User { uid: 2001, gid: 3001, groups: vec![3002, 3003] };
    assert!(ls(&user, &site.on).status.success() && ls(&nobody(), &site.on).status.success());
    let helpers = site.helpers(2001);
    assert_eq!(helpers.len(), 1);
    let of = |key: &str| status(helpers[0], key).unwrap();
    for key in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
        assert_eq!(of(key), "0000000000000000", "{key}");
    }
    assert_eq!(of("NoNewPrivs"), "1");
    let groups: Vec<String> = of("Groups").split_whitespace().map(str::to_owned).collect();
    assert_eq!(groups, ["3001", "3002", "3003"]);
    // No program of that user can look into it, or have it do something else.
    for file in ["mem", "environ", "maps", "fd"] {
        let path = format!("/proc/{}/{file}", helpers[0]);
        let output = user.run("ls".as_ref(), &[OsStr::new("-l"), OsStr::new(&format!("{path}/"))]);
        let read = user.run("cat".as_ref(), &[OsStr::new(&path)]);
        assert!(!output.status.success() && !read.status.success(), "{path}");
    }
    let open = fs::read_dir(format!("/proc/{}/fd", helpers[0])).unwrap().flatten();
    for entry in open {
        let target = fs::read_link(entry.path()).unwrap().display().to_string();
        let is_fine = target.starts_with("socket:")
            || target == "/dev/null"
            || Path::new(&target).starts_with(&site.index);
        assert!(is_fine, "{target}");
    }
    // Groups in another order do not make another user.
    let other = User { groups: vec![3001, 3003], gid: 3002, ..user };
    assert!(ls(&other, &site.on).status.success());
    assert_eq!(site.helpers(2001), helpers);
}

#[test]
fn helpers_that_end_or_stop_harm_nobody_else() {
    let site = Site::mounted();
    assert!(ls(&nobody(), &site.on).status.success());
    let helper = site.helpers(NOBODY)[0];
    // A user who could stop the own one would keep directories locked for everybody.
    for signal in ["-9", "-STOP", "-0"] {
        let id = helper.to_string();
        let sent = nobody().run("kill".as_ref(), &[signal.as_ref(), OsStr::new(&id)]);
        assert!(!sent.status.success(), "{signal}");
    }
    kill(Pid::from_raw(helper as i32), Signal::SIGKILL).unwrap();
    wait_until("it has ended", || !Path::new(&format!("/proc/{helper}")).exists());
    assert!(ls(&nobody(), &site.on).status.success());
    // One that does not answer keeps its user waiting, and nobody else.
    let helper = site.helpers(NOBODY)[0];
    let pid = Pid::from_raw(helper as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    let mut waiting: Vec<_> = (0..30)
        .map(|_| {
            let mut command = nobody().command();
            command.arg("ls").arg(&site.on).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let begun = Instant::now();
    let other = User { uid: 2001, gid: 3001, groups: Vec::new() };
    assert!(ls(&other, &site.on).status.success());
    assert!(fs::read_dir(site.on.join("secret")).unwrap().count() == 2);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(waiting.iter_mut().all(|child| child.try_wait().unwrap().is_none()));
    kill(pid, Signal::SIGKILL).unwrap();
    for child in waiting {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // Those that had not asked yet are answered by the next one.
        assert!(output.status.success() || said.contains("Input/output error"), "{said}");
    }
    assert!(ls(&nobody(), &site.on).status.success());
    assert!(site.log().contains("the process that answers for uid 65534 ended"), "{}", site.log());
}

#[test]
fn an_unanswered_caller_keeps_no_directory_locked() {
    let site = Site::mounted();
    let public = site.on.join("public");
    assert!(ls(&nobody(), &public).status.success());
    let helper = Pid::from_raw(site.helpers(NOBODY)[0] as i32);
    kill(helper, Signal::SIGSTOP).unwrap();
    // The kernel locks the directory for one of these, and looks the name up before it refuses.
    let making: Vec<_> = (0..20)
        .map(|number| {
            let mut command = nobody().command();
            command.arg("mkdir").arg(public.join(number.to_string())).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    let begun = Instant::now();
    assert_eq!(public.join("file").metadata().unwrap().len(), 4);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    for child in making {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("timed out"), "{said}");
    }
    // Until it answers again, nothing is asked that could lock.
    let output = ls(&nobody(), &public);
    assert!(String::from_utf8_lossy(&output.stderr).contains("timed out"));
    kill(helper, Signal::SIGCONT).unwrap();
    wait_until("it answers again", || ls(&nobody(), &public).status.success());
}

#[test]
fn more_users_than_helpers_are_answered() {
    let site = Site::mounted();
    let file = site.on.join("public/file");
    for uid in 10_000..10_160 {
        as_user(uid, || assert_eq!(file.metadata().unwrap().len(), 4));
    }
    let daemon = site.daemon().to_string();
    let helpers = processes()
        .into_iter()
        .filter(|id| status(*id, "PPid").as_deref() == Some(&*daemon))
        .filter(|id| status(*id, "State").is_some_and(|state| !state.starts_with('Z')));
    let count = helpers.count();
    assert!((100..=130).contains(&count), "{count}");
}

/// Runs in a thread in which `/etc/subuid` has other contents, which nobody else sees.
fn with_subordinate_uids(text: &str, run: impl FnOnce() + Send) {
    let etc = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").args(["-a", "/etc/."]).arg(etc.path()).status().unwrap();
    assert!(copied.success());
    fs::write(etc.path().join("subuid"), text).unwrap();
    let private = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        let mount = |words: &[&OsStr]| {
            assert!(Command::new("mount").args(words).status().unwrap().success());
        };
        mount(&["--make-rprivate".as_ref(), "/".as_ref()]);
        mount(&["--bind".as_ref(), etc.path().as_os_str(), "/etc".as_ref()]);
        // Mounts of other tests would stay in use here. Those below others cannot be reached.
        let script = "awk '$3 ~ /^fuse/ { print $2 }' /proc/self/mounts | while read -r at; do \
                      umount -l \"$at\" || ! mountpoint -q \"$at\" || exit 1; done";
        assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
        run();
    };
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(private).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// A user owns 65,536 subordinate uids. 160 of them had all helpers, and others got EAGAIN.
#[test]
fn all_uids_of_an_account_leave_helpers_to_others() {
    with_subordinate_uids("2001:100000:65536\n", || {
        let site = Site::mounted();
        let of_uid = |uid| User { uid, gid: uid, groups: Vec::new() };
        let (mut stopped, mut waiting) = (Vec::new(), Vec::new());
        for uid in 100_000..100_160 {
            if !ls(&of_uid(uid), &site.on).status.success() {
                // It has its share.
                break;
            }
            for helper in site.helpers(uid) {
                let helper = Pid::from_raw(helper as i32);
                kill(helper, Signal::SIGSTOP).unwrap();
                stopped.push(helper);
            }
            // It is asked, and does not answer.
            let mut command = of_uid(uid).command();
            command.arg("ls").arg(&site.on).stdout(Stdio::null()).stderr(Stdio::null());
            waiting.push(command.spawn().unwrap());
            std::thread::sleep(Duration::from_millis(30));
        }
        let own = (100_000..100_160).map(|uid| site.helpers(uid).len()).sum::<usize>();
        assert!((1..=16).contains(&own), "{own}");
        for uid in [2002, 2003] {
            let output = ls(&of_uid(uid), &site.on);
            assert!(output.status.success(), "{output:?}");
        }
        for helper in stopped {
            let _ = kill(helper, Signal::SIGKILL);
        }
        for mut child in waiting {
            child.wait().unwrap();
        }
        // An account that has ended its own helpers gets new ones.
        assert!(ls(&of_uid(2001), &site.on).status.success());
    });
}

#[test]
fn why_a_query_failed_is_for_whoever_asked() {
    let site = Site::mounted();
    let query = site.on.join("[size>010]");
    assert!(!ls(&nobody(), &query).status.success());
    let why = |uid| {
        as_user(uid, || {
            let mut value = [0; 1000];
            let length = rustix::fs::getxattr(&site.on, "user.canopy.error", &mut value)?;
            Ok::<_, Errno>(String::from_utf8_lossy(&value[..length]).into_owned())
        })
    };
    let said = why(NOBODY).unwrap();
    assert!(said.starts_with("the query [size>010]: ") && said.contains("without a 0"), "{said}");
    assert_eq!(why(0), Err(Errno::NODATA));
    let mut plan = [0; 1000];
    let query = site.on.join("[size>1]");
    let length = rustix::fs::getxattr(&query, "user.canopy.plan", &mut plan).unwrap();
    assert!(plan[..length].starts_with(b"looks in: the index"));
}

#[test]
fn generations_are_picked_up_and_open_directories_keep_theirs() {
    let site = Site::mounted();
    let public = site.on.join("public");
    let open = open(&public, OFlags::DIRECTORY).unwrap();
    assert_eq!(names(&open), Ok(3));
    for number in 0..2000 {
        fs::write(site.tree.join(format!("public/new{number}")), "").unwrap();
    }
    fs::remove_file(site.tree.join("public/file")).unwrap();
    fs::set_permissions(site.tree.join("secret"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!ls(&nobody(), &site.on.join("secret")).status.success());
    site.place.index(&site.index, &site.tree);
    wait_until("the new generation is there", || public.join("new7").exists());
    // The kernel may keep what it was told for a second.
    wait_until("what was deleted is gone", || !public.join("file").exists());
    assert_eq!(names(&open), Ok(3));
    assert_eq!(fs::read_dir(&public).unwrap().count(), 2000);
    wait_until("nobody may list it", || ls(&nobody(), &site.on.join("secret")).status.success());
    fs::set_permissions(site.tree.join("secret"), fs::Permissions::from_mode(0o700)).unwrap();
    site.place.index(&site.index, &site.tree);
    let is_closed = || !ls(&nobody(), &site.on.join("secret")).status.success();
    wait_until("nobody may list it any more", is_closed);
    assert_eq!(fs::read_dir(site.on.join("[name~new*]")).unwrap().count(), 2000);
}

#[test]
fn there_are_no_contents_and_nothing_changes() {
    let site = Site::mounted();
    let file = site.on.join("public/file");
    let code = |error: std::io::Error| error.raw_os_error().unwrap();
    assert_eq!(code(fs::read(&file).unwrap_err()), Errno::OPNOTSUPP.raw_os_error());
    let read_only = Errno::ROFS.raw_os_error();
    assert_eq!(code(fs::write(&file, "").unwrap_err()), read_only);
    assert_eq!(code(fs::remove_file(&file).unwrap_err()), read_only);
    assert_eq!(code(fs::create_dir(site.on.join("new")).unwrap_err()), read_only);
    let mode = fs::Permissions::from_mode(0o777);
    assert_eq!(code(fs::set_permissions(&file, mode).unwrap_err()), read_only);
    for query in ["[size>010]", "[project=1]", "[duplicates]", "[user=no-such-user]"] {
        assert_eq!(code(fs::read_dir(site.on.join(query)).unwrap_err()), 2, "{query}");
    }
    let log = site.log();
    for why in ["without a 0 in front", "does not know projects", "unknown user 'no-such-user'"] {
        assert!(log.contains(why), "{why}: {log}");
    }
    let long = format!("[{}]", "name=x or ".repeat(40));
    assert!(fs::read_dir(site.on.join(long)).is_err());
    let long = "x".repeat(256);
    let too_long = fs::metadata(site.on.join(long)).unwrap_err();
    assert_eq!(code(too_long), Errno::NAMETOOLONG.raw_os_error());
}

#[test]
fn mistakes_are_told_in_one_line() {
    let site = Site::new();
    let fails = |options: &[&str], directory: &Path, words: &str| {
        let mut command = Command::new(&site.place.canopy);
        command.arg("--index").arg(&site.index).arg("mount").args(options).arg(directory);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.lines().count() == 1 && said.contains(words), "{said}");
    };
    fails(&["--source", "none"], &site.on, "there is no source 'none'; there are: ");
    fails(&[], &site.place.path("missing"), "cannot mount on ");
    fails(&[], &site.tree.join("public/file"), "cannot mount on ");
    fails(&[], site.place.dir.path(), "index cannot be mounted over itself, nor inside");
    fails(&["--log", "/nowhere/log"], &site.on, "cannot write /nowhere/log");
    fails(&["--index", "/nowhere"], &site.on, "no index at /nowhere");
    let output = site.unmount();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("no namespace and no index is mounted there"), "{said}");
    site.mount(&["-o", "noexec,ro", "--threads", "1"]);
    let mounts = String::from_utf8_lossy(&fs::read("/proc/self/mounts").unwrap()).into_owned();
    let line = mounts.lines().find(|line| line.contains(site.on.to_str().unwrap())).unwrap();
    for word in ["fuse.canopy-index", "noexec", "nosuid", "nodev", "ro,", "allow_other"] {
        assert!(line.contains(word), "{line}");
    }
    assert!(site.unmount().status.success() && !site.is_mounted());
}

#[test]
fn it_stays_in_the_foreground_and_is_private_if_asked() {
    let site = Site::new();
    let mut child = site.command(&["--foreground", "--private"]).spawn().unwrap();
    wait_until("it is mounted", || site.is_mounted());
    let tree = site.on.join(site.tree.strip_prefix("/").unwrap());
    assert_eq!(fs::read_dir(tree.join("secret")).unwrap().count(), 2);
    assert_eq!(fs::metadata(tree.join("secret/hidden")).unwrap().len(), 4);
    assert_eq!(fs::read_link(tree.join("[name=file]/file")).unwrap(), Path::new("../public/file"));
    assert!(!ls(&nobody(), &site.on).status.success());
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!site.is_mounted());
}
