//! A disk that is full: what is refused, what still works, and that all goes on once there is room.

mod common;

use common::{Mounted, failure, ns, shell, success, wait_until};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A small disk below the place of a test. It goes when the test ends.
struct Disk(PathBuf);

impl Disk {
    /// Its size is in the words of mount(8).
    fn new(on: &Path, size: &str) -> Self {
        fs::create_dir(on).unwrap();
        shell(on, &format!("mount -t tmpfs -o size={size} tmpfs ."));
        Disk(on.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn is_full<T>(result: &io::Result<T>) -> bool {
    let error = result.as_ref().err().and_then(io::Error::raw_os_error);
    error == Some(Errno::NOSPC.raw_os_error())
}

/// Makes a file that outlasts a crash, or fails.
fn keep(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[test]
fn a_namespace_that_does_not_fit_says_what_to_do() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("disk");
    let _disk = Disk::new(&path, "12k");
    for options in [&[][..], &["--servers", "2"]] {
        shell(&path, "mount -o remount,size=12k .");
        let create = || ns("create").args(options).arg(path.join("namespace")).output().unwrap();
        let said = failure(&create());
        let advice = format!("try again (rm -r -- {}/namespace): ", path.display());
        assert!(said.contains(&advice), "{said}");
        assert!(said.contains("No space left on device"), "{said}");
        assert!(!said.contains("cannot hold tables"), "{said}");
        shell(&path, "mount -o remount,size=32m .");
        let said = failure(&create());
        assert!(said.contains(&advice) && said.contains("is not empty"), "{said}");
        shell(&path, "rm -r namespace");
        success(&create());
        // A whole namespace is not to be removed.
        let said = failure(&create());
        assert!(said.contains("is not empty") && !said.contains("rm -r"), "{said}");
        shell(&path, "rm -r namespace");
    }
}

/// A namespace that is mounted, on a disk of its own of 64 MiB.
fn mounted_on_disk(mounted: &mut Mounted) -> Disk {
    let path = mounted.place.path().join("disk");
    let disk = Disk::new(&path, "64m");
    mounted.namespace = path.join("namespace");
    success(&ns("create").arg(&mounted.namespace).output().unwrap());
    mounted.mount(&[]);
    disk
}

/// Fills the disk of a namespace with contents and names. Returns the names.
fn fill(mounted: &Mounted) -> Vec<String> {
    let mut names = Vec::new();
    let mut fill_with = |name: &dyn Fn(u32) -> String, make: &dyn Fn(&Path) -> io::Result<()>| {
        for number in 0..1_000_000 {
            let name = name(number);
            let made = make(&mounted.path(&name));
            names.push(name);
            if made.is_err() {
                assert!(is_full(&made), "{made:?}");
                return;
            }
        }
        panic!("the disk was never full");
    };
    fill_with(&|number| format!("large{number}"), &|path| keep(path, &vec![2; 1 << 20]));
    fill_with(&|number| format!("part{number}"), &|path| keep(path, &vec![2; 8 << 10]));
    fill_with(&|number| format!("{number}{}", "x".repeat(200)), &|path| {
        File::create(path).map(drop)
    });
    names
}

/// The files on a disk: names, sizes and times.
fn listing(disk: &Path) -> String {
    shell(disk, "find . -not -name mount.log -printf '%p %s %T@ %b\\n' | sort")
}

/// Sets the length of a file by its path, as truncate(2) does.
fn truncate(path: &Path, length: i64) -> io::Result<()> {
    Ok(nix::unistd::truncate(path, length)?)
}

#[test]
fn a_change_that_does_not_fit_changes_nothing() {
    // truncate(2) of a small file failed with ENOSPC, and the file had the new size.
    let mut mounted = Mounted::created();
    let disk = mounted_on_disk(&mut mounted);
    let text = vec![7; 3000];
    for name in ["grown", "cut", "written", "set"] {
        keep(&mounted.path(name), &text).unwrap();
    }
    fill(&mounted);
    let grown = truncate(&mounted.path("grown"), 4000);
    assert!(is_full(&grown), "{grown:?}");
    assert_eq!(fs::read(mounted.path("grown")).unwrap(), text);
    // Getting shorter works, by path and by descriptor.
    truncate(&mounted.path("cut"), 1000).unwrap();
    File::options().write(true).open(mounted.path("set")).unwrap().set_len(500).unwrap();
    // Growing beyond what records contain left an object that nobody knew.
    let written = {
        let file = File::options().write(true).open(mounted.path("written")).unwrap();
        file.write_all_at(&vec![8; 100_000], 3000)
    };
    assert!(is_full(&written), "{written:?}");
    let found = fs::read(mounted.path("written")).unwrap();
    assert_eq!(found[..3000], text);
    assert!(found[3000..].iter().all(|byte| *byte == 8) && found.len() < 103_000);
    let checked = ns("check").arg(&mounted.on).output().unwrap();
    assert_eq!(success(&checked), "no faults\n");
    mounted.unmount();
    // It is checked on the full disk, and nothing is written there.
    let before = listing(&disk.0);
    let checked = ns("check").arg(&mounted.namespace).output().unwrap();
    assert_eq!(success(&checked), "no faults\n");
    assert_eq!(listing(&disk.0), before);
    mounted.mount(&["--read-only"]);
    assert_eq!(fs::read(mounted.path("grown")).unwrap(), text);
    assert_eq!(fs::read(mounted.path("cut")).unwrap(), text[..1000]);
    assert_eq!(fs::read(mounted.path("set")).unwrap(), text[..500]);
    assert_eq!(fs::read(mounted.path("written")).unwrap(), found);
    mounted.unmount();
}

#[test]
fn a_namespace_whose_disk_is_full_is_read_after_a_crash_and_changed_with_its_own_reserve() {
    // It could not be opened, not even to be read, and each attempt took some of what was left.
    let mut mounted = Mounted::created();
    let disk = mounted_on_disk(&mut mounted);
    let text = vec![7; 3000];
    for name in ["one", "two", "old"] {
        keep(&mounted.path(name), &text).unwrap();
    }
    let names = fill(&mounted);
    truncate(&mounted.path("two"), 10).unwrap();
    fs::remove_file(mounted.path("old")).unwrap();
    // Syncing any file syncs the log.
    File::open(mounted.path("one")).unwrap().sync_all().unwrap();
    mounted.crash();
    assert!(is_full(&fs::write(disk.0.join("filler"), vec![1; 80 << 20])));
    let before = listing(&disk.0);
    let checked = ns("check").arg(&mounted.namespace).output().unwrap();
    assert_eq!(success(&checked), "no faults\n");
    mounted.mount(&["--read-only"]);
    assert_eq!(fs::read(mounted.path("one")).unwrap(), text);
    assert_eq!(fs::read(mounted.path("two")).unwrap(), text[..10]);
    assert!(!mounted.path("old").exists());
    let asked = ns("find").arg(&mounted.namespace).output().unwrap();
    assert!(failure(&asked).contains("mounted read-only"), "it would miss what the log contains");
    mounted.unmount();
    let mut found = ns("find");
    found.arg(&mounted.namespace).args(["-size", "-20c", "-name", "two", "-printf", "%f %s"]);
    assert_eq!(success(&found.output().unwrap()), "two 10");
    assert_eq!(listing(&disk.0), before);
    // The log's reserve is given back first, and is enough to make room.
    mounted.mount(&[]);
    assert_eq!(fs::read(mounted.path("two")).unwrap(), text[..10]);
    for name in names.iter().filter(|name| name.starts_with("large")) {
        let _ = fs::remove_file(mounted.path(name));
    }
    keep(&mounted.path("new"), &text).unwrap();
    mounted.assert_sound();
}

#[test]
fn space_of_removed_files_is_there_at_once() {
    // Creating failed for up to eight seconds after files were removed.
    let mut mounted = Mounted::created();
    let _disk = mounted_on_disk(&mut mounted);
    let names = fill(&mounted);
    let large = Vec::from_iter(names.iter().filter(|name| name.starts_with("large")));
    // The log takes a part of it, a megabyte at a time.
    for some in large.chunks_exact(3).take(5) {
        for name in some {
            fs::remove_file(mounted.path(name)).unwrap();
        }
        let name = some[0];
        File::create(mounted.path(format!("new of {name}"))).unwrap();
        keep(&mounted.path(format!("kept of {name}")), &vec![5; 600 << 10]).unwrap();
    }
    mounted.unmount();
}

#[test]
fn a_disk_can_be_unmounted_after_the_namespace_on_it() {
    // The command returned before the process that answered had ended, in one of twelve runs.
    for _ in 0..24 {
        let mut mounted = Mounted::created();
        let disk = mounted_on_disk(&mut mounted);
        keep(&mounted.path("file"), &vec![1; 100_000]).unwrap();
        mounted.unmount();
        assert!(mounted.processes().is_empty());
        shell(Path::new("/"), &format!("umount {}", disk.0.display()));
    }
}

#[test]
fn a_full_disk_refuses_what_is_new_and_lets_go_of_what_is_old() {
    let mut mounted = Mounted::created();
    let path = mounted.place.path().join("disk");
    let disk = Disk::new(&path, "64m");
    mounted.namespace = path.join("namespace");
    success(&ns("create").arg(&mounted.namespace).output().unwrap());
    mounted.mount(&[]);
    for name in ["one", "two", "three"] {
        keep(&mounted.path(name), &vec![1; 8 << 20]).unwrap();
    }
    let filled = (0..).map(|number| {
        let name = format!("large{number}");
        (keep(&mounted.path(&name), &vec![2; 1 << 20]), name)
    });
    let (mut files, mut is_done) = (Vec::new(), false);
    for (outcome, name) in filled {
        files.push(name);
        is_done |= is_full(&outcome);
        assert!(is_done || outcome.is_ok(), "{outcome:?}");
        if is_done {
            break;
        }
    }
    // Names take room in the log, too.
    let refused = (0..1_000_000).find_map(|number| {
        let name = format!("{number}{}", "x".repeat(200));
        let created = File::create(mounted.path(&name)).map(drop);
        match &created {
            Ok(()) => files.push(name),
            Err(_) => assert!(is_full(&created), "{created:?}"),
        }
        created.err()
    });
    assert!(refused.is_some(), "the disk was never full");
    // What is there is read, changes are refused, and files go.
    assert_eq!(fs::read(mounted.path("one")).unwrap().len(), 8 << 20);
    assert!(is_full(&fs::create_dir(mounted.path("directory"))));
    File::create(mounted.path("two")).unwrap();
    assert_eq!(fs::metadata(mounted.path("two")).unwrap().len(), 0);
    for name in files.iter().chain([&"three".to_owned()]) {
        match fs::remove_file(mounted.path(name)) {
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {}
            removed => removed.unwrap(),
        }
    }
    wait_until("there is room again", || keep(&mounted.path("new"), &vec![3; 8 << 20]).is_ok());
    fs::create_dir(mounted.path("directory")).unwrap();
    // Nothing of what is said to be kept goes in a crash.
    keep(&mounted.path("directory/last"), b"text").unwrap();
    mounted.crash();
    mounted.mount(&[]);
    assert_eq!(fs::read(mounted.path("one")).unwrap(), vec![1; 8 << 20]);
    assert_eq!(fs::read(mounted.path("new")).unwrap(), vec![3; 8 << 20]);
    assert_eq!(fs::read(mounted.path("directory/last")).unwrap(), b"text");
    let mut left = Vec::from_iter(
        fs::read_dir(&mounted.on)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap()),
    );
    left.sort();
    assert_eq!(left, ["directory", "new", "one", "two"]);
    mounted.assert_sound();
    drop(disk);
}

#[test]
fn a_failed_mount_on_a_full_disk_says_why_and_leaves_a_sound_namespace() {
    let mut mounted = Mounted::created();
    let path = mounted.place.path().join("disk");
    let disk = Disk::new(&path, "64m");
    mounted.namespace = path.join("namespace");
    success(&ns("create").arg(&mounted.namespace).output().unwrap());
    mounted.mount(&[]);
    keep(&mounted.path("file"), b"text").unwrap();
    mounted.unmount();
    let filler = path.join("filler");
    assert!(is_full(&fs::write(&filler, vec![1; 80 << 20])));
    let tried = ns("mount").arg(&mounted.namespace).arg(&mounted.on).output().unwrap();
    assert!(failure(&tried).contains("No space left on device"));
    let took = listing(&path);
    failure(&ns("mount").arg(&mounted.namespace).arg(&mounted.on).output().unwrap());
    assert_eq!(listing(&path), took, "an attempt leaves nothing behind");
    mounted.mount(&["--read-only"]);
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"text");
    mounted.unmount();
    let foreground = ["--foreground".as_ref(), mounted.namespace.as_path(), &mounted.on];
    let told = failure(&ns("mount").args(foreground).output().unwrap());
    assert!(told.contains("No space left on device"), "{told}");
    assert!(!mounted.is_mounted());
    fs::remove_file(filler).unwrap();
    mounted.mount(&[]);
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"text");
    mounted.assert_sound();
    drop(disk);
}

#[test]
fn a_full_cache_loses_nothing() {
    let mounted = Mounted::created_with(&["--chunk-size", "64K"]);
    let path = mounted.place.path().join("cache");
    let disk = Disk::new(&path, "64m");
    mounted.mount(&["--cache", path.to_str().unwrap(), "--cache-size", "1G"]);
    let (old, new) = (vec![1; 1 << 20], vec![2; 1 << 20]);
    keep(&mounted.path("file"), &old).unwrap();
    shell(
        &path,
        "fallocate -l 1G filler 2>/dev/null || dd if=/dev/zero of=filler bs=4K 2>/dev/null || true",
    );
    let file = File::options().read(true).write(true).open(mounted.path("file")).unwrap();
    // Whole chunks, parts of them, and what is behind the end.
    for (offset, count) in [(0, 1 << 20), (65_536, 65_536), (1000, 500), (1 << 20, 70_000)] {
        let written = file.write_all_at(&new[..count], offset);
        assert!(is_full(&written), "{written:?}");
    }
    file.sync_all().unwrap();
    assert!(fs::read(mounted.path("file")).unwrap() == old);
    file.set_len(2 << 20).unwrap();
    let mut read = vec![9; 1 << 20];
    file.read_exact_at(&mut read, 1 << 20).unwrap();
    assert!(read.iter().all(|byte| *byte == 0), "what could not be written is there");
    fs::remove_file(path.join("filler")).unwrap();
    file.write_all_at(&new[..70_000], 65_536).unwrap();
    file.sync_all().unwrap();
    drop(file);
    mounted.unmount();
    drop(disk);
    mounted.mount(&[]);
    let mut expected = [old, vec![0; 1 << 20]].concat();
    expected[65_536..][..70_000].fill(2);
    assert!(fs::read(mounted.path("file")).unwrap() == expected);
    mounted.unmount();
    let checked = ns("check").arg("--data").arg(&mounted.namespace).output().unwrap();
    assert_eq!(success(&checked), "no faults\n");
}
