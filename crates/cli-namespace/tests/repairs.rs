//! `canopy ns check --repair`, with damage that a disk could do.

mod common;
#[path = "../../cli/tests/common/length.rs"]
mod length;

use canopy_namespace::keys::Space;
use canopy_namespace::{Contents, FileId, Namespace, system_clock};
use canopy_store::storage::LocalStorage;
use canopy_store::{Batch, Durability, Environment};
use common::{Mounted, failure, ns, shell, success};
use length::rounds;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn check(place: &Path, arguments: &[&str]) -> Output {
    ns("check").arg(place).args(arguments).output().unwrap()
}

#[track_caller]
fn stdout_of(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Takes names of files away behind everybody's back, and with them their inodes.
fn damage(namespace: &Path, id: u64) {
    let storage = LocalStorage::existing(namespace).unwrap();
    let environment = Environment::system(Arc::new(storage));
    let contents = Contents::new(&namespace.join("contents")).unwrap();
    let opened = Namespace::open(&environment, contents, system_clock()).unwrap();
    let mut batch = Batch::new();
    for (parent, name) in opened.names(FileId(id)).unwrap() {
        batch.delete(canopy_store::Key::named(parent.0, &name).as_ref()).unwrap();
    }
    batch.delete_range(&Space::Names.range_of(FileId(id))).unwrap();
    opened.table().write(&batch, Durability::Durable).unwrap();
    opened.close().unwrap();
}

#[test]
fn lost_files_are_found_again() {
    let mounted = Mounted::new();
    shell(
        &mounted.on,
        "mkdir -p a/b; echo precious > a/b/file; head -c 70000 /dev/urandom > large",
    );
    let large = fs::read(mounted.path("large")).unwrap();
    let ids = ["a/b", "large"].map(|name| fs::metadata(mounted.path(name)).unwrap().ino());
    mounted.unmount();
    assert_eq!(stdout_of(&check(&mounted.namespace, &["--repair"]), 0), "no faults\n");
    ids.iter().for_each(|id| damage(&mounted.namespace, *id));
    let faults = stdout_of(&check(&mounted.namespace, &[]), 1);
    assert!(faults.contains("names lie in what is not a directory"), "{faults}");
    let done = stdout_of(&check(&mounted.namespace, &["--repair"]), 1);
    assert!(done.contains(&format!("file {}: is now lost+found/#{}", ids[0], ids[0])), "{done}");
    assert!(done.ends_with("all faults are mended\n"), "{done}");
    assert_eq!(success(&check(&mounted.namespace, &[])), "no faults\n");
    mounted.mount(&[]);
    let found = mounted.path("lost+found");
    assert_eq!(fs::metadata(&found).unwrap().mode(), 0o40700);
    let file = found.join(format!("#{}/file", ids[0]));
    assert_eq!(fs::read_to_string(file).unwrap(), "precious\n");
    assert_eq!(fs::read(found.join(format!("#{}", ids[1]))).unwrap(), large);
    mounted.assert_sound();
}

#[test]
fn a_namespace_is_repaired_while_it_is_in_use() {
    let mounted = Mounted::new();
    shell(
        &mounted.on,
        "mkdir a; for i in $(seq 300); do head -c $((i * 50)) /dev/zero > a/$i; done",
    );
    assert_eq!(success(&check(&mounted.on, &["--repair"])), "no faults\n");
    // The disk has lost an object, and has one that nobody knows.
    let id = fs::metadata(mounted.path("a/300")).unwrap().ino();
    let object = |id: u64| mounted.namespace.join(format!("contents/{:02x}/{id:016x}", id % 256));
    shell(&mounted.on, "sync a");
    fs::rename(object(id), object(id + (1 << 20))).unwrap();
    let on = mounted.on.clone();
    let writing = std::thread::spawn(move || {
        shell(&on, "for i in $(seq 300); do echo $i > new$i; mv new$i a/new$i; done");
    });
    let done = stdout_of(&check(&mounted.on, &["--repair"]), 1);
    assert!(done.contains("its contents are missing: reading fails until"), "{done}");
    assert!(done.lines().any(|line| line.starts_with("file ") && line.contains(": /")), "{done}");
    assert!(done.contains("programs may see what was before until"), "{done}");
    writing.join().unwrap();
    assert_eq!(success(&check(&mounted.on, &[])), "no faults\n");
    assert!(fs::read(mounted.path("a/300")).is_err());
    let found = shell(&mounted.on, "cat lost+found/*");
    assert_eq!(found.len(), 15_000);
    mounted.unmount();
    mounted.mount(&["--read-only"]);
    let said = failure(&check(&mounted.on, &["--repair"]));
    let unmount = format!("unmount it first (canopy ns unmount {})", mounted.on.display());
    assert!(said.contains("mounted read-only") && said.contains(&unmount), "{said}");
    mounted.assert_sound();
}

/// The objects of chunks that a namespace has in its directory.
fn objects(namespace: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for table in fs::read_dir(namespace).unwrap() {
        let chunks = table.unwrap().path().join("chunk");
        found.extend(fs::read_dir(chunks).into_iter().flatten().map(|one| one.unwrap().path()));
    }
    found
}

#[test]
fn chunks_that_are_lost_cannot_be_read_and_others_can() {
    let mounted = Mounted::created_with(&["--chunk-size", "8K"]);
    mounted.mount(&[]);
    shell(
        &mounted.on,
        "head -c 100000 /dev/urandom > file; head -c 100000 /dev/urandom > other; sync file other",
    );
    let whole = fs::read(mounted.path("file")).unwrap();
    assert_eq!(success(&check(&mounted.on, &["--repair"])), "no faults\n");
    shell(&mounted.on, "echo 3 > /proc/sys/vm/drop_caches");
    mounted.unmount();
    fs::remove_dir_all(mounted.namespace.join("contents")).unwrap();
    let holds = |object: &Path, part: &[u8]| fs::read(object).is_ok_and(|found| found == part);
    let all = objects(&mounted.namespace);
    let of = |part: &[u8]| all.iter().find(|object| holds(object, part)).unwrap();
    fs::remove_file(of(&whole[16_384..24_576])).unwrap();
    let mut damaged = fs::read(of(&whole[..8192])).unwrap();
    damaged[0] ^= 1;
    fs::write(of(&whole[..8192]), damaged).unwrap();
    // What is missing is found by its name, what is damaged by reading, which a mount does too.
    let done = stdout_of(&check(&mounted.namespace, &["--repair"]), 1);
    assert!(done.contains("bytes 16384 to 24576 are lost: reading them fails"), "{done}");
    assert_eq!(success(&check(&mounted.namespace, &["--repair"])), "no faults\n");
    mounted.mount(&[]);
    let done = stdout_of(&check(&mounted.on, &["--repair", "--data"]), 1);
    assert!(done.contains("bytes 0 to 8192 are lost: reading them fails"), "{done}");
    assert_eq!(success(&check(&mounted.on, &["--data"])), "no faults\n");
    shell(&mounted.on, "cat other > /dev/null; ! cat file > /dev/null 2>&1");
    let copied = "dd if=file of=copied bs=8192 conv=noerror,sync status=none 2>/dev/null || true";
    shell(&mounted.on, copied);
    let copied = fs::read(mounted.path("copied")).unwrap();
    let is_lost = |at: usize| at < 8192 || (16_384..24_576).contains(&at);
    let expected = whole.iter().enumerate().map(|(at, byte)| if is_lost(at) { 0 } else { *byte });
    assert!(copied[..whole.len()].iter().copied().eq(expected));
    // What is written anew can be read again.
    shell(
        &mounted.on,
        "dd if=copied of=file bs=8192 count=3 conv=notrunc status=none; cat file > /dev/null",
    );
    mounted.unmount();
    assert_eq!(success(&check(&mounted.namespace, &["--data"])), "no faults\n");
}

/// A sum of each file below a directory that can be read.
fn sums(directory: &Path) -> String {
    let line =
        "find . -type f -size +0 -exec md5sum {} + 2>/dev/null | cut -d' ' -f1 | sort || true";
    shell(directory, line)
}

/// Starts a repair and kills it after a random part of `longest`. If it has ended by then, the next one
/// is killed sooner. Returns whether it was killed.
fn kill_repair(mounted: &Mounted, longest: &mut Duration, random: &mut StdRng) -> bool {
    let mut repair = ns("check");
    repair.arg("--repair").arg(&mounted.namespace).stdout(Stdio::null()).stderr(Stdio::null());
    let mut repair = repair.spawn().unwrap();
    let wait = random.random_range(Duration::ZERO..*longest);
    std::thread::sleep(wait);
    repair.kill().unwrap();
    let was_killed = repair.wait().unwrap().signal().is_some();
    if !was_killed {
        *longest = wait;
    }
    was_killed
}

#[test]
fn a_repair_that_is_killed_is_completed_by_the_next_one() {
    let mut random = StdRng::seed_from_u64(13);
    for options in [&[][..], &["--chunk-size", "8K"]] {
        let mounted = Mounted::created_with(options);
        mounted.mount(&[]);
        shell(
            &mounted.on,
            "for d in $(seq 20); do mkdir $d $d/sub; for i in $(seq 30); do \
               head -c $((i * 100)) /dev/urandom > $d/$i; \
             done; head -c 60000 /dev/urandom > $d/sub/large; ln $d/sub/large $d/again; done",
        );
        let before = sums(&mounted.on);
        let ids = (1..=20).map(|name| fs::metadata(mounted.path(name.to_string())).unwrap().ino());
        let ids = Vec::from_iter(ids);
        mounted.unmount();
        ids.iter().for_each(|id| damage(&mounted.namespace, *id));
        let damaged = mounted.place.path().join("damaged");
        fs::rename(&mounted.namespace, &damaged).unwrap();
        let renew = || shell(mounted.place.path(), "rm -rf namespace && cp -a damaged namespace");
        renew();
        let begun = Instant::now();
        check(&mounted.namespace, &["--repair"]);
        let mut longest = begun.elapsed();
        let mut killed = 0;
        for round in 0..rounds(6, 12) {
            renew();
            for _ in 0..=round % 3 {
                killed += usize::from(kill_repair(&mounted, &mut longest, &mut random));
            }
            let done = check(&mounted.namespace, &["--repair"]);
            let said = String::from_utf8_lossy(&done.stdout);
            let is_mended = said.ends_with("all faults are mended\n") || said == "no faults\n";
            assert!(is_mended, "{said}{}", String::from_utf8_lossy(&done.stderr));
            assert_eq!(success(&check(&mounted.namespace, &["--data"])), "no faults\n");
            mounted.mount(&[]);
            assert!(sums(&mounted.on) == before, "round {round}: files are lost");
            mounted.unmount();
        }
        assert!(killed > 0, "every repair was faster");
    }
}

/// The largest SSTable.
fn sstable(mounted: &Mounted) -> PathBuf {
    let entries = fs::read_dir(mounted.table().join("sst")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes.iter_mut().skip(at).take(200).for_each(|byte| *byte ^= 0x5a);
    fs::write(path, bytes).unwrap();
}

/// A namespace with 200 files in 10 directories, which nobody has open.
fn filled(options: &[&str]) -> Mounted {
    let mounted = Mounted::created_with(options);
    mounted.mount(&[]);
    shell(
        &mounted.on,
        "for d in $(seq 10); do mkdir $d; for i in $(seq 20); do \
           head -c $((i * 400)) /dev/urandom > $d/$i; done; done; chown -R 1000:1000 5",
    );
    mounted.unmount();
    mounted
}

#[test]
fn a_damaged_sstable_is_mended_and_what_is_lost_is_named() {
    for options in [&[][..], &["--chunk-size", "4K"]] {
        let mounted = filled(options);
        mounted.mount(&[]);
        let of = |name: &str| fs::read(mounted.path(name)).ok();
        let names = (1..=10).flat_map(|d| (1..=20).map(move |i| format!("{d}/{i}")));
        let before = Vec::from_iter(names.map(|name| (of(&name).unwrap(), name)));
        mounted.unmount();
        let path = sstable(&mounted);
        // A name of a file is in the block, in the clear or not: some block has names of files.
        flip(&path, 900);
        let faults = stdout_of(&check(&mounted.namespace, &[]), 1);
        assert!(faults.contains("has a wrong checksum in block"), "{faults}");
        let said = failure(
            &ns("mount")
                .arg(&mounted.namespace)
                .arg(&mounted.on)
                .output()
                .unwrap_or_else(|error| panic!("{error}")),
        );
        assert!(said.contains("canopy ns check --repair"), "{said}");
        let done = stdout_of(&check(&mounted.namespace, &["--repair"]), 1);
        assert!(done.contains("records are lost"), "{done}");
        assert!(done.ends_with("all faults are mended\n"), "{done}");
        assert_eq!(success(&check(&mounted.namespace, &["--data"])), "no faults\n");
        assert_eq!(success(&check(&mounted.namespace, &["--repair"])), "no faults\n");
        let report = done.lines().find_map(|line| line.strip_suffix(" has this report")).unwrap();
        let report = fs::read_to_string(mounted.namespace.join(report)).unwrap();
        assert!(done.starts_with(&report), "{report}");
        mounted.mount(&[]);
        for (bytes, name) in &before {
            let directory = name.split('/').next().unwrap();
            let is_named =
                done.contains(&format!("/{name}:")) || done.contains(&format!("/{directory}:"));
            assert!(of(name).as_ref() == Some(bytes) || is_named, "{name} is not named: {done}");
        }
        mounted.assert_sound();
    }
}

#[test]
fn a_mounted_namespace_with_a_damaged_sstable_is_mended() {
    let mounted = filled(&[]);
    let path = sstable(&mounted);
    let length = fs::metadata(&path).unwrap().len() as usize;
    mounted.mount(&[]);
    // Behind what a mount reads at first.
    flip(&path, length / 2);
    let done = stdout_of(&check(&mounted.on, &["--repair"]), 1);
    assert!(done.contains("records are lost"), "{done}");
    assert_eq!(success(&check(&mounted.on, &[])), "no faults\n");
    mounted.assert_sound();
}

/// `find` and `index` stopped at a damaged block without a word of what to do.
#[test]
fn errors_of_damaged_blocks_name_the_repair() {
    let mounted = filled(&[]);
    let path = sstable(&mounted);
    let original = fs::read(&path).unwrap();
    let shown = mounted.namespace.display().to_string();
    let advice = format!("canopy ns check --repair {shown}");
    let mut met = 0;
    // Most blocks have contents of files alone, which neither command reads.
    for at in (0..original.len()).step_by(original.len() / 40) {
        fs::write(&path, &original).unwrap();
        flip(&path, at);
        let index = mounted.place.path().join(format!("index{at}"));
        let mut indexing = std::process::Command::new(common::CANOPY);
        indexing.arg("--index").arg(&index).arg("index").arg(format!("ns:{shown}"));
        indexing.arg("--root").arg(&mounted.on);
        let found = ns("find").arg(&mounted.namespace).output().unwrap();
        for output in [found, indexing.output().unwrap()] {
            let said = String::from_utf8_lossy(&output.stderr);
            if output.status.code() == Some(0) {
                assert!(!said.contains("wrong checksum"), "{said}");
                continue;
            }
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains(&advice), "byte {at}: {said}");
            met += 1;
        }
        if met >= 4 {
            return;
        }
    }
    panic!("only {met} commands met a damaged block");
}

#[test]
fn an_export_of_a_damaged_namespace_says_that_it_is_partial() {
    let mounted = filled(&[]);
    mounted.mount(&[]);
    let whole = success(&ns("du").arg("-a").arg(&mounted.on).output().unwrap());
    mounted.unmount();
    let path = sstable(&mounted);
    let mut partial = 0;
    let length = fs::metadata(&path).unwrap().len() as usize;
    let original = fs::read(&path).unwrap();
    for at in (0..length).step_by(length / 10) {
        fs::write(&path, &original).unwrap();
        flip(&path, at);
        let copy = mounted.place.path().join(format!("copy{at}"));
        let exported = ns("export").arg(&mounted.namespace).arg(&copy).output().unwrap();
        let said = String::from_utf8_lossy(&exported.stderr).into_owned();
        let count =
            shell(copy.parent().unwrap(), &format!("find copy{at} 2>/dev/null | wc -l || true"));
        match exported.status.code() {
            // Damage in what an export does not read.
            Some(0) => assert_eq!(count.trim(), "211", "byte {at}"),
            Some(1) => {
                assert!(said.contains("the copy is not complete"), "{said}");
                assert!(said.contains("wrong checksum"), "{said}");
                partial += 1;
            }
            // Nothing can be read without the settings, or the end of the file.
            Some(2) => assert!(said.contains("canopy ns check --repair"), "{said}"),
            code => panic!("{code:?}: {said}"),
        }
        let summed = ns("du").arg("-a").arg(&mounted.namespace).output().unwrap();
        let is_whole = String::from_utf8_lossy(&summed.stdout) == whole;
        assert!(is_whole || summed.status.code() != Some(0), "byte {at}");
    }
    assert!(partial > 2, "{partial}");
    fs::write(&path, &original).unwrap();
    mounted.mount(&[]);
    mounted.assert_sound();
}

#[test]
fn a_salvage_that_is_killed_is_completed_by_the_next_one() {
    let mut random = StdRng::seed_from_u64(7);
    let mounted = filled(&[]);
    let path = sstable(&mounted);
    let length = fs::metadata(&path).unwrap().len() as usize;
    flip(&path, length / 3);
    let damaged = mounted.place.path().join("damaged");
    fs::rename(&mounted.namespace, &damaged).unwrap();
    let (mut killed, mut longest) = (0, Duration::from_millis(60));
    for _ in 0..15 {
        shell(mounted.place.path(), "rm -rf namespace && cp -a damaged namespace");
        killed += usize::from(kill_repair(&mounted, &mut longest, &mut random));
        let done = check(&mounted.namespace, &["--repair"]);
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let reports = shell(&mounted.namespace, "cat */damaged/report-*");
        assert!(reports.contains("records are lost"), "{said}: {reports}");
        assert_eq!(success(&check(&mounted.namespace, &["--data"])), "no faults\n");
    }
    assert!(killed > 0, "every repair was faster");
}

#[test]
fn a_damaged_manifest_is_an_error_that_says_what_to_do() {
    let mounted = filled(&[]);
    let mut manifests = Vec::from_iter(fs::read_dir(mounted.table().join("manifest")).unwrap());
    manifests.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let current = manifests.pop().unwrap().unwrap().path();
    let original = fs::read(&current).unwrap();
    let mut bytes = original.clone();
    bytes[30] ^= 1;
    fs::write(&current, bytes).unwrap();
    let faults = stdout_of(&check(&mounted.namespace, &[]), 1);
    assert!(faults.contains("its checksum is wrong"), "{faults}");
    let said = failure(&check(&mounted.namespace, &["--repair"]));
    assert!(said.contains("restore") && said.contains("from a backup"), "{said}");
    fs::write(&current, original).unwrap();
    assert_eq!(success(&check(&mounted.namespace, &[])), "no faults\n");
}
