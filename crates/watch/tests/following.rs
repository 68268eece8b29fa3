//! What suspects make of an index: one that lists again only what it is told to, while a tree
//! changes, must end up as a walk of the tree finds it. Needs root.

mod model;

use canopy_model::Generation;
use canopy_scan::MountRules;
use canopy_watch::{
    Batch, EventCounts, Fanotify, Inotify, Intake, Journal, Pacing, Scope, Territory, Work,
};
use model::{Model, Tree, wait_until};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PACING: Pacing = Pacing { interval: Duration::from_millis(200) };

/// A directory on the file system of the build, and one on a tmpfs, for each that tells.
fn places() -> Vec<(Teller, tempfile::TempDir)> {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(built).unwrap();
    let place = |teller, path| (teller, tempfile::tempdir_in(path).unwrap());
    let both = |teller| [place(teller, built), place(teller, Path::new("/dev/shm"))];
    TELLERS.into_iter().flat_map(both).collect()
}

fn next_batches(intake: &Intake, pacing: Pacing, limit: Duration) -> Vec<Batch> {
    match intake.next(pacing, limit) {
        Some(Work::Changes(batches)) => batches,
        Some(Work::Requests(_)) => panic!("nobody asks for anything"),
        None => Vec::new(),
    }
}

fn intake(state: &Path, roots: &[&Path], suspects_max: usize) -> Intake {
    let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let territory = Territory::new(roots.iter().map(|root| bytes(root)).collect(), Vec::new());
    let rules = MountRules::new(Vec::new(), false);
    let scope =
        Scope { territory, rules, one_file_system: false, suspects_max, path_bytes_max: 4096 };
    let (journal, recovered) = Journal::open(state).unwrap();
    Intake::new(scope, journal, recovered).unwrap()
}

/// What tells of changes.
#[derive(Clone, Copy, Debug)]
enum Teller {
    Fanotify,
    Inotify,
}

const TELLERS: [Teller; 2] = [Teller::Fanotify, Teller::Inotify];

/// Returns what tells an intake of changes from now on, until that is stopped.
fn begin(teller: Teller, intake: &Intake) -> Box<dyn FnOnce() + Send + '_> {
    match teller {
        Teller::Fanotify => {
            let (group, unfollowed) = Fanotify::begin(intake).unwrap().expect("this needs root");
            assert_eq!(unfollowed, []);
            Box::new(|| group.run(intake, &|one| panic!("{one:?}")).unwrap())
        }
        Teller::Inotify => {
            let watches = Inotify::begin(intake).unwrap();
            Box::new(|| watches.run(intake).unwrap())
        }
    }
}

/// Follows trees while `change` changes them, and compares what became of the model in the end.
fn follow(teller: Teller, roots: &[&Path], suspects_max: usize, change: impl FnOnce(&Intake)) {
    let state = tempfile::tempdir().unwrap();
    let intake = intake(&state.path().join("watch"), roots, suspects_max);
    let told = begin(teller, &intake);
    intake.suspect_all();
    let model = std::thread::scope(|scope| {
        scope.spawn(told);
        let _ends = Ends(&intake);
        let model = scope.spawn(|| {
            let mut model = Model::default();
            while !intake.is_stopped() {
                let limit = Duration::from_millis(50);
                for batch in next_batches(&intake, PACING, limit) {
                    model.apply(&batch.suspects);
                    model.apply_links(&batch.links);
                    intake.succeeded(&batch, Generation(1));
                }
            }
            model
        });
        change(&intake);
        settle(&intake, roots);
        intake.stop();
        model.join().unwrap()
    });
    for root in roots {
        model.assert_is(root);
    }
}

/// Waits until all that was told is dealt with.
fn settle(intake: &Intake, roots: &[&Path]) {
    // What happened before this has been told once this is, since events of one queue are in order.
    let before = intake.snapshot().unwrap();
    let marker = roots[0].join("marker");
    fs::write(&marker, "").unwrap();
    fs::remove_file(&marker).unwrap();
    // What happens elsewhere on the file system may never end.
    let here = |heard: EventCounts| heard.events - heard.elsewhere - heard.gone;
    let mut last = (here(before.heard), Instant::now());
    wait_until("all is dealt with", || {
        let now = intake.snapshot().unwrap();
        if here(now.heard) != last.0 {
            last = (here(now.heard), Instant::now());
        }
        // On a busy machine, what came before the marker may be dealt with before that is read.
        here(now.heard) > here(before.heard)
            && last.1.elapsed() > Duration::from_millis(100)
            && now.batches > before.batches
            && now.sources.iter().all(|source| source.suspects == 0)
    });
}

#[test]
fn whatever_changes_is_listed_again() {
    for (teller, place) in places() {
        let root = place.path().join("tree");
        for path in ["a/b/c", "a/d", "e"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        fs::write(root.join("a/b/c/file"), "x").unwrap();
        let at = |path: &str| root.join(path);
        let outside = place.path().join("outside");
        fs::create_dir_all(outside.join("in/deep")).unwrap();
        fs::write(outside.join("in/deep/file"), "x").unwrap();
        follow(teller, &[&root], 1000, |intake| {
            let step = |step: &dyn Fn()| {
                step();
                settle(intake, &[&root]);
            };
            step(&|| fs::write(at("e/new"), "12").unwrap());
            step(&|| fs::write(at("e/new"), "12345").unwrap());
            step(&|| fs::set_permissions(at("e/new"), PermissionsExt::from_mode(0o600)).unwrap());
            step(&|| fs::set_permissions(at("a"), PermissionsExt::from_mode(0o700)).unwrap());
            step(&|| fs::rename(at("a/b"), at("e/b")).unwrap());
            // A path that was known before the rename.
            step(&|| fs::write(at("e/b/c/later"), "x").unwrap());
            step(&|| fs::rename(at("e"), at("f")).unwrap());
            step(&|| fs::write(at("f/b/c/later"), "xyz").unwrap());
            step(&|| fs::remove_dir_all(at("f/b")).unwrap());
            step(&|| fs::rename(outside.join("in"), at("in")).unwrap());
            step(&|| fs::write(at("in/deep/more"), "x").unwrap());
            step(&|| fs::rename(at("in/deep"), outside.join("out")).unwrap());
            step(&|| fs::write(outside.join("out/unseen"), "x").unwrap());
            step(&|| fs::remove_dir(at("a/d")).unwrap());
            step(&|| std::os::unix::fs::symlink("x", at("a/link")).unwrap());
            step(&|| fs::create_dir_all(at("a/1/2/3/4")).unwrap());
            if matches!(teller, Teller::Inotify) {
                return;
            }
            // Other names of a file, wherever they are.
            fs::write(at("f/first"), "x").unwrap();
            step(&|| fs::hard_link(at("f/first"), at("a/1/second")).unwrap());
            step(&|| fs::write(at("a/1/second"), "longer").unwrap());
            step(&|| fs::rename(at("f/first"), at("f/renamed")).unwrap());
            step(&|| fs::hard_link(at("f/renamed"), outside.join("third")).unwrap());
            step(&|| fs::remove_file(at("f/renamed")).unwrap());
            step(&|| fs::write(outside.join("third"), "even longer").unwrap());
        });
    }
}

#[test]
fn changes_during_a_listing_are_listed_again() {
    for (teller, place) in places() {
        let root = place.path().join("tree");
        fs::create_dir(&root).unwrap();
        for seed in 0..6 {
            // With so few suspects, nearly all are folded.
            let suspects_max = if seed % 2 == 0 { 100_000 } else { 5 };
            let mut tree = Tree::new(&root, seed, matches!(teller, Teller::Fanotify));
            follow(teller, &[&root], suspects_max, |_| {
                for _ in 0..1500 {
                    tree.change();
                }
            });
        }
    }
}

#[test]
fn the_way_to_a_root_may_change() {
    for (teller, place) in places() {
        let [above, root] = ["above", "above/root"].map(|path| place.path().join(path));
        fs::create_dir_all(root.join("d")).unwrap();
        let other = place.path().join("other");
        fs::create_dir_all(other.join("root/another")).unwrap();
        follow(teller, &[&root], 1000, |intake| {
            fs::set_permissions(&above, PermissionsExt::from_mode(0o711)).unwrap();
            settle(intake, &[&root]);
            fs::rename(&above, place.path().join("was")).unwrap();
            fs::rename(&other, &above).unwrap();
            settle(intake, &[&root]);
            // What is above the root now is followed too.
            fs::write(root.join("another/file"), "x").unwrap();
            fs::set_permissions(&above, PermissionsExt::from_mode(0o750)).unwrap();
        });
    }
}

#[test]
fn mounted_file_systems_are_followed() {
    for teller in TELLERS {
        mounts_are_followed(teller);
    }
}

fn mounts_are_followed(teller: Teller) {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("tree");
    let point = root.join("a/point");
    fs::create_dir_all(&point).unwrap();
    let mount = |arguments: &[&str]| {
        let mut command = std::process::Command::new(arguments[0]);
        assert!(command.args(&arguments[1..]).arg(&point).status().unwrap().success());
    };
    let _unmounted = Unmounted(point.clone());
    mount(&["mount", "-t", "tmpfs", "tmpfs"]);
    fs::create_dir(point.join("d")).unwrap();
    follow(teller, &[&root], 1000, |intake| {
        settle(intake, &[&root]);
        fs::write(point.join("d/file"), "x").unwrap();
        settle(intake, &[&root]);
        // Nothing keeps it from being unmounted.
        mount(&["umount"]);
        settle(intake, &[&root]);
        mount(&["mount", "-t", "tmpfs", "tmpfs"]);
        settle(intake, &[&root]);
        fs::create_dir(point.join("new")).unwrap();
        fs::write(point.join("new/file"), "x").unwrap();
    });
}

/// Ends the threads of a test that fails.
struct Ends<'a>(&'a Intake);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Returns the only batch.
fn one(mut batches: Vec<Batch>) -> Batch {
    assert_eq!(batches.len(), 1);
    batches.remove(0)
}

struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn several_roots_on_one_file_system_are_told_apart() {
    for (teller, place) in places() {
        let roots = ["one", "two"].map(|name| place.path().join(name));
        roots.iter().for_each(|root| fs::create_dir(root).unwrap());
        let [one, two] = [&roots[0], &roots[1]].map(PathBuf::as_path);
        follow(teller, &[one, two], 1000, |_| {
            for number in 0..50 {
                let names = [one, two].map(|root| root.join(format!("d{number}")));
                fs::create_dir(&names[0]).unwrap();
                fs::write(names[0].join("file"), "x").unwrap();
                fs::rename(&names[0], &names[1]).unwrap();
            }
        });
    }
}

#[test]
fn events_that_the_kernel_lost_make_all_suspect() {
    for teller in TELLERS {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let name = format!("{teller:?}").to_lowercase();
        let limit = format!("/proc/sys/fs/{name}/max_queued_events");
        let queued: u32 = fs::read_to_string(limit).unwrap().trim().parse().unwrap();
        let root = place.path().join("tree");
        fs::create_dir_all(root.join("before")).unwrap();
        fs::create_dir(root.join("many")).unwrap();
        let state = tempfile::tempdir().unwrap();
        let intake = intake(&state.path().join("watch"), &[&root], 1000);
        let told = begin(teller, &intake);
        let mut model = Model::default();
        intake.suspect_all();
        let limit = Duration::from_secs(10);
        let batch = one(next_batches(&intake, PACING, limit));
        model.apply(&batch.suspects);
        intake.succeeded(&batch, Generation(1));
        // Nobody reads meanwhile.
        for number in 0..queued {
            fs::write(root.join(format!("many/{number}")), "").unwrap();
        }
        fs::write(root.join("before/last"), "").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(told);
            let _ends = Ends(&intake);
            wait_until("the overflow is told", || intake.snapshot().unwrap().heard.overflows > 0);
            let batch = one(next_batches(&intake, PACING, limit));
            model.apply(&batch.suspects);
            intake.succeeded(&batch, Generation(1));
            intake.stop();
        });
        model.assert_is(&root);
    }
}

#[test]
fn suspects_outlive_the_process_until_they_are_dealt_with() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("tree");
    fs::create_dir_all(root.join("a")).unwrap();
    let state = place.path().join("watch");
    let suspect = |path: &str, recursive| {
        let path = root.join(path).as_os_str().as_bytes().to_vec();
        canopy_watch::Suspect { path, recursive }
    };
    let limit = Duration::from_secs(5);
    let begun = intake(&state, &[&root], 1000);
    begun.take_in(&[suspect("a", false), suspect("b", true)], Default::default());
    let batch = one(next_batches(&begun, PACING, limit));
    begun.take_in(&[suspect("c", false)], Default::default());
    // It is killed while the batch is under way.
    drop(begun);
    let again = intake(&state, &[&root], 1000);
    let recovered = one(next_batches(&again, PACING, limit));
    assert_eq!(recovered.suspects, [batch.suspects, vec![suspect("c", false)]].concat());
    again.take_in(&[suspect("d", false)], Default::default());
    again.succeeded(&recovered, Generation(2));
    drop(again);
    let last = intake(&state, &[&root], 1000);
    let batch = one(next_batches(&last, PACING, limit));
    assert_eq!(batch.suspects, [suspect("d", false)]);
    // One that fails waits again, and longer.
    last.retry_later(&batch, "it is locked", PACING);
    let state = last.snapshot().unwrap();
    assert_eq!(state.sources[0].last_error.as_deref(), Some("it is locked"));
    assert_eq!(next_batches(&last, PACING, Duration::from_millis(500)), []);
    assert_eq!(next_batches(&last, PACING, limit), [batch]);
}

#[test]
fn inodes_with_other_names_outlive_the_process() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("tree");
    let state = place.path().join("watch");
    let limit = Duration::from_secs(5);
    let begun = intake(&state, &[&root], 1000);
    begun.take_in_links(&[7, 9]);
    let batch = one(next_batches(&begun, PACING, limit));
    assert_eq!(batch.links, [7, 9]);
    begun.take_in_links(&[8, 9]);
    drop(begun);
    let again = intake(&state, &[&root], 1000);
    let batch = one(next_batches(&again, PACING, limit));
    assert_eq!(batch.links, [7, 8, 9]);
    again.take_in_links(&[5]);
    again.succeeded(&batch, Generation(1));
    drop(again);
    let last = intake(&state, &[&root], 1000);
    assert_eq!(one(next_batches(&last, PACING, limit)).links, [5]);
}

#[test]
fn unscanned_paths_are_not_suspects() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("tree");
    let intake = intake(&place.path().join("watch"), &[&root], 1000);
    let suspect = |below: String| {
        let path = root.join(below).as_os_str().as_bytes().to_vec();
        canopy_watch::Suspect { path, recursive: true }
    };
    let longest = suspect("a/".repeat(2047) + "a");
    intake.take_in(&[longest.clone(), suspect("b/".repeat(100_000) + "b")], Default::default());
    assert_eq!(one(next_batches(&intake, PACING, Duration::from_secs(5))).suspects, [longest]);
}

/// Directories, each in the one before, of which most have longer paths than the kernel tells.
struct Chain {
    top: OwnedFd,
    end: OwnedFd,
}

impl Chain {
    const LEVELS: usize = 6000;

    fn make(top: &Path) -> Self {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let top = rustix::fs::open(top, flags, Mode::empty()).unwrap();
        let mut end = top.try_clone().unwrap();
        for _ in 0..Chain::LEVELS {
            rustix::fs::mkdirat(&end, c"d", Mode::RWXU).unwrap();
            end = rustix::fs::openat(&end, c"d", flags, Mode::empty()).unwrap();
        }
        Chain { top, end }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let inode = |open: &OwnedFd| rustix::fs::fstat(open).unwrap().st_ino;
        while inode(&self.end) != inode(&self.top) {
            self.end = rustix::fs::openat(&self.end, c"..", flags, Mode::empty()).unwrap();
            rustix::fs::unlinkat(&self.end, c"d", AtFlags::REMOVEDIR).unwrap();
        }
    }
}

#[test]
fn directories_that_are_nested_deeply_keep_nobody_waiting() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let root = place.path().join("tree");
    fs::create_dir(&root).unwrap();
    let intake = intake(&place.path().join("watch"), &[&root], 1000);
    let told = begin(Teller::Fanotify, &intake);
    std::thread::scope(|scope| {
        scope.spawn(told);
        let _ends = Ends(&intake);
        let chain = Chain::make(&root);
        fs::write(root.join("last"), "").unwrap();
        let begun = Instant::now();
        let all = || intake.snapshot().unwrap().heard.events > Chain::LEVELS as u64;
        wait_until("all is told", all);
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        let heard = intake.snapshot().unwrap().heard;
        assert_eq!((heard.unresolved, heard.overflows), (0, 0));
        drop(chain);
        intake.stop();
    });
}
