//! `find --live` against find(1), and `-L` in an index, on a tree with every kind of entry: what is
//! printed, what is told and exit codes, as root and as other users. Needs root.

use crate::common;
mod delete;
mod place;

use common::{User, assert_contents_first, assert_same, seeded, sorted};
use place::{Trial, deep_tree};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

/// Expressions after a start.
const EXPRESSIONS: &[&str] = &[
    "",
    "-type f",
    "-type d",
    "-type l",
    "-type p,s,b,c",
    "-type f -size +0",
    "-size 0",
    "-size +1k",
    "-empty",
    "-empty -type d",
    "! -empty",
    "-name *o*",
    "-name d* -o -name *l",
    "-iname *L*",
    "-path */d*/*",
    "-regex .*/[a-f]+",
    "-lname *",
    "-ilname D*",
    "-xtype l",
    "-xtype f",
    "-xtype d",
    "-xtype p,s",
    "-xtype f -name f*",
    "-name f* -xtype f",
    "-links +1",
    "-links 2 -type f",
    "-perm -100",
    "-perm /022",
    "-user root",
    "-uid 2001",
    "-gid +100",
    "-nouser",
    "-nogroup",
    "-newer REF",
    "-newermt 2001-01-01",
    "-mtime +10",
    "-mtime -10",
    "-amin +5",
    "-used +1",
    "-samefile TREE/file",
    "-samefile TREE/tofile",
    "-readable",
    "-writable",
    "-executable",
    "! -readable",
    "-fstype nosuch",
    "-maxdepth 0",
    "-maxdepth 1",
    "-mindepth 1",
    "-mindepth 2 -maxdepth 2",
    "-mindepth 3",
    "-depth",
    "-depth -maxdepth 1",
    "-depth -mindepth 1 -type d",
    "-xdev",
    "-mount -type f",
    "-name dir -prune -o -print",
    "-type d -name d* -prune",
    "-name dir -prune -o -type f -print",
    "-depth -name dir -prune -o -print",
    "-type d -exec test -w {} ; -prune -o -print",
    "-false -o -name file -print",
    "-name file , -type d",
    "-type d -print , -name f* -printf %f\\n",
    "( -type l -o -type f ) ! -name f*",
    "-printf %p|%P|%H|%h|%f|%d|%y\\n",
    "-printf %s|%b|%k|%S|%n|%i|%D|%p\\n",
    "-printf %m|%M|%u|%g|%U|%G|%p\\n",
    "-printf %l|%Y|%p\\n",
    "-printf %T@|%C@|%p\\n",
    "-printf %F|%p\\n",
    "-printf %Tq|%Af|%TE|%TJ|%p\\n",
    "-ls",
    "-print0",
    "-fprint /dev/stdout",
    "-type f -fprintf /dev/stdout %f|%s\\n",
    "-name f* -exec printf %s\\n {} ;",
    "-name f* -exec printf %s\\n {} +",
    "-execdir printf %s\\n {} ;",
    "-name f* -execdir printf %s\\n {} +",
    "-type f -execdir wc -c {} ;",
    "-type d -execdir pwd ;",
    "-exec false ; -o -print",
    "-exec false {} +",
    "-name NONE -quit",
    "-quit",
    "-noleaf -ignore_readdir_race -name f*",
    "-daystart -mtime 0",
    "-size +1 -o -xtype d",
    "-newermt 2030-01-01",
    "-anewer REF",
    "-cnewer REF",
];

/// Starts, below the directory of the tree.
const STARTS: &[&str] = &[
    "tree",
    "tree/",
    "./tree",
    "tree/dir",
    "tree/file",
    "tree/todir",
    "tree/todir/",
    "tree/tofile",
    "tree/loop",
    "tree/broken",
    "tree/closed",
    "tree/names",
    "tree/through",
    "nothing",
    "tree/file/",
    "tree/fifo",
    "tree//dir",
    "tree/dir/..",
];

#[test]
fn live_words_mean_what_they_mean_to_find() {
    let trial = Trial::new();
    for links in ["-P", "-H", "-L"] {
        for line in EXPRESSIONS {
            trial.compare(None, &[links, "tree"], line);
        }
    }
}

#[test]
fn users_are_shown_and_told_what_find_shows_and_tells_them() {
    let trial = Trial::new();
    for user in [user(2001, 3001, &[]), user(2999, 3002, &[3003])] {
        for links in ["-P", "-L"] {
            // find(1) fails where it cannot come back from the directory of a command.
            for line in EXPRESSIONS.iter().filter(|line| !line.contains("execdir")) {
                trial.compare(Some(&user), &[links, "tree"], line);
            }
        }
    }
}

#[test]
fn every_start_is_taken_as_find_takes_it() {
    let trial = Trial::new();
    let user = user(2001, 3001, &[]);
    for links in ["-P", "-H", "-L"] {
        for start in STARTS {
            for line in [
                "-printf %p|%P|%H|%h|%f|%d|%y\\n",
                "-name d*",
                "-depth",
                "-xtype f",
                "-maxdepth 1 -ls",
            ] {
                trial.compare(None, &[links, start], line);
                trial.compare(Some(&user), &[links, start], line);
            }
        }
    }
    trial.compare(None, &["tree/dir", "tree/file", "nothing", "tree"], "-name f*");
    trial.compare(None, &[], "-maxdepth 2");
    trial.compare(None, &[""], "-print");
    trial.compare(None, &["tree"], "-follow -type d");
}

#[test]
fn no_path_is_too_long_and_no_tree_too_deep() {
    let trial = Trial::new();
    deep_tree(&trial.place.path("deep"), 1500);
    trial.compare(None, &["deep"], "-name end");
    trial.compare(None, &["deep"], "-depth -type f");
    let (deep, index) = (trial.place.path("deep"), trial.place.path("deep-index"));
    let mut command = Command::new(&trial.place.canopy);
    command.arg("--index").arg(&index).arg("index").arg(&deep).env("CANOPY_PATH_MAX", "1048576");
    assert!(command.output().unwrap().status.success());
    let commands = |program: &[&std::ffi::OsStr]| {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(&deep);
        command.args(["-mindepth", "1480", "-name", "end", "-execdir", "/bin/pwd", ";"]);
        command.output().unwrap()
    };
    let expected = commands(&["find".as_ref()]);
    let canopy = trial.place.canopy.as_os_str();
    let shown = commands(&[canopy, "--index".as_ref(), index.as_os_str(), "find".as_ref()]);
    assert!(!expected.stdout.is_empty() && shown.stderr.is_empty(), "{shown:?}");
    assert_same(&sorted(&shown.stdout, b'\n'), &sorted(&expected.stdout, b'\n'), "-execdir");
    deep_tree(&trial.place.path("less"), 120);
    // So few descriptors that directories are closed while those in them wait.
    let run = |program: &[&std::ffi::OsStr]| {
        let mut command = Command::new("prlimit");
        command.arg("--nofile=40:40").args(program).args(["less", "-printf", "%d|%s|%p\\n"]);
        command.current_dir(trial.place.dir.path()).output().unwrap()
    };
    let expected = run(&["find".as_ref()]);
    let shown = run(&[trial.place.canopy.as_os_str(), "find".as_ref(), "--live".as_ref()]);
    assert_eq!(shown.status.code(), Some(0), "{}", String::from_utf8_lossy(&shown.stderr));
    assert_same(&sorted(&shown.stdout, b'\n'), &sorted(&expected.stdout, b'\n'), "few descriptors");
}

#[test]
fn directories_come_behind_their_contents() {
    let trial = Trial::new();
    for _ in 0..20 {
        let output = trial.canopy(None, &["--threads=8", "--live", "tree", "-depth", "-print0"]);
        assert_contents_first(&output.stdout);
    }
}

/// Options that find(1) lacks have equal results in an index and on the live file system.
#[test]
fn order_and_forms_are_those_of_the_index() {
    let trial = Trial::new();
    for line in [
        "--sort path",
        "--sort name",
        "--sort size --reverse",
        "--sort mtime -type f",
        "--sort depth",
        "--sort links",
        "--sort ino -type d",
        "--reverse",
        "--sort path --limit 5",
        "--sort size --reverse --limit 3 -type f",
        "--sort path -name d* -prune -o -print",
        "--sort path -exec test -d {} ; -print",
        "--sort path -printf %s|%p\\n",
        "--count",
        "--count -type f",
        "--sort path --ndjson",
        "--sort path --json -type l",
        "--sort path --0",
        "--limit 0",
    ] {
        let run = |first: &[&str]| {
            let words = Trial::words(line);
            let mut all: Vec<&str> = first.to_vec();
            let tree = trial.place.path("tree").display().to_string();
            all.push(&tree);
            all.extend(words.iter().map(String::as_str));
            trial.canopy(None, &all)
        };
        let (index, live) = (run(&[]), run(&["--live"]));
        let what = format!("{line}: {}", String::from_utf8_lossy(&live.stderr));
        assert_eq!(live.status.code(), index.status.code(), "{what}");
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string().replace("\\n", "\n");
        assert_eq!(text(&live.stdout), text(&index.stdout), "{what}");
    }
    for (line, lines) in [("--limit 4", 4), ("--limit 2 -type f", 2), ("-type f -print -quit", 1)] {
        let words = Trial::words(&format!("--live tree {line}"));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = trial.canopy(None, &words);
        assert_eq!(output.stdout.split(|&byte| byte == b'\n').count(), lines + 1, "{line}");
    }
}

/// A live search needs no index; extended attributes are read from the file system.
#[test]
fn attributes_are_found_without_an_index() {
    let trial = Trial::new();
    let file = trial.place.path("tree/file");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&file, "user.colour", b"green", flags).unwrap();
    for (line, found) in [
        ("-xattr user.colour", "tree/file\n"),
        ("-xattr user.c*=gr*", "tree/file\n"),
        ("-xattr user.colour=red", ""),
        ("-name file -acl", ""),
    ] {
        let words = Trial::words(&format!("--live tree -links 2 {line}"));
        let output = Command::new(&trial.place.canopy)
            .args(["--index", "/nonexistent", "find"])
            .args(&words)
            .current_dir(trial.place.dir.path())
            .output()
            .unwrap();
        let shown: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
        let expected: Vec<&str> = found.lines().collect();
        // The file has two names; both are found.
        assert_eq!(shown.len(), 2 * expected.len(), "{line}: {shown:?}");
        assert!(expected.iter().all(|path| shown.contains(path)), "{line}: {shown:?}");
    }
}

/// Links whose ends are in the index are followed there as find(1) follows them; all else is told
/// once per link.
#[test]
fn links_are_followed_in_an_index() {
    let trial = Trial::new();
    let asked_of_an_index =
        |line: &&&str| !["%F", "%D", "; -prune"].iter().any(|word| line.contains(word));
    for line in EXPRESSIONS.iter().filter(asked_of_an_index) {
        trial.compare_index(None, &["-L", "tree"], line);
    }
    for start in
        ["tree/todir", "tree/tofile", "tree/dir", "tree/loop", "tree/broken", "tree/through"]
    {
        trial.compare_index(None, &["-L", start], "-printf %p|%P|%H|%f|%d|%y|%s\\n");
    }
    let outside = trial.place.path("tree/outside");
    std::os::unix::fs::symlink("/etc", &outside).unwrap();
    trial.place.index(&trial.place.path("index"), &trial.place.path("tree"));
    let output = trial.canopy(None, &["-L", "tree", "-name", "outside"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(told.matches("1 symbolic link leads to directories that are not in").count(), 1);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "tree/outside\n");
}

/// Sources whose roots are in a directory that the user may not list: a view opened for one of them
/// shows nothing of the other.
#[test]
fn links_to_sources_in_one_gate_are_followed() {
    let trial = Trial::empty();
    let (tree, index) = (trial.place.path("tree"), trial.place.path("index"));
    for directory in ["gate/a/deep", "gate/b/deep", "links"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    for (number, source) in ["a", "b", "a/deep", "b/deep"].into_iter().enumerate() {
        fs::write(tree.join("gate").join(source).join("file"), source).unwrap();
        for (name, below) in [("dir", ""), ("file", "/file")] {
            let target = format!("../gate/{source}{below}");
            symlink(target, tree.join(format!("links/{name}{number}"))).unwrap();
        }
    }
    fs::set_permissions(tree.join("gate"), fs::Permissions::from_mode(0o711)).unwrap();
    for source in ["links", "gate/a", "gate/b"] {
        trial.place.index(&index, &tree.join(source));
    }
    let user = user(2001, 3001, &[]);
    let start = tree.join("links").display().to_string();
    for expression in ["", "-xtype f", "-xtype d", "-type f -size -9", "-printf %p|%Y|%s\\n"] {
        for follow in ["-P", "-L"] {
            let words: Vec<&str> =
                [follow, &start].into_iter().chain(expression.split_whitespace()).collect();
            let ours = ["--index", index.to_str().unwrap(), "find"];
            let ours: Vec<&str> = ours.into_iter().chain(words.clone()).collect();
            let shown = |program: &str, words: &[&str]| {
                let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
                let output = user.run(program.as_ref(), &words);
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success(), "{program} {words:?}: {said}");
                sorted(&output.stdout, b'\n')
            };
            let canopy = trial.place.canopy.display().to_string();
            assert_eq!(shown(&canopy, &ours), shown("find", &words), "{words:?}");
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one course of steps")]
fn links_that_lead_behind_gates_are_followed() {
    let trial = Trial::empty();
    let tree = trial.place.path("tree");
    let at = |name: &str| tree.join(name);
    for directory in
        ["shared", "shut", "homes", "homes/own", "homes/own/sub", "homes/other", "homes/other/deep"]
    {
        fs::create_dir_all(at(directory)).unwrap();
    }
    for file in ["homes/own/a", "homes/own/sub/b", "homes/other/known", "homes/other/deep/x"] {
        fs::write(at(file), file).unwrap();
    }
    for (link, target) in [
        ("shared/to-own", "../homes/own"),
        ("shared/to-sub", "to-own/sub"),
        ("shared/to-file", "../homes/own/a"),
        ("shared/to-known", "../homes/other/known"),
        ("shared/to-deep", "../homes/other/deep"),
        ("shared/broken", "../homes/own/missing"),
        ("shared/no-dir", "../homes/own/a/x"),
        ("shared/up", "../homes/other/../own/sub/.."),
        ("shut/closed", "../homes/other/closed/x"),
        ("shut/into-closed", "../homes/other/closed/."),
        ("homes/own/back", "../../shared/to-sub"),
        ("homes/own/again", "sub"),
        ("homes/own/sub/over", "../../other/deep"),
        ("homes/own/sub/above", ".."),
    ] {
        symlink(target, at(link)).unwrap();
    }
    symlink(at("homes/own/sub"), at("shared/absolute")).unwrap();
    fs::create_dir(at("homes/other/closed")).unwrap();
    for (name, mode) in [("homes", 0o711), ("homes/other", 0o711), ("homes/other/closed", 0o700)] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let index = trial.place.path("index");
    trial.place.index(&index, &tree);
    let user = user(2001, 3001, &[]);
    let expressions = [
        "",
        "-printf %p|%P|%H|%f|%d|%y|%Y|%s|%l\\n",
        "-xtype f",
        "-xtype d",
        "-xtype l",
        "-type d",
        "-readable",
        "-depth",
        "-mindepth 2",
        "-name b",
    ];
    for line in expressions {
        for who in [None, Some(&user)] {
            for before in [
                &["shared"][..],
                &["shared/to-deep"],
                &["homes/own"],
                &["homes/own", "homes/other/deep", "shared/to-own"],
            ] {
                let starts: Vec<String> =
                    before.iter().map(|start| format!("tree/{start}")).collect();
                for links in ["-P", "-H", "-L"] {
                    let mut words = vec![links];
                    words.extend(starts.iter().map(String::as_str));
                    trial.compare_index(who, &words, line);
                }
            }
        }
    }
    // What is known of a link that leads into a closed directory is more than find(1) knows, and
    // of `%Y` nothing is said.
    for line in expressions.into_iter().filter(|line| !line.contains("%Y")) {
        trial.compare_index(Some(&user), &["-P", "tree/shut"], line);
        trial.compare_index(Some(&user), &["-H", "tree/shut"], line);
    }
    for line in ["", "-name c*", "-depth", "-maxdepth 1"] {
        trial.compare_index(Some(&user), &["-L", "tree/shut"], line);
    }
}

#[test]
fn too_many_links_on_the_way_are_told_as_find_tells_them() {
    let trial = Trial::empty();
    let tree = trial.place.path("tree");
    for number in 0..45 {
        let directory = tree.join(format!("{number:02}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("file"), "x").unwrap();
        if number < 44 {
            symlink(format!("../{:02}", number + 1), directory.join("next")).unwrap();
        }
    }
    symlink("00", tree.join("first")).unwrap();
    trial.place.index(&trial.place.path("index"), &tree);
    for start in ["tree/00", "tree/first", "tree/20", "tree/first/next/next/"] {
        for line in ["", "-type l", "-printf %p|%y|%Y|%d\\n", "-maxdepth 39 -name file"] {
            trial.compare_index(None, &["-L", start], line);
            trial.compare(None, &["-L", start], line);
        }
    }
}

fn user(uid: u32, gid: u32, groups: &[u32]) -> User {
    User { uid, gid, groups: groups.to_vec() }
}

#[test]
fn random_trees_are_searched_as_find_searches_them() {
    for seed in 5000..5006 {
        let mut random = seeded(seed);
        let trial = Trial::empty();
        common::random_tree(&trial.place.path("tree"), &mut random, true);
        for _ in 0..3 {
            let user = User::random(&mut random);
            for line in
                ["", "-depth", "-size +8", "-type d -empty", "-readable", "-printf %p|%s|%T@|%y\\n"]
            {
                trial.compare(Some(&user), &["tree"], line);
                trial.compare(Some(&user), &["-L", "tree"], line);
            }
        }
    }
}
