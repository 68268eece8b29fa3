//! Query directories on a mount, as docs/queries.md has them: what they find, for whom, at once.

mod common;

use canopy_namespace::{Contents, Namespace, New, ROOT, system_clock};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use common::{Mounted, NOBODY, as_user, has, shell, success};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The names that a directory has.
#[track_caller]
fn names(directory: impl AsRef<Path>) -> BTreeSet<Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().as_bytes().to_vec()).collect()
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<Vec<u8>> {
    names.map(|name| name.as_bytes().to_vec()).into()
}

/// Where the results of a query lead, as paths below the directory that it hangs below.
fn targets(query: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(query).unwrap();
    let links = entries.map(|entry| fs::read_link(entry.unwrap().path()).unwrap());
    links.map(|link| link.strip_prefix("..").unwrap().to_owned()).collect()
}

#[test]
fn examples_of_the_guide() {
    let mounted = Mounted::new();
    let line = "mkdir -p proj/{a,b}; truncate -s 2G proj/a/large; echo text > proj/b/run.log; \
                echo c > proj/a/x.c; echo h > proj/a/x.h; touch -d '3 years ago' proj/a/large";
    shell(&mounted.on, line);
    let shown = |path: &str| names(mounted.path(path));
    assert_eq!(shown("proj/[size>1G and age>1y]"), set(["large"]));
    assert_eq!(shown("[name=run.log and user=root]"), set(["run.log"]));
    assert_eq!(shell(&mounted.on, "cat '[name=run.log and user=root]'/*"), "text\n");
    assert_eq!(shown("[type=f]/[mtime>-1d]"), set(["run.log", "x.c", "x.h"]));
    assert_eq!(shown("proj/[recent 1d]"), set(["run.log", "x.c", "x.h"]));
    assert_eq!(shown("[name~{*.c,*.h}]"), set(["x.c", "x.h"]));
    assert_eq!(shown("[type=d and not name=a]"), set(["proj", "b"]));
    assert_eq!(shown("proj/b/[ext=c]"), set([]));
    // Links lead out of all the queries, relative to where they are.
    let link = fs::read_link(mounted.path("proj/[type=f]/[ext=c]/x.c")).unwrap();
    assert_eq!(link, Path::new("../../a/x.c"));
    assert_eq!(fs::read(mounted.path("proj/[type=f]/[ext=c]/x.c")).unwrap(), b"c\n");
    mounted.assert_sound();
}

#[test]
fn results_are_current_at_once() {
    let mounted = Mounted::new();
    fs::create_dir_all(mounted.path("a")).unwrap();
    fs::create_dir_all(mounted.path("b")).unwrap();
    for (query, large) in [("[size>4]", 5), ("[size>9000]", 10_000)] {
        let (query, file) = (mounted.path(query), mounted.path("a/file"));
        assert!(!query.join("file").exists());
        fs::write(&file, vec![1; large]).unwrap();
        assert_eq!(names(&query), set(["file"]));
        assert_eq!(fs::read_link(query.join("file")).unwrap(), Path::new("../a/file"));
        // The link is another one now, of the same length.
        fs::rename(&file, mounted.path("b/file")).unwrap();
        assert_eq!(targets(&query), [PathBuf::from("b/file")].into());
        assert_eq!(fs::read_link(query.join("file")).unwrap(), Path::new("../b/file"));
        let open = File::options().write(true).open(mounted.path("b/file")).unwrap();
        open.set_len(3).unwrap();
        assert_eq!(names(&query), set([]));
        open.set_len(large as u64).unwrap();
        assert_eq!(names(&query), set(["file"]));
        drop(open);
        fs::remove_file(mounted.path("b/file")).unwrap();
        assert_eq!(names(&query), set([]));
    }
    let query = mounted.path("[ext=new]");
    assert_eq!(names(&query), set([]));
    fs::write(mounted.path("unlisted.new"), "text").unwrap();
    assert!(query.join("unlisted.new").exists());
    fs::remove_file(mounted.path("unlisted.new")).unwrap();
    for round in 0..100 {
        fs::write(mounted.path(format!("{round}.new")), "text").unwrap();
        assert_eq!(names(&query).len(), round + 1);
    }
    mounted.assert_sound();
}

#[test]
fn results_with_one_name_are_told_apart() {
    let mounted = Mounted::new();
    for directory in ["a", "b", "c"] {
        fs::create_dir(mounted.path(directory)).unwrap();
        fs::write(mounted.path(format!("{directory}/same")), directory).unwrap();
    }
    fs::hard_link(mounted.path("a/same"), mounted.path("c/other")).unwrap();
    let query = mounted.path("[type=f]");
    let found: BTreeSet<String> = names(&query)
        .into_iter()
        .map(|name| fs::read_to_string(query.join(OsStr::from_bytes(&name))).unwrap())
        .collect();
    assert_eq!(names(&query).len(), 4);
    assert_eq!(found, ["a", "b", "c"].map(String::from).into());
    let second = fs::metadata(mounted.path("b/same")).unwrap().ino();
    assert_eq!(fs::read_to_string(query.join(format!("same~{second}"))).unwrap(), "b");
    assert_eq!(targets(&query).len(), 4);
}

#[test]
fn bad_queries_are_not_there_and_the_log_says_why() {
    let mounted = Mounted::new();
    for (query, why) in [
        ("[size>010]", "010"),
        ("[mtime>-5m]", "5m"),
        ("[nothing=1]", "nothing"),
        ("[@monday]", "no such snapshot"),
        ("[duplicates]/[size>1]", "stands neither in nor below one"),
        ("[user=no-such-user]", "no-such-user"),
        ("[(]", "[(]"),
    ] {
        let error = fs::read_dir(mounted.path(query)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{query}");
        let log = mounted.log();
        let line = log.lines().last().unwrap();
        assert!(line.starts_with("canopy: the query [") && line.contains(why), "{line}");
    }
    // What is in the log cannot look like another line, nor control a terminal.
    let _ = fs::read_dir(mounted.path("[size>\n\x1b[31mcanopy: all is well]")).unwrap_err();
    assert!(mounted.log().lines().all(|line| line.starts_with("canopy: the query [")));
    assert!(!mounted.log().contains('\x1b'));
    let deep = ["[true]"; 17].join("/");
    assert!(fs::read_dir(mounted.path(deep)).is_err());
    // Nothing is made or removed in a query.
    fs::write(mounted.path("file"), "text").unwrap();
    let query = mounted.path("[type=f]");
    let refused = [
        fs::write(query.join("new"), "text"),
        fs::create_dir(query.join("new")),
        fs::remove_file(query.join("file")),
        fs::rename(query.join("file"), mounted.path("new")),
        fs::rename(mounted.path("file"), query.join("new")),
        fs::remove_dir(&query),
        symlink("a", query.join("new")),
        fs::hard_link(mounted.path("file"), query.join("new")),
    ];
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    assert_eq!(names(&query), set(["file"]));
    assert_eq!(names(&mounted.on), set(["file"]));
    mounted.assert_sound();
}

#[test]
fn hostile_names_are_found_as_they_are() {
    let mounted = Mounted::new();
    let long = "x".repeat(255);
    let odd = [
        b"a\nb".as_slice(),
        b"[type=d]x",
        b"x[type=d]",
        b"[",
        b"]",
        b"[]",
        b"\xff\xfe",
        b"  ",
        b"\x1b[31m",
        b"'\"\\",
        b"-rf",
        b"a]/..".split(|byte| *byte == b'/').next().unwrap(),
        long.as_bytes(),
    ];
    fs::create_dir_all(mounted.path("one")).unwrap();
    fs::create_dir_all(mounted.path("two")).unwrap();
    for directory in ["one", "two"] {
        for name in odd {
            fs::write(mounted.path(directory).join(OsStr::from_bytes(name)), name).unwrap();
        }
    }
    let found = names(mounted.path("one/[type=f]"));
    assert_eq!(found, odd.map(<[u8]>::to_vec).into());
    let both = mounted.path("[type=f]");
    let all = names(&both);
    assert_eq!(all.len(), 2 * odd.len());
    for name in &all {
        let contents = fs::read(both.join(OsStr::from_bytes(name))).unwrap();
        let kept = contents.len().min(200);
        assert!(name.starts_with(&contents[..kept]), "{}", name.escape_ascii());
    }
    assert_eq!(names(mounted.path(r#"one/[name="a\nb"]"#)), set(["a\nb"]));
    assert_eq!(names(mounted.path(r#"one/[name="\xff\xfe"]"#)).len(), 1);
    mounted.assert_sound();
}

#[test]
fn a_file_that_is_called_like_a_query_wins() {
    let mounted = Mounted::new();
    fs::write(mounted.path("file"), "text").unwrap();
    shell(&mounted.on, "mkdir '[id]' '[...slug]'; echo a > '[id]/page'");
    assert_eq!(names(mounted.path("[id]")), set(["page"]));
    assert!(fs::create_dir(mounted.path("[type=f]")).is_err());
    shell(&mounted.on, "rm -r '[id]'; test ! -e '[id]'");
    assert!(fs::rename(mounted.path("file"), mounted.path("[type=f]")).is_err());
    // One that is a query can only come from elsewhere.
    mounted.unmount();
    let storage = LocalStorage::existing(&mounted.namespace).unwrap();
    let contents = Contents::new(&mounted.namespace.join("contents")).unwrap();
    let environment = Environment::system(Arc::new(storage));
    let namespace = Namespace::open(&environment, contents, system_clock()).unwrap();
    let new = New { mode: 0o40755, ..New::default() };
    namespace.create(ROOT, b"[type=f]", &new, false).unwrap();
    namespace.sync().unwrap();
    drop(namespace);
    mounted.mount(&[]);
    assert_eq!(names(mounted.path("[type=f]")), set([]));
    assert_eq!(names(mounted.path("[type=f and true]")), set(["file"]));
    fs::rename(mounted.path("[type=f]"), mounted.path("renamed")).unwrap();
    assert_eq!(names(mounted.path("[type=f]")), set(["file"]));
    mounted.assert_sound();
}

/// A tree in which each directory lets different users in.
fn random_tree(root: &Path, random: &mut StdRng, has_acls: bool) {
    let mut directories = vec![root.to_owned()];
    for number in 0..60 {
        let parent = directories[random.random_range(0..directories.len())].clone();
        let is_directory = random.random_bool(0.4);
        let path = parent.join(format!("{}{number}", if is_directory { "d" } else { "f" }));
        match is_directory {
            true => {
                fs::create_dir(&path).unwrap();
                directories.push(path.clone());
            }
            false if number % 7 == 0 => symlink("f", &path).unwrap(),
            false => fs::write(&path, vec![1; random.random_range(0..6000)]).unwrap(),
        }
        let owner = [0, NOBODY, 1234][random.random_range(0..3)];
        std::os::unix::fs::lchown(&path, Some(owner), Some(owner)).unwrap();
    }
    for path in directories.iter().skip(1) {
        let mode = [0o700, 0o711, 0o755, 0o755, 0o750, 0o744, 0o055][random.random_range(0..7)];
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        if has_acls && random.random_bool(0.3) {
            let rights = ["rwx", "r-x", "--x", "r--", "---"][random.random_range(0..5)];
            let who = [format!("u:{NOBODY}"), "g:1234".into()][random.random_range(0..2)].clone();
            let mut command = std::process::Command::new("setfacl");
            success(&command.arg("-m").arg(format!("{who}:{rights}")).arg(path).output().unwrap());
        }
    }
}

/// The results of find for a user below a directory, and those of a query.
fn both(directory: &Path, user: u32, groups: &str, query: &str) -> [BTreeSet<Vec<u8>>; 2] {
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        let uid = user.to_string();
        command.args(["--reuid", &uid, "--regid", &uid, "--groups", groups]).args(words);
        let output = command.current_dir(directory).output().unwrap();
        output.stdout
    };
    let found = run(&["find", ".", "-mindepth", "1", "-printf", "%P\\0"]);
    let queried = run(&["find", query, "-mindepth", "1", "-printf", "%l\\0"]);
    let paths = |bytes: &[u8]| {
        let paths = bytes.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        paths.map(<[u8]>::to_vec).collect::<BTreeSet<_>>()
    };
    let queried = paths(&queried);
    let queried = queried.iter().map(|path| path.strip_prefix(b"../").unwrap().to_vec());
    [paths(&found), queried.collect()]
}

#[test]
fn nobody_finds_what_find_would_not_show() {
    let mounted = Mounted::new();
    let has_acls = has("setfacl");
    for seed in 0..8 {
        let mut random = StdRng::seed_from_u64(seed);
        let root = mounted.path(format!("tree{seed}"));
        fs::create_dir(&root).unwrap();
        random_tree(&root, &mut random, has_acls);
        for (user, groups) in [(0, "0"), (NOBODY, "65534"), (1234, "1234"), (2000, "2000,1234")] {
            let [found, queried] = both(&root, user, groups, "[true]");
            // find also names what lies in directories that may be listed and not be entered.
            let hidden = queried.difference(&found).collect::<Vec<_>>();
            assert!(hidden.is_empty(), "seed {seed}, user {user}: {hidden:?}");
            let missing = found.difference(&queried).filter(|path| {
                let path = root.join(OsStr::from_bytes(path));
                let seen = as_user(user, "true").status().is_ok();
                let mut stat = std::process::Command::new("setpriv");
                let uid = user.to_string();
                stat.args(["--reuid", &uid, "--regid", &uid, "--groups", groups, "stat"]);
                seen && stat.arg(path).output().unwrap().status.success()
            });
            let missing = missing.collect::<Vec<_>>();
            assert!(missing.is_empty(), "seed {seed}, user {user}: {missing:?}");
        }
    }
    mounted.assert_sound();
}

#[test]
fn results_of_others_are_not_seen() {
    let mounted = Mounted::new();
    shell(
        &mounted.on,
        "mkdir secret public; chmod 700 secret; echo s > secret/x; echo p > public/x",
    );
    let query = mounted.path("[name=x]");
    let link = |user: u32| {
        let output = as_user(user, "readlink").arg(query.join("x")).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    // Root has two results, and the one called x is the first.
    for _ in 0..3 {
        assert_eq!(link(0), "../secret/x\n");
        assert_eq!(link(NOBODY), "../public/x\n");
    }
    let entered = as_user(NOBODY, "ls").arg(mounted.path("secret/[true]")).output().unwrap();
    assert!(!entered.status.success());
    // A directory that can be entered and not be listed shows nothing by a query either.
    shell(&mounted.on, "chmod 711 secret; chmod 644 secret/x");
    let listed = as_user(NOBODY, "ls").arg(mounted.path("secret/[true]")).output().unwrap();
    assert_eq!(success(&listed), "");
    let read = as_user(NOBODY, "cat").arg(mounted.path("secret/x")).output().unwrap();
    assert_eq!(success(&read), "s\n");
    chown(mounted.path("secret"), Some(NOBODY), None).unwrap();
    // Names are looked up in what was listed last, for a few seconds.
    success(&as_user(NOBODY, "ls").arg(&query).output().unwrap());
    assert_eq!(link(NOBODY), "../secret/x\n");
}

#[test]
fn extended_attributes_of_others_do_not_tell() {
    if !has("setfattr") {
        return;
    }
    let mounted = Mounted::new();
    let line = "echo > a; setfattr -n user.note -v hidden a; setfattr -n trusted.note -v b a; \
                chmod 600 a; echo > c; setfattr -n user.note -v shown c";
    shell(&mounted.on, line);
    let listed = |user: u32, query: &str| {
        success(&as_user(user, "ls").arg(mounted.path(query)).output().unwrap())
    };
    assert_eq!(listed(0, "[user.note]"), "a\nc\n");
    assert_eq!(listed(NOBODY, "[user.note]"), "c\n");
    assert_eq!(listed(0, "[trusted.note=b]"), "a\n");
    assert_eq!(listed(NOBODY, "[trusted.note=b]"), "");
}
