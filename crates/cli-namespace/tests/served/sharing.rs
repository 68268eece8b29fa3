//! Two mounts of one namespace: changes that one makes, as the other sees them.

use crate::common::{as_user, shell, success, wait_until};
use crate::site::Site;
use rustix::fs::{CWD, FileType as RustixType, Mode, OFlags, fstat, makedev, mknodat, open};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A cluster that is mounted twice. Directories are not cached, so that there is nothing to wait for.
fn twice() -> (Site, PathBuf, PathBuf) {
    let mut site = Site::with(4, 2, &["--split-entries", "64", "--chunk-size", "64K"]);
    let one = site.mount("one", &["-o", "cache=0"]);
    let other = site.mount("other", &["-o", "cache=0"]);
    (site, one, other)
}

/// The kernel of a mount remembers where directories were.
#[test]
fn directories_that_another_mount_has_moved_can_be_moved() {
    let mut site = Site::new(3, 1);
    for options in [&["-o", "cache=0"][..], &[]] {
        let (one, other) = (site.mount("one", options), site.mount("other", options));
        for parent in ["a", "b", "c"] {
            fs::create_dir_all(one.join(parent)).unwrap();
        }
        fs::create_dir(one.join("a/d")).unwrap();
        fs::create_dir(one.join("a/d/below")).unwrap();
        let number = other.join("a/d").metadata().unwrap().ino();
        // To a third directory, back to where this kernel has it, and under another name.
        for (here, moved, there) in [
            ("a/d", "b/d", "c/d"),
            ("c/d", "b/d", "c/d"),
            ("c/d", "b/d", "a/e"),
            ("a/e", "a/f", "a/e"),
        ] {
            assert_eq!(other.join(here).metadata().unwrap().ino(), number);
            fs::rename(one.join(here), one.join(moved)).unwrap();
            fs::rename(other.join(moved), other.join(there))
                .unwrap_or_else(|error| panic!("{here} {moved} {there}: {error}"));
            assert_eq!(one.join(there).metadata().unwrap().ino(), number);
            assert!(other.join(there).join("below").is_dir());
            assert!(!other.join(here).exists() || here == there);
        }
        fs::remove_dir_all(other.join("a")).unwrap();
        for on in ["one", "other"] {
            success(&site.unmount(on));
        }
    }
}

/// The kernel reports neither the opening of pipes and devices nor descriptors of `O_PATH`.
#[test]
fn descriptors_of_removed_files_stay_whatever_the_kernel_reports() {
    let mut site = Site::new(3, 1);
    let on = site.mount("on", &[]);
    let path = |name: &str| on.join(name);
    let mode = Mode::from_raw_mode(0o640);
    mknodat(CWD, path("pipe"), RustixType::Fifo, mode, 0).unwrap();
    mknodat(CWD, path("device"), RustixType::CharacterDevice, mode, makedev(1, 3)).unwrap();
    fs::write(path("file"), "text").unwrap();
    symlink("file", path("link")).unwrap();
    let opened = [
        ("pipe", OFlags::RDWR | OFlags::NONBLOCK),
        ("device", OFlags::RDONLY),
        ("file", OFlags::PATH),
        ("link", OFlags::PATH | OFlags::NOFOLLOW),
    ];
    let opened = opened.map(|(name, flags)| (name, open(path(name), flags, mode).unwrap()));
    for (name, _) in &opened {
        fs::remove_file(path(name)).unwrap();
    }
    // Servers report files without names each second.
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(4) {
        for (name, descriptor) in &opened {
            let found = fstat(descriptor).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(found.st_nlink, 0, "{name}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(opened);
    success(&site.unmount("on"));
}

/// The kernel asks for a new file where it knows of none; another mount has made it meanwhile.
#[test]
fn files_that_two_mounts_make_at_once_can_be_opened() {
    const FILES: usize = 300;
    let (site, one, other) = twice();
    let numbers = [AtomicUsize::new(0), AtomicUsize::new(0)];
    std::thread::scope(|scope| {
        for (own, on) in [&one, &other].into_iter().enumerate() {
            let numbers = &numbers;
            scope.spawn(move || {
                for number in 0..FILES {
                    numbers[own].store(number, Ordering::SeqCst);
                    // Both begin at the same moment.
                    while numbers[1 - own].load(Ordering::SeqCst) < number {
                        std::hint::spin_loop();
                    }
                    let path = on.join(format!("f{number}"));
                    let mut file = OpenOptions::new().append(true).create(true).open(&path);
                    let file = file.as_mut().unwrap_or_else(|error| panic!("{number}: {error}"));
                    file.write_all(b"line\n").unwrap();
                }
                numbers[own].store(FILES, Ordering::SeqCst);
            });
        }
    });
    // A program that insists on a new file gets one, or an error.
    let path = one.join("f0");
    let error = OpenOptions::new().append(true).create_new(true).open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read_dir(&one).unwrap().count(), FILES);
    // Nor does it matter that others remove it meanwhile, and who sees only its own files in the end.
    fs::set_permissions(&one, PermissionsExt::from_mode(0o1777)).unwrap();
    let race = "import os,sys\n\
        os.umask(0o77); os.chdir(sys.argv[1])\n\
        for _ in range(150):\n\
        \x20   try: os.close(os.open('shared', os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600))\n\
        \x20   except PermissionError: pass\n\
        \x20   try: os.unlink('shared')\n\
        \x20   except (FileNotFoundError, PermissionError): pass\n";
    let racers = [(0, &one), (1000, &other), (0, &other)].map(|(uid, on)| {
        let mut racer = as_user(uid, "python3");
        racer.args(["-c", race]).arg(on).stderr(Stdio::piped()).spawn().unwrap()
    });
    for racer in racers {
        let output = racer.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // Permissions are those of the file that is there.
    fs::set_permissions(other.join("f1"), PermissionsExt::from_mode(0o600)).unwrap();
    let refused = as_user(1000, "sh").args(["-c", ": >> f1"]).current_dir(&one).output().unwrap();
    assert!(!refused.status.success());
    drop(site);
}

/// A program that reads a file, waits for a word, and prints the file from a map.
const MAPPER: &str = "import mmap,os,sys\n\
    f = open(sys.argv[1], 'r+b')\n\
    f.read()\n\
    os.write(1, b'r')\n\
    sys.stdin.readline()\n\
    m = mmap.mmap(f.fileno(), os.fstat(f.fileno()).st_size)\n\
    sys.stdout.buffer.write(m[:])\n";

/// Bytes are never older than the size that stat(2) has shown: once they were zeros, and maps ended
/// programs by SIGBUS.
#[test]
fn open_files_show_what_another_mount_has_appended() {
    let (_site, one, other) = twice();
    for size in [0, 10, 3700, 5000, 100_000] {
        let (here, there) = (one.join(size.to_string()), other.join(size.to_string()));
        fs::write(&here, vec![b'a'; size]).unwrap();
        let mut mapper = Command::new("python3");
        let mapper = mapper.args(["-c", MAPPER]).arg(&there).stdin(Stdio::piped());
        let mut mapper = mapper.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0];
        mapper.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        let mut expected = vec![b'a'; size];
        let mut file = OpenOptions::new().read(true).write(true).open(&there).unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        for round in 0..3 {
            let appended = vec![b'b' + round; 300];
            OpenOptions::new().append(true).open(&here).unwrap().write_all(&appended).unwrap();
            expected.extend(&appended);
            // As tail(1) does.
            assert_eq!(file.metadata().unwrap().len(), expected.len() as u64);
            file.read_to_end(&mut read).unwrap();
            assert!(read == expected, "{size}, {round}: {} bytes", read.len());
        }
        // The first look at the part that is new is through a map.
        let appended = vec![b'm'; 300];
        OpenOptions::new().append(true).open(&here).unwrap().write_all(&appended).unwrap();
        expected.extend(&appended);
        mapper.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let mapped = mapper.wait_with_output().unwrap();
        assert!(mapped.status.success(), "{size}: {:?}", mapped.status);
        assert!(mapped.stdout == expected, "{size}: {} bytes", mapped.stdout.len());
    }
}

/// Programs on two mounts append in turn: under a lock, or after what the other wrote was sent.
#[test]
fn programs_of_two_mounts_append_in_turn() {
    let (site, one, other) = twice();
    for (name, uses_locks) in [("locked", true), ("sent", false)] {
        let open = |on: &Path| OpenOptions::new().append(true).create(true).open(on.join(name));
        let mut files = [&one, &other].map(|on| open(on).unwrap());
        let mut expected = String::new();
        for turn in 0..20 {
            // Beyond what records hold, in the end.
            let line = format!("{turn} {}\n", "x".repeat(turn * 50));
            let file = &mut files[turn % 2];
            if uses_locks {
                file.lock().unwrap();
            }
            file.write_all(line.as_bytes()).unwrap();
            match uses_locks {
                true => file.unlock().unwrap(),
                false => file.sync_all().unwrap(),
            }
            expected += &line;
        }
        drop(files);
        for on in [&one, &other] {
            assert!(fs::read_to_string(on.join(name)).unwrap() == expected, "{name}");
        }
    }
    // After another mount has truncated the file, appending leaves no hole.
    let mut log = OpenOptions::new().append(true).open(one.join("sent")).unwrap();
    log.write_all(b"last\n").unwrap();
    log.sync_all().unwrap();
    let cut = OpenOptions::new().write(true).open(other.join("sent")).unwrap();
    cut.set_len(2).unwrap();
    drop(cut);
    log.write_all(b"more\n").unwrap();
    drop(log);
    for on in [&one, &other] {
        assert_eq!(fs::read_to_string(on.join("sent")).unwrap(), "0 more\n");
    }
    for on in ["one", "other"] {
        success(&site.unmount(on));
    }
}

#[test]
fn names_are_seen_by_the_other_mount() {
    let (site, one, other) = twice();
    fs::create_dir(one.join("d")).unwrap();
    for number in 0..300 {
        File::create(one.join(format!("d/{number}"))).unwrap();
    }
    assert_eq!(fs::read_dir(other.join("d")).unwrap().count(), 300);
    assert_eq!(
        other.join("d").metadata().unwrap().mtime_nsec(),
        one.join("d").metadata().unwrap().mtime_nsec()
    );
    // A name that was missed is seen once it is there, and the other way round.
    assert!(!other.join("late").exists());
    File::create(one.join("late")).unwrap();
    assert!(other.join("late").exists());
    fs::remove_file(other.join("late")).unwrap();
    assert!(!one.join("late").exists());
    // Renames over servers, of files and of directories.
    for number in 0..100 {
        fs::rename(other.join(format!("d/{number}")), other.join(format!("moved{number}")))
            .unwrap();
        assert!(one.join(format!("moved{number}")).is_file());
        assert!(!one.join(format!("d/{number}")).exists());
    }
    fs::rename(one.join("d"), one.join("e")).unwrap();
    assert_eq!(fs::read_dir(other.join("e")).unwrap().count(), 200);
    assert!(fs::read_dir(other.join("d")).is_err());
    fs::hard_link(one.join("e/200"), one.join("link")).unwrap();
    symlink("e/200", other.join("symlink")).unwrap();
    assert_eq!(other.join("link").metadata().unwrap().nlink(), 2);
    assert_eq!(
        one.join("symlink").metadata().unwrap().ino(),
        other.join("link").metadata().unwrap().ino()
    );
    assert!(fs::remove_dir(one.join("e")).is_err());
    fs::remove_dir_all(other.join("e")).unwrap();
    assert!(!one.join("e").exists());
    for on in ["one", "other"] {
        success(&site.unmount(on));
    }
}

#[test]
fn directories_are_cached_under_leases() {
    let mut site = Site::new(3, 2);
    let [one, other] = ["one", "other"].map(|name| site.mount(name, &[]));
    let mode = |on: &Path, name: &str| on.join(name).metadata().unwrap().mode() & 0o777;
    for number in 0..3 {
        let (from, to) = (format!("from{number}"), format!("to{number}"));
        fs::create_dir(one.join(&from)).unwrap();
        File::create(one.join(&from).join("file")).unwrap();
        // The other mount may use it without a question from now on.
        assert_eq!(mode(&other, &from), 0o755);
        fs::set_permissions(one.join(&from), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!((mode(&other, &from), mode(&one, &from)), (0o700, 0o700));
        assert!(other.join(&from).join("file").exists());
        fs::rename(one.join(&from), one.join(&to)).unwrap();
        assert!(!other.join(&from).exists() && !other.join(&from).join("file").exists());
        assert!(other.join(&to).join("file").exists());
        fs::remove_file(other.join(&to).join("file")).unwrap();
        fs::remove_dir(one.join(&to)).unwrap();
        assert!(!other.join(&to).exists());
    }
    // Times of a directory are those of what a mount has done itself, at once.
    fs::create_dir(one.join("d")).unwrap();
    for number in 0..10 {
        let file = one.join(format!("d/{number}"));
        File::create(&file).unwrap();
        let made = file.metadata().unwrap();
        let times = one.join("d").metadata().unwrap();
        assert!((times.mtime(), times.mtime_nsec()) >= (made.ctime(), made.ctime_nsec()));
    }
    for on in ["one", "other"] {
        success(&site.unmount(on));
    }
}

#[test]
fn contents_are_seen_once_a_file_is_closed() {
    let (site, one, other) = twice();
    for (name, bytes) in [("small", 100), ("large", 1 << 20)] {
        let text = Vec::from_iter((0..bytes).map(|at: usize| (at % 251) as u8));
        fs::write(one.join(name), &text).unwrap();
        assert_eq!(fs::read(other.join(name)).unwrap(), text);
        // Also where the other mount has read it before.
        fs::write(one.join(name), vec![7; bytes / 2]).unwrap();
        assert_eq!(fs::read(other.join(name)).unwrap(), vec![7; bytes / 2]);
        // Different parts of one chunk.
        let [first, second] =
            [&one, &other].map(|on| OpenOptions::new().write(true).open(on.join(name)).unwrap());
        first.write_all_at(b"one", 0).unwrap();
        second.write_all_at(b"other", 10).unwrap();
        drop((first, second));
        let read = fs::read(one.join(name)).unwrap();
        assert_eq!((&read[..3], &read[10..15]), (&b"one"[..], &b"other"[..]));
        // fsync is enough.
        let mut open = OpenOptions::new().append(true).open(other.join(name)).unwrap();
        open.write_all(b"end").unwrap();
        open.sync_all().unwrap();
        let mut seen = File::open(one.join(name)).unwrap();
        seen.seek(SeekFrom::End(-3)).unwrap();
        let mut end = String::new();
        seen.read_to_string(&mut end).unwrap();
        assert_eq!(end, "end");
    }
    // Appends that follow each other.
    for round in 0..20 {
        let on = if round % 2 == 0 { &one } else { &other };
        let mut log = OpenOptions::new().create(true).append(true).open(on.join("log")).unwrap();
        writeln!(log, "{round}").unwrap();
    }
    let log = fs::read_to_string(one.join("log")).unwrap();
    assert_eq!(log.lines().count(), 20, "{log}");
    for on in ["one", "other"] {
        success(&site.unmount(on));
    }
}

#[test]
fn mapped_files_are_seen_once_they_are_synced() {
    let (site, one, other) = twice();
    fs::write(one.join("file"), vec![0; 200_000]).unwrap();
    let program = "import mmap,sys\n\
        f = open(sys.argv[1], 'r+b')\n\
        m = mmap.mmap(f.fileno(), 0)\n\
        m[100000:100005] = b'hello'\n\
        m.flush(); m.close(); f.close()\n";
    fs::write(site.path("map.py"), program).unwrap();
    shell(&one, &format!("python3 {} file", site.path("map.py").display()));
    assert_eq!(&fs::read(other.join("file")).unwrap()[100_000..100_005], b"hello");
    // Programs are mapped, too.
    fs::copy("/bin/true", one.join("true")).unwrap();
    shell(&other, "./true");
}

#[test]
fn open_files_stay_without_a_name() {
    let (site, one, other) = twice();
    for (name, bytes) in [("small", 100), ("large", 300_000)] {
        fs::write(one.join(name), vec![1; bytes]).unwrap();
        let mut open = OpenOptions::new().read(true).write(true).open(one.join(name)).unwrap();
        fs::remove_file(other.join(name)).unwrap();
        assert!(!one.join(name).exists());
        assert_eq!(open.metadata().unwrap().nlink(), 0);
        let mut read = Vec::new();
        open.read_to_end(&mut read).unwrap();
        assert_eq!(read, vec![1; bytes]);
        open.write_all_at(b"more", bytes as u64).unwrap();
        open.sync_all().unwrap();
        assert_eq!(open.metadata().unwrap().len(), bytes as u64 + 4);
    }
    // Files that nobody has open are removed.
    let chunks = || {
        let listed = walk(&site.namespace.join("objects/contents/chunk"));
        listed.iter().filter(|path| path.is_file()).count()
    };
    wait_until("chunks are gone", || chunks() == 0);
}

fn walk(directory: &std::path::Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.flat_map(|path| walk(&path).into_iter().chain([path])).collect()
}
