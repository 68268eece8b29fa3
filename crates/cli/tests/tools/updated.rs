//! Every tool, and SQL, on an index that was brought up to date by listing some directories, against one of the
//! same tree that was written anew: their answers are the same. Needs root.

use crate::common::length::rounds;
use crate::common::{Fixture, User, all_paths, odd_name, random_tree, seeded};
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// All sections of a report.
const SECTIONS: &str = "totals,users,groups,types,extensions,sizes,ages,largest,newest,oldest,\
    used,unused,trees,outliers,directories,deepest,empty,duplicates,links,symlinks,sparse,\
    permissions,owners,names,future";

/// The commands for each index; `TREE` stands for the tree.
const COMMANDS: [&[&str]; 17] = [
    &["find", "TREE", "-printf", "%p %y %i %m %n %U %G %s %b %T@ %C@ %l %F\\0"],
    &["find", "TREE", "-mindepth", "2", "-maxdepth", "3", "-print0"],
    &["find", "TREE", "-name", "*1*", "-prune", "-o", "-print0"],
    &["find", "TREE", "-empty", "-print0"],
    &["find", "-L", "TREE", "-size", "+1k", "-print0"],
    &["du", "-0", "TREE"],
    &["du", "-0a", "TREE"],
    &["du", "-0s", "TREE"],
    &["du", "-0ls", "TREE"],
    &["du", "--by", "user", "TREE"],
    &["du", "--by", "extension", "TREE"],
    &["ls", "-ilR", "TREE"],
    &["report", "--section", SECTIONS, "TREE"],
    &["report", "--section", SECTIONS, "--user", "2001", "TREE"],
    &["export", "--format", "csv", "TREE"],
    &["export", "--format", "gufi-trace", "TREE"],
    &[
        "sql",
        "SELECT * FROM entries; SELECT * FROM directories; SELECT * FROM usage; \
              SELECT * FROM xattrs; SELECT * FROM summaries",
    ],
];

#[test]
fn an_updated_index_answers_as_a_new_one() {
    for seed in 7100..7100 + rounds(3, 6) {
        follow(seed, true, &|place, suspects| {
            let index = place.path("index");
            let mut arguments: Vec<&OsStr> =
                ["update", "--copied-rows", "0"].map(OsStr::new).to_vec();
            arguments.extend(suspects.iter().map(|path| path.as_os_str()));
            place.canopy(&index, &arguments)
        });
    }
}

/// All changes but those of files with several names alter times of directories.
#[test]
fn an_index_by_directory_times_answers_as_a_new_one() {
    for seed in 7200..7200 + rounds(2, 3) {
        follow(seed, false, &|place, _| {
            let (index, tree) = (place.path("index"), place.path("tree"));
            // Space that files take is settled then.
            assert!(Command::new("sync").arg("-f").arg(&tree).status().unwrap().success());
            let mut arguments =
                ["index", "--incremental", "--trust-directory-times"].map(OsStr::new).to_vec();
            arguments.push(tree.as_os_str());
            place.canopy(&index, &arguments)
        });
    }
}

/// Changes a tree, has an index follow by `update`, and compares it with a new one.
fn follow(seed: u64, links: bool, update: &dyn Fn(&Fixture, &BTreeSet<PathBuf>) -> Output) {
    let place = Fixture::new();
    let (tree, index, new) = (place.path("tree"), place.path("index"), place.path("new"));
    let mut random = seeded(seed);
    random_tree(&tree, &mut random, links);
    keep_access_times(&tree);
    let mut changes = Changes::of(&tree, links);
    if !links {
        // Times of directories count when they are two seconds old.
        std::thread::sleep(Duration::from_millis(2100));
    }
    place.index(&index, &tree);
    for round in 0..4 {
        let suspects = changes.make(&mut random, round);
        let output = update(&place, &suspects);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    place.index(&new, &tree);
    let mut users = vec![User { uid: 0, gid: 0, groups: Vec::new() }];
    users.extend((0..3).map(|_| User::random(&mut random)));
    for user in users {
        for command in COMMANDS {
            let [updated, written] =
                [&index, &new].map(|index| answer(&place, index, &user, command));
            assert!(updated == written, "{seed}, {user:?}, {command:?}:\n{updated:?}\n{written:?}");
        }
    }
}

/// Gives symbolic links times of access that scans, which read them, do not change.
fn keep_access_times(tree: &Path) {
    let at = |tv_sec| rustix::fs::Timespec { tv_sec, tv_nsec: 5 };
    let (last_access, last_modification) = (at(4_000_000_000), at(1_000_000_000));
    let times = rustix::fs::Timestamps { last_access, last_modification };
    let links = all_paths(tree).into_iter().filter(|path| path.is_symlink());
    for link in links {
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, &link, &times, flags).unwrap();
    }
}

/// Gives what a command prints for a user, in an order of its own where it has none.
fn answer(place: &Fixture, index: &Path, user: &User, command: &[&str]) -> Vec<String> {
    let tree = place.path("tree");
    let mut arguments: Vec<&OsStr> = vec!["--index".as_ref(), index.as_os_str()];
    arguments.extend(command.iter().map(|&word| match word {
        "TREE" => tree.as_os_str(),
        word => OsStr::new(word),
    }));
    let output = user.run(place.canopy.as_os_str(), &arguments);
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success() || user.uid != 0, "{}", text.escape_ascii());
    let mut lines: Vec<String> = text
        .split(|byte| matches!(byte, 0 | b'\n'))
        .map(|line| line.escape_ascii().to_string())
        .collect();
    lines.retain(|line| !line.contains(", scanned ") && !line.contains("in generation "));
    lines.sort();
    lines
}

/// Changes a tree without reading its directories, which would change their access times.
struct Changes {
    tree: PathBuf,
    directories: BTreeSet<PathBuf>,
    /// Files with one name.
    files: BTreeSet<PathBuf>,
    /// Whether files get further names.
    links: bool,
}

impl Changes {
    fn of(tree: &Path, links: bool) -> Self {
        let (mut directories, mut files) = (BTreeSet::new(), BTreeSet::new());
        for path in all_paths(tree) {
            let metadata = path.symlink_metadata().unwrap();
            if metadata.is_dir() {
                directories.insert(path);
            } else if metadata.is_file() && metadata.nlink() == 1 {
                files.insert(path);
            }
        }
        Changes { tree: tree.to_owned(), directories, files, links }
    }

    /// Makes some changes, and returns the directories whose listings they change.
    fn make(&mut self, random: &mut StdRng, round: usize) -> BTreeSet<PathBuf> {
        let mut suspects = BTreeSet::from([self.tree.clone()]);
        for number in 0..random.random_range(1..6) {
            let directory = any(&self.directories, random).unwrap();
            let path = directory.join(odd_name(random, 1000 * (round + 1) + number));
            match random.random_range(0..7) {
                0 => {
                    fs::create_dir(&path).unwrap();
                    fs::write(path.join("in it"), "x").unwrap();
                    self.directories.insert(path);
                }
                1 if self.links => {
                    if let Some(file) = any(&self.files, random) {
                        fs::hard_link(&file, &path).unwrap();
                        suspects.extend(file.parent().map(Path::to_owned));
                        self.files.remove(&file);
                    }
                }
                2 | 3 => {
                    if let Some(file) = any(&self.files, random) {
                        fs::remove_file(&file).unwrap();
                        suspects.extend(around(&self.tree, file.parent().unwrap()));
                        self.files.remove(&file);
                    }
                }
                4 if directory != self.tree => {
                    // What was in it comes with it.
                    let from = directory.parent().unwrap();
                    let to = self.tree.join(path.file_name().unwrap());
                    fs::rename(&directory, &to).unwrap();
                    self.directories.retain(|known| !known.starts_with(&directory));
                    self.files.retain(|known| !known.starts_with(&directory));
                    suspects.extend(around(&self.tree, from));
                    suspects.insert(to);
                    continue;
                }
                5 => {
                    let mode = [0o700, 0o750, 0o711, 0o755][random.random_range(0..4)];
                    fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
                }
                _ => {
                    fs::write(&path, vec![b'y'; random.random_range(0..9000)]).unwrap();
                    self.files.insert(path);
                }
            }
            suspects.extend(around(&self.tree, &directory));
        }
        suspects
    }
}

/// A directory whose own attributes have changed is in the listing of the one above it, too.
fn around(tree: &Path, directory: &Path) -> Vec<PathBuf> {
    let above = directory.parent().filter(|above| above.starts_with(tree));
    above.into_iter().chain([directory]).map(Path::to_owned).collect()
}

fn any(paths: &BTreeSet<PathBuf>, random: &mut StdRng) -> Option<PathBuf> {
    (!paths.is_empty())
        .then(|| paths.iter().nth(random.random_range(0..paths.len())).unwrap().clone())
}
