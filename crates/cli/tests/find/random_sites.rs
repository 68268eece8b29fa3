//! What the index shows a user is what the kernel shows that user, of random sites: trees below
//! ancestors that let some in, of several sources that meet and are scanned again after changes,
//! with mounts and with parts left out. find(1), du(1) and getfattr run with the same credentials
//! are the oracle. Whatever a user can read of the files of an index has no name that the kernel
//! would not show. `meanwhile` changes trees while they are scanned. Needs root.

mod asked;
mod meanwhile;
mod names;
mod raw;
mod site;

use crate::common;

use asked::{Question, ask, compare};
use common::length::rounds;
use common::{Fixture, GIDS, UIDS, User};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use raw::Files;
use site::Site;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Tests that run beside each other.
const TESTS: u64 = 6;

/// Sites of all of them.
const SITES: u64 = 2000;

#[test]
fn random_sites_are_shown_as_the_kernel_shows_them_1() {
    sites(0);
}

#[test]
fn random_sites_are_shown_as_the_kernel_shows_them_2() {
    sites(1);
}

#[test]
fn random_sites_are_shown_as_the_kernel_shows_them_3() {
    sites(2);
}

#[test]
fn random_sites_are_shown_as_the_kernel_shows_them_4() {
    sites(3);
}

#[test]
fn random_sites_are_shown_as_the_kernel_shows_them_5() {
    sites(4);
}

#[test]
fn random_sites_are_shown_as_the_kernel_shows_them_6() {
    sites(5);
}

/// Numbers of checks, for runs of many.
#[derive(Debug, Default)]
struct Done {
    sites: usize,
    runs: usize,
    users: usize,
    comparisons: usize,
    lines: usize,
    files_read: usize,
    files_guessed: usize,
    narrowed: usize,
}

/// The seeds of one of several tests that make so many trees together. `CANOPY_SITES=100000` makes
/// so many sites instead of 360, or of 2,000 with `CANOPY_LONG=1`. `CANOPY_SEED=46` repeats one and
/// keeps it for a look.
fn seeds(test: u64, tests: u64, trees: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let all = match number("CANOPY_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CANOPY_SITES").map_or(trees, |sites| trees * sites / SITES),
    };
    all.filter(|seed| seed % tests == test).collect()
}

fn sites(test: u64) {
    let mut seeds = seeds(test, TESTS, SITES);
    if std::env::var_os("CANOPY_SITES").is_none() {
        seeds.truncate(rounds(60, usize::MAX));
    }
    if seeds.is_empty() {
        return;
    }
    with_own_mounts(|| {
        let mut place = Fixture::new();
        let mut memory = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::set_permissions(memory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let kept = std::env::var("CANOPY_SEED").is_ok();
        place.dir.disable_cleanup(kept);
        memory.disable_cleanup(kept);
        let mut done = Done::default();
        for seed in seeds {
            let named = Named(seed);
            let mut site = Site::make(seed, &place, memory.path());
            site.index_with_changes(&place);
            compare_site(&mut site, &place, &mut done);
            if !kept {
                site.remove();
            }
            drop(named);
            if done.sites.is_multiple_of(500) {
                println!("up to seed {seed}: {done:?}");
            }
        }
        println!("{done:?}");
    });
}

/// Names a seed if what it made fails.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("CANOPY_SEED={} makes this site again", self.0);
        }
    }
}

/// Runs in a thread whose mounts nobody else sees, and which end with it.
fn with_own_mounts(run: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
            let private = ["--make-rprivate", "/"];
            assert!(std::process::Command::new("mount").args(private).status().unwrap().success());
            run();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Asks a site as several users.
fn compare_site(site: &mut Site, place: &Fixture, done: &mut Done) {
    let covered = site.covered();
    let dirs: Vec<PathBuf> =
        common::all_paths(&site.base).into_iter().filter(|path| is_dir(path)).collect();
    let mut files = None;
    let users = match site.random.random_bool(0.08) {
        true => site.random.random_range(4..9),
        false => site.random.random_range(2..4),
    };
    done.sites += 1;
    done.runs += site.runs;
    done.narrowed += usize::from(site.narrowed);
    for number in 0..users {
        let user = random_user(&mut site.random);
        let mut random = common::seeded(site.random.random());
        let raw = (site.settled && number < 2).then(|| {
            files.get_or_insert_with(|| {
                let files = Files::read(&site.index);
                files.assert_has(site, &covered);
                files
            })
        });
        let paths = raw.as_ref().map(|files| files.paths());
        let mut starts: Vec<&Path> = site.outermost();
        starts.extend((0..3).filter_map(|_| covered.choose(&mut random)).map(PathBuf::as_path));
        let du = starts.choose(&mut random).copied().unwrap();
        let question = Question {
            du,
            du_options: du_options(site, &mut random),
            values: random.random_bool(0.5),
            raw: paths.as_ref().map(|paths| (&dirs[..], &paths[..])),
            starts,
        };
        let answers = ask(site, place, &user, &question);
        let what = format!("seed {} {user:?} {:?}", site.seed, question.starts);
        compare(site, &answers.find, &format!("{what} find"));
        compare(site, &answers.xattrs, &format!("{what} -xattr"));
        // Where a mount is not entered, du(1) leaves the mount point out.
        if !(site.narrowed || site.has_foreign() && site.one_file_system) {
            compare(site, &answers.du, &format!("{what} du {:?} {du:?}", question.du_options));
            done.comparisons += 1;
        }
        done.users += 1;
        done.comparisons += 2;
        done.lines += answers.find.kernel.len() + answers.xattrs.kernel.len();
        if let (Some(files), Some(raw)) = (&files, answers.raw) {
            done.files_read += raw.opened.len();
            done.files_guessed += files.assert_closed(site, &user, &raw);
            done.comparisons += 1;
        }
    }
}

fn is_dir(path: &Path) -> bool {
    path.symlink_metadata().unwrap().is_dir()
}

fn du_options(site: &Site, random: &mut StdRng) -> Vec<String> {
    let mut options = vec!["-s"];
    match random.random_range(0..4) {
        0 => options.push("--apparent-size"),
        // At which directory a hard link counts is another order.
        1 if !site.hard_links => options = vec!["-a"],
        2 => options.push("--inodes"),
        _ => {}
    }
    if site.one_file_system {
        options.push("-x");
    }
    let options = options.into_iter().map(str::to_owned);
    options.chain(site.du_exclude()).collect()
}

/// Somebody other than root, at times nobody that a file names, or a member of root's group.
fn random_user(random: &mut StdRng) -> User {
    let groups = |random: &mut StdRng, chance| {
        GIDS.iter()
            .copied()
            .filter(|_| random.random_bool(chance))
            .filter(|&gid| gid != 0)
            .collect()
    };
    match random.random_range(0..10) {
        0 => User { uid: 65534, gid: 65534, groups: Vec::new() },
        1 => User { uid: UIDS[random.random_range(0..4)], gid: 0, groups: groups(random, 0.2) },
        2 => User { uid: 10_005, gid: 10_007, groups: vec![10_009] },
        3 => User {
            uid: random.random_range(1000..60_000),
            gid: GIDS[random.random_range(0..4)],
            groups: groups(random, 0.8),
        },
        _ => User::random(random),
    }
}
