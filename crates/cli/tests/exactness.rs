//! What the index shows a user is what the kernel shows that user: random trees, random credentials, and find(1) and
//! du(1) as the oracle, run with the same credentials. 2,000 cases in all. Needs root.

mod common;

use common::{Place, User, assert_same, random_tree, seeded, sorted};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const FORMAT: &str = "%p|%P|%f|%h|%d|%y|%s|%b|%k|%m|%M|%u|%U|%g|%G|%n|%i|%D|%l|%T@|%C@|%A@|%S\\0";

#[test]
fn users_see_what_the_kernel_shows_them_1() {
    cases(0..84);
}

#[test]
fn users_see_what_the_kernel_shows_them_2() {
    cases(84..168);
}

#[test]
fn users_see_what_the_kernel_shows_them_3() {
    cases(168..252);
}

/// Eight users on each tree.
fn cases(seeds: std::ops::Range<u64>) {
    let mut place = Place::new();
    // CANOPY_SEED=46 repeats one tree alone, and keeps it for a look at what failed.
    let only: Option<u64> = std::env::var("CANOPY_SEED").ok().map(|seed| seed.parse().unwrap());
    place.dir.disable_cleanup(only.is_some());
    for seed in seeds.filter(|&seed| only.is_none_or(|only| seed == only)) {
        let mut random = seeded(seed);
        let tree = place.path(&format!("tree{seed}"));
        let index = place.path(&format!("index{seed}"));
        // Which directory a hard link's space is shown at depends on the order of the walk: where lines of single
        // directories are compared, there are none.
        let hard_links = seed % 2 == 0;
        random_tree(&tree, &mut random, hard_links);
        place.index(&index, &tree);
        nobody_else_can_write(&index);
        for _ in 0..8 {
            let user = User::random(&mut random);
            let case = Case { place: &place, index: &index, user: &user, seed };
            let shown = case.compare_find(&tree);
            // A directory that find shows has readable directories above it.
            if let Some(start) = shown.get(shown.len() / 2) {
                case.compare_find(Path::new(OsStr::from_bytes(start)));
            }
            case.compare_du(&tree, &["-s"]);
            case.compare_du(&tree, &["-s", "--apparent-size"]);
            if hard_links {
                case.compare_du(&tree, &["-s", "--inodes"]);
            } else {
                case.compare_du(&tree, &["-a"]);
                case.compare_du(&tree, &["-c", "-h", "-d1", "--apparent-size"]);
            }
        }
        if only.is_none() {
            std::fs::remove_dir_all(&tree).unwrap();
            std::fs::remove_dir_all(&index).unwrap();
        }
    }
}

struct Case<'a> {
    place: &'a Place,
    index: &'a Path,
    user: &'a User,
    seed: u64,
}

impl Case<'_> {
    fn canopy(&self, arguments: &[&OsStr]) -> Vec<u8> {
        let mut all = vec![OsStr::new("--index"), self.index.as_os_str()];
        all.extend(arguments);
        let output = self.user.run(self.place.canopy.as_os_str(), &all);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "seed {} {:?}: {errors}", self.seed, self.user);
        output.stdout
    }

    /// Compares find from a start; returns the directories that were shown.
    fn compare_find(&self, start: &Path) -> Vec<Vec<u8>> {
        let arguments = ["find".as_ref(), start.as_os_str(), "-printf".as_ref(), FORMAT.as_ref()];
        let expected = self.user.run("find".as_ref(), &arguments[1..]).stdout;
        let shown = self.canopy(&arguments);
        let what = format!("seed {} {:?} find {start:?}", self.seed, self.user);
        assert_same(&sorted(&shown, 0), &sorted(&expected, 0), &what);
        let lines = expected.split(|&byte| byte == 0);
        let fields = lines.map(|line| line.split(|&byte| byte == b'|').collect::<Vec<_>>());
        fields.filter(|fields| fields.get(5) == Some(&&b"d"[..])).map(|fields| fields[0].to_vec()).collect()
    }

    fn compare_du(&self, start: &Path, options: &[&str]) {
        let mut arguments: Vec<&OsStr> = vec!["du".as_ref(), "-0".as_ref()];
        arguments.extend(options.iter().map(OsStr::new));
        arguments.push(start.as_os_str());
        let expected = self.user.run("du".as_ref(), &arguments[1..]).stdout;
        let shown = self.canopy(&arguments);
        let what = format!("seed {} {:?} du {options:?}", self.seed, self.user);
        assert_same(&sorted(&shown, 0), &sorted(&expected, 0), &what);
    }
}

/// Everything in the index belongs to root and has no write bit for anybody else (with an ACL, the group's bits are
/// the mask, which bounds every named entry), and users cannot put a lock on it.
fn nobody_else_can_write(directory: &Path) {
    let metadata = directory.symlink_metadata().unwrap();
    assert_eq!(metadata.uid(), 0, "{directory:?}");
    assert_eq!(metadata.mode() & 0o022, 0, "{directory:?}");
    if metadata.is_dir() {
        for entry in std::fs::read_dir(directory).unwrap() {
            nobody_else_can_write(&entry.unwrap().path());
        }
    }
}
