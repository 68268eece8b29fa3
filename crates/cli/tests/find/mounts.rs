//! A mounted index shows a user the entries that the kernel shows that user on the source: random
//! trees, several users at once, and find(1), stat(1), ls(1), test(1), getfattr(1) and getfacl(1)
//! as the oracle. Needs root and /dev/fuse.

use crate::common;

use common::length::rounds;
use common::{Fixture, User, all_paths, assert_same, random_tree, random_xattrs, seeded, sorted};
use rand::RngExt;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted index; nothing is left mounted, whatever happens.
struct Mounted<'a> {
    place: &'a Fixture,
    on: PathBuf,
}

impl<'a> Mounted<'a> {
    fn new(place: &'a Fixture, index: &Path, on: PathBuf, options: &[&OsStr]) -> Self {
        fs::create_dir(&on).unwrap();
        let log = place.path("log");
        let mut arguments = vec![OsStr::new("mount"), "--log".as_ref(), log.as_os_str()];
        arguments.extend(options);
        arguments.push(on.as_os_str());
        let output = place.canopy(index, &arguments);
        let mounted = Mounted { place, on };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        mounted
    }

    fn unmount(self) {
        let on = self.on.clone();
        let output = Command::new(&self.place.canopy).arg("unmount").arg(&on).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read_dir(&on).unwrap().count(), 0);
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // It may have been unmounted.
        let _ = Command::new("umount").arg("-lq").arg(&self.on).status();
    }
}

const FORMAT: &str = "%P|%f|%d|%y|%s|%b|%k|%m|%M|%U|%G|%n|%i|%l|%T@|%C@|%A@|%S\\0";
const STAT: &str = "%n|%f|%h|%u|%g|%s|%b|%o|%i|%.9X|%.9Y|%.9Z|%t|%T|%N\\0";

/// Lists directories, but for those that show names without attributes, and asks who may do what.
const LIST: &str = r#"for path; do
    if [ -d "$path" ] && [ -r "$path" ] && ! [ -x "$path" ]; then continue; fi
    [ -d "$path" ] && ! [ -h "$path" ] && ls -aU "$path" 2>&1 | sort
    for right in r x; do test -$right "$path" && printf '%s %s\n' $right "$path"; done
done"#;

#[test]
fn every_user_sees_what_the_kernel_shows_on_the_source_1() {
    cases(0..12);
}

#[test]
fn every_user_sees_what_the_kernel_shows_on_the_source_2() {
    cases(12..24);
}

fn cases(seeds: std::ops::Range<u64>) {
    let place = Fixture::new();
    let only: Option<u64> = std::env::var("CANOPY_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = seeds.filter(|&seed| only.is_none_or(|only| seed == only));
    for seed in seeds.take(rounds(5, 12)) {
        let mut random = seeded(1000 + seed);
        let tree = place.path(&format!("tree{seed}"));
        let index = place.path(&format!("index{seed}"));
        random_tree(&tree, &mut random, true);
        let paths = all_paths(&tree);
        random_xattrs(&paths, &mut random);
        place.index(&index, &tree);
        let alone = random.random_bool(0.3);
        let options = ["--source".as_ref(), tree.as_os_str()];
        let options = if alone { &options[..] } else { &[] };
        let mounted = Mounted::new(&place, &index, place.path(&format!("on{seed}")), options);
        let shown = match alone {
            true => mounted.on.clone(),
            false => mounted.on.join(tree.strip_prefix("/").unwrap()),
        };
        let users: Vec<User> = (0..6).map(|_| User::random(&mut random)).collect();
        std::thread::scope(|scope| {
            for user in &users {
                let case = Case { user, seed, tree: &tree, shown: &shown, alone };
                let paths = &paths;
                scope.spawn(move || case.compare(paths));
            }
        });
        mounted.unmount();
    }
}

struct Case<'a> {
    user: &'a User,
    seed: u64,
    tree: &'a Path,
    /// Where the mount has the tree.
    shown: &'a Path,
    /// Whether the tree is the root of the mount, which has a number of its own.
    alone: bool,
}

impl Case<'_> {
    fn compare(&self, paths: &[PathBuf]) {
        self.compare_find(paths);
        let mut asked = paths.to_vec();
        asked.extend(paths.iter().map(|path| path.join("missing")));
        let but_root = &asked[usize::from(self.alone)..];
        self.compare_output("stat", &["--printf", STAT], but_root, 0);
        self.compare_output("sh", &["-c", LIST, "sh"], &asked, b'\n');
        let getfattr = ["-h", "--absolute-names", "-m", "-", "-e", "hex"];
        self.compare_output("getfattr", &getfattr, paths, b'\n');
        self.compare_output("getfattr", &[&getfattr[..], &["-d"]].concat(), paths, b'\n');
        let is_link = |path: &&PathBuf| path.is_symlink();
        let unlinked: Vec<PathBuf> = paths.iter().filter(|path| !is_link(path)).cloned().collect();
        self.compare_output("getfacl", &["-n", "-p"], &unlinked, b'\n');
        for (query, test) in [
            ("[true]", "-true"),
            ("[type=d]", "-type d"),
            ("[size>1000 and type=f]", "-size +1000c -type f"),
            ("[uid=2001 or gid=3002]", "( -uid 2001 -o -gid 3002 )"),
            ("[perm-any=022]/[type!=l]", "-perm /022 ! -type l"),
            ("[links>1]", "-links +1"),
            ("[name~*1*]", "-name *1*"),
            ("[type=l and target~*x]", "-lname *x"),
            ("[recent 2000-01-01]", "-type f -newermt 2000-01-01"),
        ] {
            self.compare_query(query, test);
        }
    }

    fn what(&self, what: &str) -> String {
        format!("seed {} {:?} {what}", self.seed, self.user)
    }

    fn compare_find(&self, paths: &[PathBuf]) {
        let find = |start: &Path| {
            let least = if self.alone { "1" } else { "0" };
            let rest = ["-mindepth", least, "-printf", FORMAT];
            let mut arguments = vec![start.as_os_str()];
            arguments.extend(rest.map(OsStr::new));
            self.user.run("find".as_ref(), &arguments).stdout
        };
        for start in paths.iter().take(8).filter(|path| !self.alone || *path != self.tree) {
            let (expected, shown) = (find(start), find(&self.on_mount(start)));
            let what = self.what(&format!("find {start:?}"));
            assert_same(&sorted(&shown, 0), &sorted(&expected, 0), &what);
        }
    }

    fn on_mount(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(self.tree).unwrap() {
            root if root.as_os_str().is_empty() => self.shown.to_owned(),
            below => self.shown.join(below),
        }
    }

    /// Compares what a program says, and what it complains of, of paths of both trees.
    fn compare_output(&self, program: &str, options: &[&str], paths: &[PathBuf], end: u8) {
        if paths.is_empty() {
            return;
        }
        let run = |paths: Vec<PathBuf>, prefix: &Path| {
            let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
            arguments.extend(paths.iter().map(|path| path.as_os_str()));
            let output = self.user.run(program.as_ref(), &arguments);
            let strip = |bytes: Vec<u8>| without(bytes, prefix.as_os_str().as_bytes());
            (sorted(&strip(output.stdout), end), sorted(&strip(output.stderr), b'\n'))
        };
        let expected = run(paths.to_vec(), self.tree);
        let shown = run(paths.iter().map(|path| self.on_mount(path)).collect(), self.shown);
        let what = self.what(&format!("{program} {options:?}"));
        assert_same(&shown.0, &expected.0, &what);
        assert_same(&shown.1, &expected.1, &format!("{what}: errors"));
    }

    fn compare_query(&self, query: &str, test: &str) {
        let depth = query.matches('[').count();
        let directory = self.shown.join(query);
        let mut arguments = vec![directory.as_os_str()];
        arguments.extend(["-mindepth", "1", "-printf", "%l\\0"].map(OsStr::new));
        let found = self.user.run("find".as_ref(), &arguments).stdout;
        let up = "../".repeat(depth);
        let found = sorted(&found, 0).into_iter().map(|target| {
            target.strip_prefix(&up).unwrap_or_else(|| panic!("{target}")).to_owned()
        });
        let mut found: Vec<String> = found.collect();
        found.sort();
        let mut arguments = vec![self.tree.as_os_str(), "-mindepth".as_ref(), "1".as_ref()];
        arguments.extend(test.split(' ').map(OsStr::new));
        // Names without attributes, which some directories show, are in no index.
        arguments.extend(["-printf", "%P|%s\\0"].map(OsStr::new));
        let lines = sorted(&self.user.run("find".as_ref(), &arguments).stdout, 0);
        let expected = lines.iter().map(|line| line.rsplit_once('|').unwrap().0.to_owned());
        let mut expected: Vec<String> = expected.collect();
        expected.sort();
        assert_same(&found, &expected, &self.what(query));
    }
}

/// Returns bytes without a text in them.
fn without(bytes: Vec<u8>, text: &[u8]) -> Vec<u8> {
    let (mut left, mut rest) = (Vec::new(), &bytes[..]);
    while !rest.is_empty() {
        match rest.strip_prefix(text) {
            Some(after) => rest = after,
            None => {
                left.push(rest[0]);
                rest = &rest[1..];
            }
        }
    }
    OsStr::from_bytes(&left).to_owned().into_vec()
}
