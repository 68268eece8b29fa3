//! State after the process that answers the kernel was killed: everything that was synced, and the
//! first of the other changes of each writer.

mod common;

use common::{Mounted, ns, shell, success, wait_until};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

const ROUNDS: u64 = 6;
const WRITERS: u64 = 3;

/// Contents of file `number` of a writer: sizes on both sides of the limit for records.
fn contents(writer: u64, number: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(writer << 32 | number);
    let size = [0, 1, 100, 4096, 4097, 70_000][(number % 6) as usize];
    (0..size).map(|_| random.random()).collect()
}

/// Changes that a writer knows to outlast a crash.
#[derive(Default)]
struct Promised {
    /// Files up to this one were synced, each before the next was made.
    files: u64,
    /// Those that were synced themselves.
    synced: Vec<u64>,
    /// Renames up to this one were synced by their directory.
    renames: u64,
    /// Bytes of the file that grows.
    grown_bytes: u64,
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes numbered files in a directory of its own until nobody answers any more: each is written
/// under one name, renamed to another, and now and then synced.
fn write(directory: &Path, writer: u64, promised: &mut Promised) -> io::Result<()> {
    let mut random = StdRng::seed_from_u64(writer);
    let mut grown = File::options().append(true).create(true).open(directory.join("grown"))?;
    for number in 0.. {
        let (new, last) =
            (directory.join(format!("new{number}")), directory.join(format!("file{number}")));
        let mut file = File::create_new(&new)?;
        file.write_all(&contents(writer, number))?;
        let is_synced = random.random_bool(0.3);
        if is_synced {
            file.sync_all()?;
            promised.files = number + 1;
            promised.synced.push(number);
        }
        drop(file);
        fs::rename(&new, &last)?;
        if random.random_bool(0.2) {
            sync(directory)?;
            promised.renames = number + 1;
        }
        grown.write_all(&contents(writer, 2 + number % 4))?;
        if random.random_bool(0.1) {
            grown.sync_data()?;
            promised.grown_bytes = grown.metadata()?.len();
        }
    }
    Ok(())
}

/// Fails unless a directory has all that was promised, and a beginning of what its writer did. If
/// contents are chunks, syncing one file promises nothing of what others have in chunks.
fn assert_kept(directory: &Path, writer: u64, promised: &Promised, are_chunks: bool) {
    let names = fs::read_dir(directory).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: std::collections::BTreeSet<String> = names.collect();
    let count = (0..).take_while(|number| names.contains(&format!("file{number}"))).count() as u64;
    let others = names.len() as u64 - count - u64::from(names.contains("grown"));
    // The next may be there under its first name.
    let has_new = names.contains(&format!("new{count}"));
    assert_eq!(others, u64::from(has_new), "writer {writer} left gaps: {names:?}");
    assert!(count >= promised.renames, "{count} of {} renames", promised.renames);
    assert!(count + u64::from(has_new) >= promised.files, "{count} of {}", promised.files);
    for number in 0..count + u64::from(has_new) {
        let name = if number < count { format!("file{number}") } else { format!("new{number}") };
        let (found, expected) =
            (fs::read(directory.join(&name)).unwrap(), contents(writer, number));
        let size = fs::metadata(directory.join(&name)).unwrap().len();
        assert_eq!(size, found.len() as u64, "the size of {name}");
        let is_record = !are_chunks || expected.len() <= 4096;
        match number < promised.files && (is_record || promised.synced.contains(&number)) {
            true => assert!(found == expected, "{name} of writer {writer} has other contents"),
            false => assert!(expected.starts_with(&found), "{name} has what nobody wrote"),
        }
    }
    let Ok(grown) = fs::read(directory.join("grown")) else {
        return assert_eq!(promised.grown_bytes, 0);
    };
    assert!(grown.len() as u64 >= promised.grown_bytes, "{} of the file that grows", grown.len());
    let mut expected: Vec<u8> = Vec::new();
    for number in 0.. {
        if expected.len() >= grown.len() {
            break;
        }
        expected.extend(contents(writer, 2 + number % 4));
    }
    assert!(expected.starts_with(&grown), "the file that grows has what nobody wrote");
}

#[test]
fn synced_data_outlasts_crashes() {
    crash_and_look(&[]);
}

#[test]
fn synced_chunks_outlast_crashes() {
    crash_and_look(&["--chunk-size", "16K"]);
}

fn crash_and_look(options: &[&str]) {
    let mounted = Mounted::created_with(options);
    mounted.mount(&[]);
    let mut random = StdRng::seed_from_u64(1);
    for round in 0..ROUNDS {
        let directory = |writer| mounted.path(format!("round{round}-{writer}"));
        for writer in 0..WRITERS {
            fs::create_dir(directory(writer)).unwrap();
        }
        sync(&mounted.on).unwrap();
        let promised = std::thread::scope(|scope| {
            let writers = Vec::from_iter((0..WRITERS).map(|writer| {
                let directory = directory(writer);
                scope.spawn(move || {
                    let mut promised = Promised::default();
                    write(&directory, writer, &mut promised).unwrap_err();
                    promised
                })
            }));
            std::thread::sleep(Duration::from_millis(random.random_range(100..900)));
            mounted.crash();
            Vec::from_iter(writers.into_iter().map(|writer| writer.join().unwrap()))
        });
        mounted.mount(&[]);
        for (writer, promised) in (0..).zip(&promised) {
            assert_kept(&directory(writer), writer, promised, !options.is_empty());
        }
        mounted.assert_sound();
        mounted.mount(&[]);
    }
}

#[test]
fn a_file_replaced_by_renaming_is_old_or_new_but_never_empty() {
    let mounted = Mounted::new();
    for round in 0..5 {
        let (old, new) = (mounted.path("file"), mounted.path("new"));
        fs::write(&old, "old").unwrap();
        sync(&old).unwrap();
        // Still open when it is renamed: its contents have to go first.
        let mut file = File::create(&new).unwrap();
        file.write_all(b"new").unwrap();
        fs::rename(&new, &old).unwrap();
        std::thread::sleep(Duration::from_millis(round * 60));
        mounted.crash();
        drop(file);
        mounted.mount(&[]);
        let found = fs::read_to_string(&old).unwrap();
        assert!(["old", "new"].contains(&found.as_str()), "{found:?}");
    }
    mounted.assert_sound();
}

#[test]
fn everything_is_on_the_disk_after_a_moment() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("directory")).unwrap();
    fs::write(mounted.path("directory/small"), "text").unwrap();
    fs::write(mounted.path("large"), vec![3; 100_000]).unwrap();
    // Ten times what the log may wait.
    std::thread::sleep(Duration::from_secs(1));
    mounted.crash();
    mounted.mount(&[]);
    assert_eq!(fs::read_to_string(mounted.path("directory/small")).unwrap(), "text");
    assert_eq!(fs::read(mounted.path("large")).unwrap(), vec![3; 100_000]);
    mounted.assert_sound();
}

#[test]
fn a_large_file_that_was_written_keeps_its_size_and_looks_changed() {
    let mounted = Mounted::new();
    let path = mounted.path("large");
    fs::write(&path, vec![1; 10_000]).unwrap();
    shell(&mounted.on, "touch -d 2001-01-01 large");
    sync(&path).unwrap();
    let before = fs::metadata(&path).unwrap().mtime();
    let file = File::options().append(true).open(&path).unwrap();
    sync(&mounted.on).unwrap();
    (&file).write_all(&[2; 10_000]).unwrap();
    mounted.crash();
    mounted.mount(&[]);
    let after = fs::metadata(&path).unwrap();
    assert_eq!(after.len(), 20_000);
    assert!(after.mtime() > before, "{} {before}", after.mtime());
    assert!(after.ctime() > before);
    mounted.assert_sound();
}

#[test]
fn sizes_that_a_crash_left_behind_are_not_believed_for_long() {
    let mounted = Mounted::new();
    let path = mounted.path("large");
    fs::write(&path, vec![1; 5000]).unwrap();
    // Once it is unmounted, no record says any more that the file is being written.
    mounted.unmount();
    mounted.mount(&[]);
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(&vec![2; 100_000]).unwrap();
    mounted.crash();
    drop(file);
    mounted.mount(&["--no-passthrough"]);
    // The kernel remembers what it is told now.
    assert!(fs::metadata(&path).unwrap().len() >= 5000);
    wait_until("the size is right", || fs::metadata(&path).unwrap().len() == 105_000);
    assert_eq!(fs::read(&path).unwrap().len(), 105_000);
    mounted.assert_sound();
}

#[test]
fn synced_data_is_found_after_a_crash_without_a_mount() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("directory")).unwrap();
    fs::write(mounted.path("directory/large"), vec![1; 10_000]).unwrap();
    fs::write(mounted.path("directory/small"), "1").unwrap();
    sync(&mounted.path("directory/small")).unwrap();
    sync(&mounted.path("directory/large")).unwrap();
    mounted.crash();
    mounted.let_go();
    let found = ns("find").arg(&mounted.namespace).args(["-printf", "%P %s\n"]).output().unwrap();
    let mut found = Vec::from_iter(success(&found).lines().map(str::to_owned));
    found.sort_unstable();
    assert_eq!(found[2..], ["directory/large 10000", "directory/small 1"], "{found:?}");
    assert_eq!(found.len(), 4);
    mounted.mount(&[]);
    mounted.assert_sound();
}

#[test]
fn files_without_a_name_vanish_in_a_crash() {
    let mounted = Mounted::new();
    let open = |name: &str, size: usize| {
        let path = mounted.path(name);
        fs::write(&path, vec![1; size]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file
    };
    let files = [open("small", 10), open("large", 10_000)];
    sync(&mounted.on).unwrap();
    let mut byte = [0];
    files.iter().for_each(|file| file.read_exact_at(&mut byte, 5).unwrap());
    assert_eq!(mounted.objects(), 1);
    mounted.crash();
    drop(files);
    mounted.mount(&[]);
    assert_eq!(fs::read_dir(&mounted.on).unwrap().count(), 0);
    wait_until("its object has gone", || mounted.objects() == 0);
    mounted.assert_sound();
}

#[test]
fn objects_of_deleted_files_do_not_pile_up() {
    let mounted = Mounted::new();
    for round in 0..3 {
        shell(&mounted.on, "for i in {1..100}; do head -c 5000 /dev/zero > $i; done");
        shell(&mounted.on, "rm {11..100}; mv 1 2; mv 3 new; ln -f 4 linked; rm 4; : > 5");
        if round == 1 {
            mounted.crash();
            mounted.mount(&[]);
        }
    }
    let large = |count| shell(&mounted.on, "find . -size +4096c | wc -l").trim() == count;
    // 2, new, linked and 5 to 10, of which 5 is empty and has its object still.
    assert!(large("8"), "{}", shell(&mounted.on, "ls -l"));
    // Also of files that were made so shortly before the crash that it took them away.
    wait_until("objects have gone", || mounted.objects() == 9);
    mounted.unmount();
    success(&ns("check").arg(&mounted.namespace).output().unwrap());
    assert_eq!(mounted.objects(), 9);
    mounted.mount(&[]);
    shell(&mounted.on, "rm -r *");
    mounted.unmount();
    assert_eq!(mounted.objects(), 0);
}
