//! `canopy report --per-user`: pages of what each user sees, written by root. The system has users
//! of its own here, in a mount namespace. Needs root.

use crate::common::{Fixture, User};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const USERS: &str = "root:x:0:0::/:/bin/sh\nalice:x:2001:2001::/:/bin/sh\nbob:x:2002:2002::/:/bin/sh\n\
    carol:x:2003:2003::/:/bin/sh\n../dave:x:2004:2004::/:/bin/sh\neve:x:2005:2005::/:/bin/sh\n";
const GROUPS: &str = "root:x:0:\nteam:x:3001:alice\n";
const ALL_PAGES: [&str; 5] =
    ["%2E.%2Fdave.html", "alice.html", "bob.html", "carol.html", "uid-2999.html"];

struct Site {
    place: Fixture,
    tree: PathBuf,
    index: PathBuf,
    pages: PathBuf,
}

impl Site {
    fn new() -> Self {
        let place = Fixture::new();
        let [tree, index, pages] = ["tree", "index", "pages"].map(|name| place.path(name));
        fs::write(place.path("passwd"), USERS).unwrap();
        fs::write(place.path("group"), GROUPS).unwrap();
        for (name, mode, uid, gid) in [
            ("", 0o755, 0, 0),
            ("alice", 0o700, 2001, 2001),
            ("bob", 0o700, 2002, 2002),
            ("bob/bobs-inner", 0o700, 2002, 2002),
            ("team", 0o750, 0, 3001),
            ("open", 0o755, 0, 0),
        ] {
            let path = tree.join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            chown(&path, Some(uid), Some(gid)).unwrap();
        }
        for (name, uid) in [
            ("alice/own-of-alice", 2001),
            ("bob/own-of-bob", 2002),
            ("bob/bobs-inner/own-of-bob-too", 2002),
            ("bob/bobs-inner/left-by-alice", 2001),
            ("team/shared-by-alice", 2001),
            ("team/lost-by-carol", 2003),
            ("open/open-by-dave", 2004),
            ("open/open-by-nobody", 2999),
        ] {
            fs::write(tree.join(name), name).unwrap();
            chown(tree.join(name), Some(uid), Some(uid)).unwrap();
        }
        place.index(&index, &tree);
        Site { place, tree, index, pages }
    }

    /// The command that runs another where the system has these users.
    fn among_users(&self, program: &OsStr) -> Command {
        let mut command = Command::new("unshare");
        let script = "mount --bind \"$1/passwd\" /etc/passwd &&
            mount --bind \"$1/group\" /etc/group && shift && exec \"$@\"";
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(self.place.dir.path()).arg(program);
        command.current_dir("/").env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        command
    }

    fn report(&self, words: &[&OsStr]) -> Command {
        let mut command = self.among_users(self.place.canopy.as_os_str());
        command.arg("--index").arg(&self.index).arg("report").args(words);
        command
    }

    /// Runs `canopy report --per-user` as root.
    fn write(&self, words: &[&str], path: &Path) -> Output {
        let mut all: Vec<&OsStr> = vec!["--per-user".as_ref(), self.pages.as_os_str()];
        all.extend(words.iter().map(OsStr::new));
        self.report(&all).arg("--").arg(path).output().unwrap()
    }

    fn written(&self) -> BTreeSet<String> {
        let names = fs::read_dir(&self.pages).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    fn page(&self, name: &str) -> String {
        fs::read_to_string(self.pages.join(name)).unwrap()
    }
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn each_user_gets_a_page_of_what_the_kernel_shows_them() {
    let site = Site::new();
    let limits = site.place.path("limits.csv");
    fs::write(&limits, "user,bytes\nalice,1\nbob,2\n").unwrap();
    fs::set_permissions(&limits, fs::Permissions::from_mode(0o600)).unwrap();
    let output = site.write(&["--limits", limits.to_str().unwrap(), "--threads", "3"], &site.tree);
    assert_eq!((output.status.code(), &*stderr_of(&output)), (Some(0), ""));
    assert_eq!(site.written(), names(&ALL_PAGES));
    let mode = |path: &Path| {
        let about = path.metadata().unwrap();
        (about.mode() & 0o7777, about.uid())
    };
    assert_eq!(mode(&site.pages), (0o700, 0));
    for name in ALL_PAGES {
        assert_eq!(mode(&site.pages.join(name)), (0o600, 0));
    }
    for (page, seen) in [
        ("alice.html", &["own-of-alice", "shared-by-alice"][..]),
        ("bob.html", &["own-of-bob", "own-of-bob-too", "bobs-inner"]),
        ("carol.html", &[]),
        ("%2E.%2Fdave.html", &["open-by-dave"]),
        ("uid-2999.html", &["open-by-nobody"]),
    ] {
        let text = site.page(page);
        for file in site.tree.read_dir().unwrap().flat_map(|dir| dir.unwrap().path().read_dir()) {
            for name in file.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
                assert_eq!(text.contains(&name), seen.contains(&&*name), "{page}: {name}");
            }
        }
        assert_eq!(text.contains("/bob"), page == "bob.html", "{page}");
    }
    assert!(site.page("alice.html").contains("user alice"));
    assert!(!site.page("alice.html").contains("user bob"));

    // The same as by herself, but for how long ago the scan was; a limit is for root to read.
    let readable = site.place.path("own.csv");
    fs::write(&readable, "user,bytes\nalice,1\n").unwrap();
    let alice = User { uid: 2001, gid: 2001, groups: vec![2001, 3001] }.command();
    let words: Vec<OsString> = alice.get_args().map(OsStr::to_owned).collect();
    let mut own = site.among_users(alice.get_program());
    own.args(words).arg(&site.place.canopy).arg("--index").arg(&site.index);
    own.args(["report", "--html", "--user", "alice", "--limits"]).arg(&readable).arg(&site.tree);
    let own = String::from_utf8(own.output().unwrap().stdout).unwrap();
    let lines = |page: &str| -> Vec<String> {
        page.lines().filter(|line| !line.contains(" ago")).map(str::to_owned).collect()
    };
    assert!(own.len() > 5000);
    assert_eq!(lines(&site.page("alice.html")), lines(&own));
}

#[test]
fn one_user_who_sees_nothing_of_it_does_not_keep_the_others_from_their_pages() {
    let site = Site::new();
    // Alice has a file there, and cannot see the directory.
    let output = site.write(&[], &site.tree.join("bob/bobs-inner"));
    assert_eq!(output.status.code(), Some(1), "{}", stderr_of(&output));
    assert!(stderr_of(&output).starts_with("canopy: alice: "), "{}", stderr_of(&output));
    assert!(stderr_of(&output).contains("Permission denied"), "{}", stderr_of(&output));
    assert_eq!(site.written(), names(&["bob.html"]));
}

#[test]
fn users_can_be_named_and_those_without_anything_get_no_page() {
    let site = Site::new();
    let output = site.write(&["--user", "alice", "--user", "eve", "--user", "2999"], &site.tree);
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    assert_eq!(stderr_of(&output), "canopy: eve has nothing there, and gets no page\n");
    assert_eq!(site.written(), names(&["alice.html", "uid-2999.html"]));
    let tree = site.tree.as_os_str();
    let both = ["--user", "alice", "--user", "bob"].map(OsStr::new);
    let output = site.report(&both).arg(tree).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_of(&output).contains("a report is on one user"), "{}", stderr_of(&output));
}

#[test]
fn only_root_writes_pages_and_into_new_directories() {
    let site = Site::new();
    fs::create_dir(&site.pages).unwrap();
    let output = site.write(&[], &site.tree);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_of(&output).contains("cannot create") && stderr_of(&output).contains("exists"));
    assert_eq!(site.written(), names(&[]));
    let user = User { uid: 2001, gid: 2001, groups: vec![] };
    let mut words = vec!["--index".as_ref(), site.index.as_os_str(), "report".as_ref()];
    words.extend(["--per-user", "/tmp/no-such-pages"].map(OsStr::new));
    // Nor can anybody else run the service that becomes the users.
    for (words, code, why) in [
        (words, 2, "--per-user is for root alone"),
        (vec!["as-user".as_ref(), "page".as_ref()], 1, "cannot become that user"),
    ] {
        let output = user.run(site.place.canopy.as_os_str(), &words);
        assert_eq!(output.status.code(), Some(code));
        assert!(stderr_of(&output).contains(why), "{}", stderr_of(&output));
        assert_eq!(output.stdout, b"");
    }
    assert!(!Path::new("/tmp/no-such-pages").exists());
}

/// The run waited for ever for processes that waited for their paths.
#[test]
fn more_paths_than_fit_into_a_message_are_reported() {
    let site = Site::new();
    let long = format!("{}/{}", site.tree.display(), "./".repeat(1900));
    let mut words: Vec<&OsStr> = vec!["--per-user".as_ref(), site.pages.as_os_str()];
    words.extend(["--section", "users", "--"].map(OsStr::new));
    words.extend(std::iter::repeat_n(OsStr::new(&long), 300));
    let output = site.report(&words).output().unwrap();
    assert_eq!((output.status.code(), &*stderr_of(&output)), (Some(0), ""));
    assert_eq!(site.written(), names(&ALL_PAGES));
}

#[test]
fn an_interrupted_run_leaves_no_half_page() {
    let site = Site::new();
    // A process that opens it waits for a writer: the command, for the groups of each user it knows.
    let groups = site.place.path("group");
    fs::remove_file(&groups).unwrap();
    nix::unistd::mkfifo(&groups, nix::sys::stat::Mode::S_IRUSR).unwrap();
    let words = ["--per-user".as_ref(), site.pages.as_os_str(), "--user=alice".as_ref()];
    let mut command = site.report(&words);
    command.arg("--user=bob").arg(&site.tree).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = command.spawn().unwrap();
    let begun = || site.pages.exists() && !site.written().is_empty();
    while !begun() {
        assert_eq!(running.try_wait().unwrap(), None);
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(running.id() as i32), Signal::SIGTERM).unwrap();
    let status = running.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::SIGTERM as i32));
    assert_eq!(site.written(), names(&[]));
}

/// Each page read the table again, and found nothing where that came through a pipe.
#[test]
fn limits_may_come_through_a_pipe() {
    let site = Site::new();
    let limits = site.place.path("limits.fifo");
    nix::unistd::mkfifo(&limits, nix::sys::stat::Mode::S_IRUSR).unwrap();
    let words = ["--per-user".as_ref(), site.pages.as_os_str(), "--limits".as_ref()];
    let mut command = site.report(&words);
    command.arg(&limits).arg(&site.tree).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    fs::write(&limits, "user,group,files\nalice,,4711\nbob,,4712\n,team,4713\n").unwrap();
    let output = running.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*stderr_of(&output)), (Some(0), ""));
    assert_eq!(site.written(), names(&ALL_PAGES));
    // The own limit alone is on a page.
    for (page, own) in
        [("alice.html", &["4,711"][..]), ("bob.html", &["4,712"]), ("carol.html", &[])]
    {
        let text = site.page(page);
        let shown = ["4,711", "4,712", "4,713"].into_iter().filter(|limit| text.contains(limit));
        assert_eq!(shown.collect::<Vec<_>>(), own, "{page}");
    }
}
