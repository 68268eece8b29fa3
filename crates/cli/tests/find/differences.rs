//! Differences from find(1), as `docs/differences.md` lists them. Needs root.

use crate::common;

use common::{Fixture, User, command_as, sorted};
use rustix::fs::XattrFlags;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

struct Trial {
    place: Fixture,
    index: PathBuf,
}

/// Somebody whom no file in the tests belongs to.
fn stranger() -> User {
    User { uid: 2999, gid: 3999, groups: Vec::new() }
}

impl Trial {
    /// With what `make` puts into the tree, which is indexed.
    fn new(make: impl FnOnce(&Path)) -> Self {
        let place = Fixture::new();
        let (tree, index) = (place.path("tree"), place.path("index"));
        fs::create_dir(&tree).unwrap();
        make(&tree);
        place.index(&index, &tree);
        Trial { place, index }
    }

    fn run(&self, user: Option<&User>, program: &OsStr, words: &[&OsStr]) -> Output {
        let mut command = command_as(user, program);
        command.args(words).current_dir(self.place.dir.path()).stdin(Stdio::null());
        command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").output().unwrap()
    }

    /// Runs find(1) on the tree; words are apart by '|'.
    fn find(&self, user: Option<&User>, words: &str) -> Output {
        let words: Vec<&OsStr> =
            ["tree"].into_iter().chain(words.split('|')).map(OsStr::new).collect();
        self.run(user, "find".as_ref(), &words)
    }

    /// Runs ours, on the index or live.
    fn ours(&self, user: Option<&User>, live: bool, words: &str) -> Output {
        let mut all = vec![OsStr::new("--index"), self.index.as_os_str(), OsStr::new("find")];
        all.extend(live.then_some(OsStr::new("--live")));
        all.push("tree".as_ref());
        all.extend(words.split('|').map(OsStr::new));
        self.run(user, self.place.canopy.as_os_str(), &all)
    }
}

fn lines(output: &Output) -> Vec<String> {
    sorted(&output.stdout, b'\n')
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn patterns_do_more_than_those_of_the_c_library() {
    let names = ["ü", "q", "\u{10FF90}"];
    let trial = Trial::new(|tree| {
        names.iter().for_each(|name| fs::write(tree.join(name), "").unwrap());
    });
    const EXTENDED: &str = "-regextype|posix-extended|-regex";
    for live in [false, true] {
        for words in ["tree/[à-ÿ]", "tree/[[=ü=]]"] {
            let words = format!("{EXTENDED}|{words}|-printf|%f\\n");
            assert_eq!(lines(&trial.ours(None, live, &words)), ["\\xc3\\xbc"], "{words}");
            assert!(said(&trial.find(None, &words)).contains("Invalid collation character"));
        }
        let quoted = "-iregex|tree/\\q";
        assert_eq!(lines(&trial.ours(None, live, quoted)), ["tree/q"]);
        assert_eq!(lines(&trial.find(None, quoted)).len(), 0);
        let kept = "-regex|tree/.";
        assert_eq!(lines(&trial.ours(None, live, kept)), ["tree/\\xc3\\xbc", "tree/q"]);
        assert_eq!(lines(&trial.find(None, kept)).len(), 3);
    }
}

#[test]
fn words_are_taken_otherwise() {
    let trial = Trial::new(|tree| {
        fs::write(tree.join("file"), "").unwrap();
        fs::hard_link(tree.join("file"), tree.join("link")).unwrap();
    });
    fs::write(trial.place.path("later"), "").unwrap();
    for live in [false, true] {
        let ours = |words: &str| trial.ours(None, live, words);
        for words in ["-newermt|20:31 19911213", "-help", "-version"] {
            assert_eq!(ours(words).status.code(), Some(1), "{words}");
            assert_eq!(trial.find(None, words).status.code(), Some(0), "{words}");
        }
        assert_eq!(lines(&ours("(|-readable|,|-links|+1|)")), lines(&ours("-links|+1")));
        assert_eq!(lines(&ours("-newerBt|1960-01-01")).len(), 3);
        assert_eq!(lines(&ours("!|-newer|later")).len(), 3);
        let mut options = vec![OsStr::new("--index"), trial.index.as_os_str(), OsStr::new("find")];
        options.extend(live.then_some(OsStr::new("--live")));
        options.extend(["-D", "tree", "-O3", "tree"].map(OsStr::new));
        let optimized = trial.run(None, trial.place.canopy.as_os_str(), &options);
        assert_eq!((lines(&optimized).len(), said(&optimized)), (3, String::new()));
    }
    let pruned = "-exec|test|-d|{}|;|-prune";
    assert!(said(&trial.ours(None, false, pruned)).contains("-prune cannot hang"));
    let sorted = trial.ours(None, true, &format!("{pruned}|--sort|path"));
    assert!(said(&sorted).contains("-prune cannot hang"));
    assert!(trial.ours(None, true, pruned).status.success());
}

#[test]
fn names_in_messages_disturb_no_terminal() {
    let trial = Trial::new(|_| {});
    for live in [None, Some(OsStr::new("--live"))] {
        let words = [OsStr::new("--index"), trial.index.as_os_str(), OsStr::new("find")];
        let name = OsStr::from_bytes(b"no\x1b[31m\xff");
        let words: Vec<&OsStr> = words.into_iter().chain(live).chain([name]).collect();
        let said = said(&trial.run(None, trial.place.canopy.as_os_str(), &words));
        assert!(said.contains("no?[31m\u{FFFD}"), "{said:?}");
    }
}

#[test]
fn an_index_hides_entries_from_users_who_may_not_look() {
    let trial = Trial::new(|tree| {
        for (name, mode) in [("closed", 0o700), ("names", 0o744)] {
            fs::create_dir_all(tree.join(name).join("inner")).unwrap();
            fs::write(tree.join(name).join("file"), "").unwrap();
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
    });
    let user = Some(stranger());
    let (index, find) =
        (trial.ours(user.as_ref(), false, "-true"), trial.find(user.as_ref(), "-true"));
    assert_eq!((index.status.code(), said(&index)), (Some(0), String::new()));
    assert_eq!(lines(&index), ["tree", "tree/closed", "tree/names"]);
    assert_eq!(find.status.code(), Some(1));
    assert!(lines(&find).contains(&"tree/names/file".to_owned()));
    // The type of a directory is what the directory above it says.
    let live = trial.ours(user.as_ref(), true, "-type|d");
    assert!(lines(&live).contains(&"tree/names/inner".to_owned()), "{live:?}");
    let live = trial.ours(user.as_ref(), true, "-path|tree/names*|-execdir|pwd|;|-o|-print");
    assert_eq!(live.status.code(), Some(1));
    assert!(lines(&live).contains(&"tree/closed".to_owned()), "{live:?}");
}

#[test]
fn facts_of_the_running_system_are_not_in_an_index() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    fs::create_dir(&tree).unwrap();
    let mounted = place.small_disk("tree/mounted", "1M");
    fs::write(mounted.0.join("file"), "").unwrap();
    let sticky = tree.join("sticky");
    fs::create_dir(&sticky).unwrap();
    fs::set_permissions(&sticky, fs::Permissions::from_mode(0o1777)).unwrap();
    chown(&sticky, Some(2001), None).unwrap();
    symlink(&tree, sticky.join("link")).unwrap();
    std::os::unix::fs::lchown(sticky.join("link"), Some(2002), None).unwrap();
    let label = b"user_u:object_r:thing_t:s0";
    rustix::fs::setxattr(&sticky, "security.selinux", label, XattrFlags::empty()).unwrap();
    place.index(&index, &tree);
    let trial = Trial { place, index };
    let index = |words: &str| lines(&trial.ours(None, false, words));
    assert_eq!(index("-context|*thing*|-printf|%f %Z\\n"), ["sticky user_u:object_r:thing_t:s0"]);
    // Of a mount point, the device of the directory that it is in.
    assert_eq!(index("-name|mounted|-printf|%D\\n"), index("-maxdepth|0|-printf|%D\\n"));
    assert_eq!(index("-name|file|-printf|%F\\n"), ["tmpfs"]);
    assert_eq!(index("-name|link|-xtype|d"), ["tree/sticky/link"]);
    drop(mounted);
    assert_eq!(index("-name|file|-printf|%F\\n"), ["unknown"]);
    assert_eq!(index("-name|file|-fstype|unknown"), ["tree/mounted/file"]);
}
