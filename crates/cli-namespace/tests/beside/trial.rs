//! A mounted namespace on several servers, with a tree in it whose large directories are split.

use crate::common::{CANOPY, as_user, ns, shell, success};
use crate::site::Site;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Users of whom some may not see all.
pub const UIDS: [u32; 3] = [0, 2001, 2002];

pub struct Trial {
    pub site: Site,
    pub on: PathBuf,
    configuration: PathBuf,
}

/// Makes a tree: large directories, files with several names, ACLs, attributes, closed directories.
const TREE: &str = "
    mkdir -p a/b/c big a/big closed gate/in
    for i in $(seq 60); do echo $i > big/file$i; : > a/big/empty$i.txt; done; for i in $(seq 20); do mkdir a/big/d$i; done
    ln big/file7 a/seven; ln a/seven a/b/again; ln big/file8 'a/b/with space'
    ln -s ../big a/link; ln -s nowhere big/dangling; mkfifo a/fifo
    setfattr -n user.note -v one big/file9 a/big/empty3.txt a/b
    setfattr -n trusted.note -v two big/file9
    setfacl -m u:2001:rwx,g:2002:--- a/b; setfacl -m u:2002:r big/file10; setfacl -d -m u:2001:rx a/b/c
    echo secret > closed/file; chown 2001 closed; chmod 700 closed
    echo inner > gate/in/file; chmod 711 gate
    head -c 3000000 /dev/urandom > a/large; truncate -s 10M a/sparse; echo end >> a/sparse
    chown 2002:2002 big/file1*; touch -d '2020-01-02 03:04:05' big/file2 a/b/c
    mv big/file20 a/b/moved; mv a/big/d3 a/b/c/moved; rm big/file30";

impl Trial {
    /// Mounts the namespace with the tree.
    pub fn new() -> Self {
        let mut site = Site::with(4, 2, &["--split-entries", "16"]);
        let on = site.mount("on", &["-o", "allow_other"]);
        shell(&on, TREE);
        let configuration = site.path("canopy.toml");
        fs::write(&configuration, "trust_fs = [\"fuse.canopy\"]\n").unwrap();
        Trial { site, on, configuration }
    }

    /// Runs find(1) or another program in the mount, and returns its lines, sorted.
    pub fn program(&self, uid: u32, words: &[&str]) -> Vec<String> {
        let mut command = as_user(uid, words[0]);
        command.args(&words[1..]).current_dir(&self.on).env("TZ", "UTC").env("LC_ALL", "C.UTF-8");
        lines(&command.output().unwrap())
    }

    /// Runs `canopy ns`; `@` as a word is the namespace.
    pub fn ns(&self, words: &[&str]) -> Output {
        let mut command = ns(words[0]);
        let place = self.site.namespace.to_str().unwrap();
        let words = words[1..].iter().map(|word| if *word == "@" { place } else { word });
        command.args(words).env("TZ", "UTC");
        command.output().unwrap()
    }

    /// `canopy` with an index, as a user.
    pub fn canopy(&self, index: &str, uid: u32, words: &[&str]) -> Command {
        let canopy = std::path::Path::new(CANOPY).with_file_name("canopy");
        let mut command = as_user(uid, canopy.to_str().unwrap());
        command.arg("--index").arg(self.site.path(index)).args(words).current_dir("/");
        command.env("CANOPY_SITE_CONFIG", &self.configuration).env("TZ", "UTC");
        command
    }

    /// Indexes the namespace by its records, or follows it.
    pub fn index(&self, index: &str, options: &[&str]) -> String {
        let source = format!("ns:{}", self.site.namespace.display());
        let on = self.on.to_str().unwrap();
        let words = Vec::from_iter(options.iter().copied().chain([&*source, "--root", on]));
        success(&self.canopy(index, 0, &words).output().unwrap())
    }
}

/// Returns the lines that a program has printed, sorted.
pub fn lines(output: &Output) -> Vec<String> {
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = Vec::from_iter(printed.lines().map(str::to_owned));
    lines.sort();
    lines
}

/// Fails unless both have the same lines.
#[track_caller]
pub fn assert_same(found: &[String], expected: &[String], what: &str) {
    let missing = expected.iter().filter(|line| !found.contains(line));
    let more = found.iter().filter(|line| !expected.contains(line));
    let (missing, more) = (Vec::from_iter(missing.take(5)), Vec::from_iter(more.take(5)));
    assert!(found == expected, "{what}: missing {missing:#?}, not expected {more:#?}");
    assert!(!expected.is_empty(), "{what}");
}
