//! Tables in a directory that many machines share. Here the machines are processes, which share
//! nothing but the directory.

#[path = "../tables/cases.rs"]
mod cases;
mod kinds;
#[path = "../tables/place.rs"]
mod place;
mod processes;
mod sleepers;

use canopy_store::storage::{Created, Reserve, SharedDirectory, SplitStorage, Storage};
use canopy_store::{
    Batch, Direction, Durability, Error, KeyRange, Layout, Options, Table, Upkeep, collect,
    compact_all, create, garbage, inspect,
};
use place::{Fixture, contents, key, options, put};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

macro_rules! in_a_shared_directory {
    ($($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                let directory = tempfile::tempdir().unwrap();
                cases::$case(&made(directory.path()));
            }
        )*
    };
}
cases::each_case!(in_a_shared_directory);

/// A new shared directory.
fn made(directory: &Path) -> Fixture {
    Fixture::new(Arc::new(SharedDirectory::make(directory).unwrap()))
}

/// One that was made before, as another process has it.
fn opened(directory: &Path) -> Fixture {
    Fixture::new(Arc::new(SharedDirectory::open(directory).unwrap()))
}

#[test]
fn objects_are_created_once_and_found() {
    let directory = tempfile::tempdir().unwrap();
    let place = made(directory.path());
    let (storage, other) = (&place.environment.storage, opened(directory.path()));
    let other = &other.environment.storage;
    assert_eq!(storage.list("all/", "").unwrap(), []);
    for at in 0..100 {
        let by: &Arc<dyn Storage> = if at % 2 == 0 { storage } else { other };
        let name = format!("all/{at:05}");
        assert!(other.read(&name).unwrap_err().is_not_found());
        assert_eq!(by.create(&name, "bytes".into()).unwrap(), Created::Now);
        assert_eq!(storage.create(&name, "other".into()).unwrap(), Created::ThereWasOne);
        assert_eq!(other.read(&name).unwrap(), "bytes");
    }
    let listed = storage.list("all/", "all/00049").unwrap();
    let names = Vec::from_iter(listed.iter().map(|one| one.name.clone()));
    assert_eq!(names, Vec::from_iter((50..100).map(|at| format!("all/{at:05}"))));
    assert!(listed.iter().all(|one| one.size_bytes == 5));
    assert_eq!(storage.read_range("all/00007", 1..4).unwrap(), "yte");
    assert!(storage.read_range("all/00007", 3..9).is_err());
    assert!(storage.read_range("all/00100", 0..1).unwrap_err().is_not_found());
    assert!(storage.size("all").is_err() && storage.size("none").unwrap_err().is_not_found());
    assert_eq!(storage.roots().unwrap(), ["all", "probe"]);
    let open = other.open("all/00007").unwrap().unwrap();
    storage.remove("all/00007").unwrap();
    storage.remove("all/00007").unwrap();
    assert!(open.is_removed() && other.read("all/00007").unwrap_err().is_not_found());
    let mut bytes = Vec::new();
    open.read_at(0..5, &mut bytes).unwrap();
    assert_eq!(bytes, b"bytes");
    assert_eq!(other.create("all/00007", "again".into()).unwrap(), Created::Now);
    assert!(storage.append_to("all/log").unwrap().is_none());
    assert!(storage.lock("all/lock").unwrap().is_none());
}

/// A small file system of its own, which takes root, unmounted when it goes away.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(size: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = format!("size={size},mode=700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(directory.path());
        assert!(mount.status().unwrap().success(), "mounting a tmpfs needs root");
        SmallDisk(directory)
    }

    /// Makes a shared directory on it.
    fn shared(&self) -> Arc<dyn Storage> {
        Arc::new(SharedDirectory::make(self.0.path()).unwrap())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Where contents lie in another storage than logs, each of them keeps its own reserve, and the
/// space of the one with contents is shown.
#[test]
fn storage_in_two_places_keeps_the_reserve_of_each() {
    const MIB: u64 = 1 << 20;
    let [rest, contents] = ["16m", "64m"].map(SmallDisk::new);
    let split = SplitStorage::new(rest.shared(), contents.shared());
    let space = split.space().unwrap().unwrap();
    assert_eq!(space.total_bytes, 64 * MIB);
    assert_eq!(space.free_bytes - space.available_bytes, 4 * MIB);
    let fits = |name: &str, bytes: u64| split.check_reserve(name, bytes, Reserve::Whole).is_ok();
    assert!(fits("table/chunk/1", 32 * MIB) && !fits("table/chunk/1", 62 * MIB));
    assert!(fits("table/log/1", 14 * MIB) && !fits("table/log/1", 32 * MIB));
    // A full storage of contents leaves logs their room, and the other way round.
    std::fs::write(contents.0.path().join("filled"), vec![1; 61 << 20]).unwrap();
    assert!(!fits("table/chunk/1", MIB) && !fits("table/sst/1-1", MIB));
    assert!(fits("table/log/1", 14 * MIB));
    std::fs::remove_file(contents.0.path().join("filled")).unwrap();
    std::fs::write(rest.0.path().join("filled"), vec![1; 15 << 20]).unwrap();
    assert!(fits("table/chunk/1", 32 * MIB) && !fits("table/log/1", MIB));
    // Changes that free space may take half of it, flushes more.
    assert!(split.check_reserve("table/log/1", 1 << 18, Reserve::Half).is_ok());
    assert!(split.check_reserve("table/log/1", 3 << 18, Reserve::Half).is_err());
    assert!(split.check_reserve("table/log/1", 5 << 17, Reserve::Quarter).is_ok());
    assert_eq!(split.create("table/chunk/1", "bytes".into()).unwrap(), Created::Now);
    assert_eq!(split.read("table/chunk/1").unwrap(), "bytes");
}

/// Files that a killed process had begun stayed until another one was started, a day later.
#[test]
fn files_of_dead_processes_go_where_space_is_short() {
    let disk = SmallDisk::new("16m");
    let storage = disk.shared();
    storage.create("one", "bytes".into()).unwrap();
    let [dead, alive] = ["aa", "bb"].map(|name| {
        let directory = disk.0.path().join(format!("temporary/00000000000000{name}"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("0"), vec![1; 5 << 20]).unwrap();
        directory
    });
    let old = std::time::SystemTime::now() - Duration::from_secs(31 * 60);
    fs::File::open(&dead).unwrap().set_modified(old).unwrap();
    storage.check_reserve("next", 1 << 20, Reserve::Whole).unwrap();
    assert!(dead.exists(), "there is room enough");
    assert!(storage.check_reserve("next", 8 << 20, Reserve::Whole).is_err());
    assert!(!dead.exists() && alive.join("0").exists());
    storage.check_reserve("next", 8 << 20, Reserve::Whole).unwrap();
}

/// Compactions looked for removed records only while somebody wrote to the table.
#[test]
fn removed_records_leave_full_storage_though_nobody_writes() {
    let disk = SmallDisk::new("24m");
    let place = Fixture::new(disk.shared());
    let options = Options { sstable_bytes: 1 << 20, ..Options::default() };
    let layout = Layout { columns: Vec::new() };
    let id = create(&place.environment, layout, &options).unwrap();
    let open = || {
        let table = Table::open(&place.environment, id, place.cache.clone(), options.clone());
        let table = Arc::new(table.unwrap());
        (table.clone(), Upkeep::start(&table))
    };
    let used = || {
        let about = rustix::fs::statvfs(disk.0.path()).unwrap();
        (about.f_blocks - about.f_bfree) * about.f_frsize
    };
    let (table, upkeep) = open();
    // Nothing makes these values smaller.
    let mut state = 1_u64;
    let mut value = || {
        Vec::from_iter((0..4000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        }))
    };
    let mut count = 0;
    loop {
        let mut batch = Batch::new();
        batch.put(key(1, count).as_ref(), &value()).unwrap();
        match table.write(&batch, Durability::Durable) {
            Ok(()) => count += 1,
            Err(Error::Deferred { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(count > 500, "{count}");
    for at in 0..count - 10 {
        let mut batch = Batch::new();
        batch.delete(key(1, at).as_ref()).unwrap();
        let begin = Instant::now();
        while let Err(error) = table.write_freeing(&batch, Durability::Durable) {
            assert!(begin.elapsed() < Duration::from_secs(20), "{error}");
        }
    }
    drop(upkeep);
    drop(table);
    // Somebody else takes the room that was kept to merge all of the table.
    let own = used();
    fs::write(disk.0.path().join("filled"), vec![1; (22 << 20) - own as usize]).unwrap();
    let (table, _upkeep) = open();
    let begin = Instant::now();
    while used() > (22 << 20) - own / 2 {
        assert!(begin.elapsed() < Duration::from_secs(30), "{} of {own} are taken", used());
        std::thread::sleep(Duration::from_millis(20));
    }
    let left = table.scan(&KeyRange::all(), Direction::Forward).unwrap().collect().unwrap();
    assert_eq!(left.len(), 10);
}

#[test]
fn nobody_else_can_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let place = made(directory.path());
    let table = place.open(place.create());
    put(&table, &key(1, 1), 1);
    table.flush().unwrap();
    fn check(directory: &Path) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
            if path.is_dir() {
                check(&path);
            }
        }
    }
    check(directory.path());
}

#[test]
fn landmarks_of_versions_stay_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let place = made(directory.path());
    let id = place.create();
    let table = place.open(id);
    for at in 0..60 {
        put(&table, &key(1, at), at);
        table.flush().unwrap();
    }
    let no_grace = Options { grace_ms: 0, ..options() };
    compact_all(&place.environment, id, &place.cache, &no_grace).unwrap();
    collect(&place.environment, id).unwrap();
    let current = inspect(&place.environment, id).unwrap();
    assert_eq!(garbage(&place.environment, id, &current).unwrap().unwrap(), []);
    let current = current.version.number;
    let listed = place.environment.storage.list(&format!("{id}/manifest/"), "").unwrap();
    assert!(current > 60 && listed.len() < 16, "{current}: {listed:?}");
    table.refresh().unwrap();
    assert_eq!(table.manifest().version.number, current);
    assert_eq!(contents(&table).len(), 60);
}

/// Storage whose listings are empty, as those of a client that has read the directory long ago.
struct Blind(SharedDirectory);

impl Storage for Blind {
    fn read_range(
        &self,
        name: &str,
        range: std::ops::Range<u64>,
    ) -> canopy_store::Result<bytes::Bytes> {
        self.0.read_range(name, range)
    }

    fn read(&self, name: &str) -> canopy_store::Result<bytes::Bytes> {
        self.0.read(name)
    }

    fn size(&self, name: &str) -> canopy_store::Result<u64> {
        self.0.size(name)
    }

    fn create(&self, name: &str, bytes: bytes::Bytes) -> canopy_store::Result<Created> {
        self.0.create(name, bytes)
    }

    fn list(&self, _: &str, _: &str) -> canopy_store::Result<Vec<canopy_store::storage::Listed>> {
        Ok(Vec::new())
    }

    fn has_ordered_listings(&self) -> bool {
        false
    }

    fn remove(&self, name: &str) -> canopy_store::Result<()> {
        self.0.remove(name)
    }

    fn append_to(
        &self,
        name: &str,
    ) -> canopy_store::Result<Option<Box<dyn canopy_store::storage::Append>>> {
        self.0.append_to(name)
    }

    fn lock(&self, name: &str) -> canopy_store::Result<Option<Box<dyn Send + Sync>>> {
        self.0.lock(name)
    }
}

#[test]
fn tables_need_no_listing() {
    let directory = tempfile::tempdir().unwrap();
    let sighted = made(directory.path());
    let id = sighted.create();
    let [one, other] = [(); 2]
        .map(|()| Fixture::new(Arc::new(Blind(SharedDirectory::open(directory.path()).unwrap()))));
    let mut last = one.open(id);
    for round in 0..20 {
        put(&last, &key(1, round), round);
        last.sync().unwrap();
        last.flush().unwrap();
        put(&last, &key(1, 100 + round), round);
        last.sync().unwrap();
        collect(&sighted.environment, id).unwrap();
        let next = if round % 2 == 0 { &other } else { &one }.open(id);
        put(&last, &key(2, round), round);
        assert!(matches!(last.sync(), Err(Error::Fenced(_))));
        last = next;
    }
    let found = contents(&last);
    assert!(found.keys().all(|key| key.directory == 1) && found.len() == 40, "{found:?}");
    last.flush().unwrap();
    assert_eq!(other.read(id), found);
}
