//! Namespaces whose contents lie in a bucket: a real server of S3, real mounts, and both of them
//! dying.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../object-storage/tests/s3/garage.rs"]
mod garage;
#[path = "../../../object-storage/tests/s3/server.rs"]
mod server;
#[path = "../../../cli/tests/common/mod.rs"]
mod site;

use common::{CANOPY, has, shell, success, wait_until};
use garage::Garage;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use site::length::rounds;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// A namespace whose contents are in the bucket of a server of its own.
struct Fixture {
    directory: TempDir,
    garage: Garage,
    on: PathBuf,
    location: String,
}

impl Fixture {
    fn new() -> Self {
        Fixture::created_with(&[])
    }

    /// One whose chunks are smaller, as are files and caches of a test, but in a long run.
    fn of_small_chunks() -> Self {
        Fixture::created_with(&["--chunk-size", rounds("1M", "4M")])
    }

    fn created_with(options: &[&str]) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "mounting needs root");
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let on = directory.path().join("on");
        fs::create_dir(&on).unwrap();
        let location = format!("{}+s3://canopy/some/place", directory.path().join("ns").display());
        let place = Fixture { garage: Garage::start(), directory, on, location };
        success(&place.ns(&[&["create", &place.location], options].concat()));
        place
    }

    fn ns(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(CANOPY);
        command.arg("ns").args(arguments);
        self.garage.set_variables(&mut command);
        command.output().unwrap()
    }

    fn mount(&self, options: &[&str]) {
        let arguments = [&["mount", &*self.location, self.on.to_str().unwrap()], options].concat();
        success(&self.ns(&arguments));
    }

    fn unmount(&self) {
        success(&self.ns(&["unmount", self.on.to_str().unwrap()]));
    }

    /// Fails if records or objects have faults.
    fn assert_sound(&self) {
        assert_eq!(success(&self.ns(&["check", "--data", &self.location])), "no faults\n");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.on.join(name)
    }

    fn local(&self) -> PathBuf {
        self.directory.path().join("ns")
    }

    /// Takes what is cached away, so that all is fetched anew.
    fn forget_cache(&self) {
        fs::remove_dir_all(self.local().join("contents")).unwrap();
    }

    fn processes(&self) -> Vec<i32> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let id = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            if line.split(|byte| *byte == 0).any(|word| word == self.location.as_bytes()) {
                found.extend(id);
            }
        }
        found
    }

    /// Kills the process that answers the kernel, and lets the mount go.
    fn crash(&self) {
        for id in self.processes() {
            let id = nix::unistd::Pid::from_raw(id);
            let _ = nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGKILL);
        }
        let _ = Command::new("umount").arg("-l").arg(&self.on).output();
        wait_until("the process has ended", || self.processes().is_empty());
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.crash();
    }
}

fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    StdRng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

fn write_synced(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn synced_data_outlasts_the_daemon() {
    let place = Fixture::new();
    place.mount(&[]);
    let (old, new) = (random_bytes(1, 9_000_000), random_bytes(2, 12_000_000));
    for round in 0..3 {
        let name = |kind: &str| place.path(&format!("{kind}{round}"));
        write_synced(&name("synced"), &old);
        write_synced(&name("changed"), &old);
        let file = File::options().write(true).open(name("changed")).unwrap();
        // In the middle, beyond the end, and all of it: nobody syncs that.
        file.write_all_at(&new, 0).unwrap();
        fs::write(name("never"), &new).unwrap();
        place.crash();
        drop(file);
        place.mount(&[]);
        for earlier in 0..=round {
            let read = |kind: &str| fs::read(place.path(&format!("{kind}{earlier}"))).unwrap();
            assert!(read("synced") == old, "what was synced is not there");
            let changed = read("changed");
            assert!(changed == old || changed == new, "old and new are mixed");
            // Nobody synced the directory either.
            let never = fs::read(place.path(&format!("never{earlier}"))).unwrap_or_default();
            assert!(never.is_empty() || never == new, "{} bytes that nobody wrote", never.len());
        }
    }
    place.unmount();
    place.assert_sound();
}

#[test]
fn a_store_that_is_down_loses_nothing() {
    let mut place = Fixture::new();
    place.mount(&[]);
    let bytes = random_bytes(3, 5_000_000);
    // Names may have to be looked up in storage.
    let mut file = File::create(place.path("file")).unwrap();
    place.garage.stop();
    file.write_all(&bytes).unwrap();
    for _ in 0..2 {
        let error = file.sync_all().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::libc::EIO));
    }
    assert!(fs::read(place.path("file")).unwrap() == bytes);
    let log = fs::read_to_string(place.local().join("mount.log")).unwrap();
    assert!(log.contains("/chunk/") && log.contains("refused"), "{log}");
    place.garage.go_on();
    // A server that has just begun may refuse for a moment.
    wait_until("storage takes it", || file.sync_all().is_ok());
    drop(file);
    place.crash();
    place.forget_cache();
    place.mount(&[]);
    assert!(fs::read(place.path("file")).unwrap() == bytes);
    place.unmount();
    place.assert_sound();
}

#[test]
fn a_cache_smaller_than_files_is_enough() {
    let place = Fixture::of_small_chunks();
    let cache_mb = rounds(4, 16);
    let cache_size = format!("{cache_mb}M");
    let options =
        ["--cache-size", &cache_size, "--cache", place.directory.path().to_str().unwrap()];
    place.mount(&options);
    let (whole, shorter) = rounds((10_000_000, 8_250_001), (120_000_000, 100_000_001));
    let mut bytes = random_bytes(4, whole);
    fs::write(place.path("large"), &bytes).unwrap();
    assert!(fs::read(place.path("large")).unwrap() == bytes);
    let file = File::options().read(true).write(true).open(place.path("large")).unwrap();
    let mut random = StdRng::seed_from_u64(5);
    for number in 0..100 {
        let at = random.random_range(0..bytes.len() - 5000);
        let part = random_bytes(number, 5000);
        file.write_all_at(&part, at as u64).unwrap();
        bytes[at..at + 5000].copy_from_slice(&part);
        let at = random.random_range(0..bytes.len() - 5000);
        let mut found = vec![0; 5000];
        file.read_exact_at(&mut found, at as u64).unwrap();
        assert!(found == bytes[at..at + 5000], "{number}");
    }
    file.set_len(shorter).unwrap();
    bytes.truncate(shorter as usize);
    drop(file);
    assert!(fs::read(place.path("large")).unwrap() == bytes);
    let cached = shell(place.directory.path(), "du -sm --apparent-size */stored | cut -f1");
    assert!(cached.trim().parse::<u64>().unwrap() <= cache_mb + 1, "{cached}");
    place.unmount();
    place.mount(&options);
    assert!(fs::read(place.path("large")).unwrap() == bytes);
    place.unmount();
    place.assert_sound();
}

#[test]
fn programs_work_and_trees_are_copied() {
    let place = Fixture::of_small_chunks();
    // One file is larger than the cache.
    let (cache_size, size) = rounds(("6M", "10M"), ("64M", "110M"));
    place.mount(&["--cache-size", cache_size]);
    let source = place.directory.path().join("source");
    let shown = source.to_str().unwrap();
    let line = format!(
        "mkdir -p source/linux && cp /usr/include/linux/[a-f]*.h source/linux && \
         head -c {size} /dev/urandom > source/large && ln source/large source/again && \
         ln -s large source/link"
    );
    shell(place.directory.path(), &line);
    let copied = format!("mkdir tree && tar -C {shown} -cf - . | tar -C tree -xf -");
    shell(&place.on, &copied);
    shell(&place.on, &format!("diff -r --no-dereference {shown} tree"));
    if has("git") {
        let git = "git -c user.name=a -c user.email=a@b.c";
        shell(
            &place.on,
            "git init -q one && mkdir one/linux && cp /usr/include/linux/[a-f]*.h one/linux",
        );
        shell(&place.on, &format!("cd one && git add . && {git} commit -qm all"));
        shell(&place.on, "git clone -q --no-local one two && cd two && git fsck --full");
        shell(&place.on, "diff -r one/linux two/linux");
    }
    place.unmount();
    place.assert_sound();
    // Through export and import.
    let copy = place.directory.path().join("copy");
    let shown = copy.to_str().unwrap();
    success(&place.ns(&["export", &format!("{}:/tree", place.location), shown]));
    shell(place.directory.path(), "diff -r --no-dereference source copy");
    success(&place.ns(&["import", shown, &place.location, "--into", "/again", "--data"]));
    place.forget_cache();
    place.mount(&[]);
    shell(&place.on, &format!("diff -r --no-dereference {} again", source.display()));
    place.unmount();
    place.assert_sound();
}

/// An index of a namespace, and a daemon that has it follow. Needs `canopy` built beside.
struct Indexed<'a> {
    place: &'a mut Fixture,
    source: String,
    configuration: PathBuf,
}

impl<'a> Indexed<'a> {
    fn new(place: &'a mut Fixture) -> Self {
        let configuration = place.directory.path().join("canopy.toml");
        fs::write(&configuration, "trust_fs = [\"fuse.canopy\"]\n").unwrap();
        let source = format!("ns:{}", place.location);
        Indexed { place, source, configuration }
    }

    fn canopy(&self, index: &str, words: &[&str]) -> Command {
        let mut command = Command::new(site::built("canopy"));
        command.arg("--index").arg(self.place.directory.path().join(index)).args(words);
        command.env("CANOPY_SITE_CONFIG", &self.configuration).current_dir("/");
        self.place.garage.set_variables(&mut command);
        command
    }

    fn follow(&self) -> Output {
        self.canopy("followed", &["index", "--follow", &self.source]).output().unwrap()
    }

    fn shown(&self, index: &str) -> Vec<String> {
        let on = self.place.on.to_str().unwrap();
        let words = ["find", on, "-printf", "%p|%y|%m|%U|%n|%s|%i|%T@\\n"];
        site::sorted(&self.canopy(index, &words).output().unwrap().stdout, b'\n')
    }

    /// Fails unless the index that follows says what a new one does.
    fn assert_followed(&self, what: &str) {
        let _ = fs::remove_dir_all(self.place.directory.path().join("new"));
        let words = ["index", "--root", self.place.on.to_str().unwrap(), &self.source];
        success(&self.canopy("new", &words).output().unwrap());
        site::assert_same(&self.shown("followed"), &self.shown("new"), what);
    }
}

#[test]
fn an_index_follows_what_has_changed() {
    let mut place = Fixture::new();
    place.mount(&[]);
    let trial = Indexed::new(&mut place);
    for number in 0..20 {
        let directory = trial.place.path(&format!("d{number}/in"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("small"), "x").unwrap();
    }
    write_synced(&trial.place.path("d3/large"), &random_bytes(1, 9_000_000));
    let first = success(&trial.follow());
    assert!(first.contains("in 41 directories looked at"), "{first}");
    trial.assert_followed("at first");
    let same = success(&trial.follow());
    assert!(same.starts_with("nothing has changed since generation 1"), "{same}");
    let large = File::options().write(true).open(trial.place.path("d3/large")).unwrap();
    large.write_all_at(&random_bytes(2, 5_000_000), 8_000_000).unwrap();
    drop(large);
    let one = success(&trial.follow());
    assert!(one.contains("2 entries in 1 directory looked at"), "{one}");
    fs::rename(trial.place.path("d4"), trial.place.path("d5/in/d4")).unwrap();
    fs::remove_dir_all(trial.place.path("d6")).unwrap();
    success(&trial.follow());
    trial.assert_followed("after a rename");
    // The next one to mount it writes to the bucket what was not there.
    fs::write(trial.place.path("d7/new"), "x").unwrap();
    File::open(trial.place.path("d7")).unwrap().sync_all().unwrap();
    trial.place.crash();
    trial.place.mount(&[]);
    success(&trial.follow());
    trial.assert_followed("after a crash");
    trial.place.unmount();
    success(&trial.follow());
    trial.assert_followed("once it is closed");
}

/// A daemon that follows the namespace; killed at the end.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_daemon_follows_though_the_store_is_down_for_a_while() {
    let mut place = Fixture::new();
    place.mount(&[]);
    let trial = Indexed::new(&mut place);
    let metrics = trial.place.directory.path().join("canopy.prom");
    let source = trial.source.clone();
    let words = ["watch", &*source, "--interval", "2", "--prometheus"];
    let mut command = trial.canopy("followed", &words);
    command.arg(&metrics).stdout(Stdio::null()).stderr(Stdio::null());
    let _daemon = Daemon(command.spawn().unwrap());
    let has = |trial: &Indexed<'_>, mark: &str| {
        trial.shown("followed").iter().any(|line| line.contains(mark))
    };
    let tells = |metric: &str| {
        let line = format!("canopy_watch_{metric}{{source=\"{source}\"}} ");
        let told = fs::read_to_string(&metrics).unwrap_or_default();
        let value = told.lines().find_map(|known| known.strip_prefix(&line).map(str::to_owned));
        value.and_then(|value| value.parse::<f64>().ok())
    };
    fs::write(trial.place.path("first"), "x").unwrap();
    wait_until("the index has followed", || has(&trial, "/first|"));
    wait_until("that is told", || tells("followed_seconds").is_some_and(|at_s| at_s > 1e9));
    assert_eq!(tells("failing"), Some(0.0));
    fs::write(trial.place.path("second"), "x").unwrap();
    trial.place.garage.stop();
    // Its records cannot be put where the daemon reads them, unless it was very quick.
    trial.place.garage.hang_up();
    assert!(has(&trial, "/first|"));
    trial.place.garage.go_on();
    // A server that has just begun may refuse for a moment.
    wait_until("it takes more", || fs::write(trial.place.path("third"), "x").is_ok());
    wait_until("it has followed again", || has(&trial, "/second|") && has(&trial, "/third|"));
    wait_until("that is told", || tells("failing") == Some(0.0));
    trial.assert_followed("at the end");
}

#[test]
fn messages_say_what_to_do() {
    let place = Fixture::new();
    let said = |arguments: &[&str]| common::failure(&place.ns(arguments));
    let again = said(&["create", &place.location]);
    assert!(again.contains("not empty"), "{again}");
    let directly = said(&["create", "s3://canopy/other"]);
    assert!(directly.contains("DIRECTORY+s3://canopy/other"), "{directly}");
    let small = said(&["create", "/tmp/there-is-none", "--chunk-size", "1K"]);
    assert!(small.contains("--chunk-size: from 4K to 64M"), "{small}");
    let nobody = Command::new(CANOPY)
        .args(["ns", "info", "s3://canopy/other"])
        .env_remove("AWS_ACCESS_KEY_ID")
        .output();
    let nobody = common::failure(&nobody.unwrap());
    assert!(nobody.contains("AWS_ACCESS_KEY_ID"), "{nobody}");
    place.mount(&[]);
    // Commands read a mounted namespace, too.
    let output = place.ns(&["du", "-s", &place.location]);
    assert!(output.status.success(), "{output:?}");
    place.unmount();
}
