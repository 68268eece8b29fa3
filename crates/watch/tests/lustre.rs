//! What the change logs of Lustre make of an index: whatever happens in a tree, to its records and to
//! the process that follows them, the index ends up as a walk of the tree finds it, and no record is
//! cleared before the index has it.

mod model;

use canopy_model::Generation;
use canopy_scan::MountRules;
use canopy_watch::lustre::{ChangeLogs, Fid, FileLocation, Log, Lustre, Mount, Options, Records};
use canopy_watch::{Intake, Journal, Pacing, Scope, Territory, Unresolved, Work};
use model::lustre::{Cluster, Mishaps, TARGETS, clear, cleared, lines_from};
use model::{Model, Tree, wait_until};
use std::fs;
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PACING: Pacing = Pacing { interval: Duration::from_millis(50) };

/// What stands in for Lustre: files of records, of which a model of an index says whether they may be
/// cleared.
struct Double {
    mount: Mount,
    world: Arc<World>,
}

/// What outlives a process.
struct World {
    root: PathBuf,
    logs: PathBuf,
    /// The index.
    model: Mutex<Model>,
    /// Files in the root, each with the last record of the log that tells of it, by number, when it
    /// had been made.
    markers: Mutex<Vec<(PathBuf, usize, u64)>>,
}

impl Lustre for Double {
    fn records(&self, log: &str, from: Option<u64>) -> io::Result<Records> {
        // In memory, since tests beside this one follow what happens on disk.
        let file = rustix::fs::memfd_create("records", rustix::fs::MemfdFlags::CLOEXEC)?;
        let mut file = fs::File::from(file);
        file.write_all(&lines_from(&self.world.logs, log, from.unwrap_or(0)))?;
        file.rewind()?;
        Ok(Records::of_file(file))
    }

    fn clear(&self, log: &str, user: &str, up_to: u64) -> io::Result<()> {
        assert_eq!(user, "cl1");
        let number = TARGETS.iter().position(|target| *target == log).unwrap();
        let model = self.world.model.lock().unwrap();
        for (marker, teller, last) in &*self.world.markers.lock().unwrap() {
            let has = *teller != number || *last > up_to || model.has(marker);
            assert!(has, "{log} is cleared up to {up_to}, and {} is not there", marker.display());
        }
        assert!(up_to > cleared(&self.world.logs, log));
        clear(&self.world.logs, log, up_to);
        Ok(())
    }

    fn resolve(&self, fid: Fid) -> Result<FileLocation, Unresolved> {
        self.mount.resolve(fid)
    }
}

/// Waits until the index has all that has happened.
fn settle(intake: &Intake, world: &World, cluster: &mut Cluster) {
    let last = cluster.last();
    // With so many behind it, the last one is cleared.
    cluster.fill(20);
    let works = || assert!(!intake.is_stopped(), "a thread has failed");
    wait_until("all is cleared", || {
        works();
        TARGETS.iter().zip(last).all(|(log, last)| cleared(&world.logs, log) >= last)
    });
    wait_until("all is dealt with", || {
        works();
        intake.snapshot().unwrap().sources.iter().all(|source| source.suspects == 0)
    });
}

/// Follows logs until `change` has ended, and then ends as a process that is killed.
fn follow(place: &Path, world: &Arc<World>, paths_kept: usize, change: impl FnOnce(&Intake)) {
    let territory = Territory::new(vec![world.root.as_os_str().as_bytes().to_vec()], Vec::new());
    let rules = MountRules::new(Vec::new(), false);
    let scope = Scope {
        territory,
        rules,
        one_file_system: false,
        suspects_max: 1000,
        path_bytes_max: 4096,
    };
    let (journal, recovered) = Journal::open(&place.join("watch")).unwrap();
    let intake = Intake::new(scope, journal, recovered).unwrap();
    let mount = Mount::find(&world.root, Path::new("lfs")).unwrap();
    let double = Double { mount, world: world.clone() };
    let log = |name: &str| Log::Target { name: name.to_owned(), user: Some("cl1".to_owned()) };
    let options = Options { paths_kept, asked_every: Duration::from_millis(5) };
    let begun = ChangeLogs::begin(Box::new(double), &TARGETS.map(log), options, &intake);
    let (logs, goes_on) = begun.unwrap();
    if !goes_on {
        intake.suspect_all();
    }
    let fails = |why: Option<String>| assert_eq!(why, None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ends = Ends(&intake);
            logs.run(&intake, &|_| {}, &fails).unwrap();
        });
        let _ends = Ends(&intake);
        scope.spawn(|| {
            let _ends = Ends(&intake);
            while !intake.is_stopped() {
                let next = intake.next(PACING, Duration::from_millis(20));
                let Some(Work::Changes(batches)) = next else { continue };
                for batch in batches {
                    let mut model = world.model.lock().unwrap();
                    model.apply(&batch.suspects);
                    model.apply_links(&batch.links);
                    drop(model);
                    // One that is killed here has not said so.
                    if !intake.is_stopped() {
                        intake.succeeded(&batch, Generation(1));
                    }
                }
            }
        });
        change(&intake);
    });
}

/// Ends all threads with the first.
struct Ends<'a>(&'a Intake);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn replay(seed: u64, mishaps: Mishaps) {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let (mount, logs) = (place.join("mount"), place.join("logs"));
    let root = mount.join("tree");
    fs::create_dir_all(&root).unwrap();
    let mut tree = Tree::new(&root, seed, true);
    for _ in 0..50 {
        tree.change();
    }
    let mut cluster = Cluster::new(&mount, &logs, seed, mishaps);
    let world = Arc::new(World {
        root: root.clone(),
        logs,
        model: Mutex::default(),
        markers: Mutex::default(),
    });
    // Without mishaps, it is as it should be all the time. With few paths kept, they are forgotten as
    // often as they are asked for.
    let is_calm = mishaps == Mishaps::default();
    let paths_kept = if seed.is_multiple_of(3) { 12 } else { 10_000 };
    for round in 0..5 {
        follow(place, &world, paths_kept, |intake| {
            for step in 0..40 {
                tree.change();
                if step % 9 == 0 && !is_calm {
                    let forged = "8 02MKDIR 12:00:00.123456789 2026.11.23 0x0 t=[0x1:0x2:0x0]";
                    let _ = fs::create_dir(root.join(format!("n\n{forged}\n9{step}{forged}\nm\n")));
                }
                let marker = root.join(format!("marker{round}-{step}"));
                if step % 10 == 0 {
                    fs::write(&marker, "").unwrap();
                }
                let last = cluster.observe();
                if step % 10 == 0 {
                    let teller = Cluster::teller_of(&root);
                    world.markers.lock().unwrap().push((marker, teller, last[teller]));
                }
                if step % 13 == 0 {
                    let before = intake.snapshot().unwrap().heard.events;
                    let told =
                        || intake.is_stopped() || intake.snapshot().unwrap().heard.events > before;
                    cluster.fill(1);
                    wait_until("more is read", told);
                }
                assert!(!intake.is_stopped(), "a thread has failed");
                if is_calm && step % 8 == 0 {
                    settle(intake, &world, &mut cluster);
                    world.model.lock().unwrap().assert_is(&root);
                }
            }
        });
        if round == 2 && mishaps.lost > 0 {
            cluster.wipe(1);
        }
    }
    follow(place, &world, paths_kept, |intake| {
        tree.change();
        cluster.be_kind();
        cluster.observe();
        settle(intake, &world, &mut cluster);
    });
    world.model.lock().unwrap().assert_is(&root);
    for log in TARGETS {
        let left = lines_from(&world.logs, log, 0);
        let left = left.split(|&byte| byte == b'\n').count();
        assert!(left < 30, "{log} has {left} lines");
    }
}

#[test]
fn logs_make_an_index_what_a_walk_finds() {
    for seed in 0..6 {
        replay(seed, Mishaps::default());
    }
}

#[test]
fn whatever_befalls_records_is_made_good() {
    for seed in 0..8 {
        let fids_again = seed % 2 == 0;
        let late = 300;
        replay(seed, Mishaps { late, fids_again, ..Mishaps::default() });
        replay(100 + seed, Mishaps { lost: 10, twice: 20, damaged: 5, late, fids_again });
    }
}
