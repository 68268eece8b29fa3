//! Storage of servers that is full: what is refused, what still works, and what frees space.

use crate::common::{ns, success, wait_until};
use crate::site::Site;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Makes a file that is in storage, or fails.
fn keep(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes files until storage is full, and returns how many.
fn fill(make: impl Fn(u32) -> io::Result<()>) -> u32 {
    for number in 0..50_000 {
        if let Err(error) = make(number) {
            assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{error}");
            return number;
        }
    }
    panic!("storage was never full");
}

/// Reads waited for the disk. What was removed was still there until somebody made room.
#[test]
fn full_storage_is_read_and_removing_files_frees_it() {
    let mut site = Site::on_disk(2, "96m");
    let on = site.mount("on", &[]);
    fs::write(on.join("small"), "text").unwrap();
    let bytes = Vec::from_iter((0..4 << 20).map(|at: u32| (at % 251) as u8 + 1));
    let large = fill(|number| keep(&on.join(format!("large{number}")), &bytes));
    assert!(large > 10, "{large}");
    let parts = fill(|number| keep(&on.join(format!("part{number}")), &bytes[..64 << 10]));
    let names =
        fill(|number| File::create(on.join(format!("{number}{}", "x".repeat(200)))).map(drop));
    let space = rustix::fs::statvfs(&on).unwrap();
    assert!(space.f_bavail * space.f_frsize < 1 << 20);
    // For longer than a lease, and than changes stay in memory.
    std::thread::sleep(Duration::from_secs(7));
    let begin = Instant::now();
    let listed = fs::read_dir(&on).unwrap().count() as u32;
    // Files that did not fit have names.
    assert!(listed >= 1 + large + parts + names, "{listed}");
    assert_eq!(fs::read_to_string(on.join("small")).unwrap(), "text");
    assert_eq!(fs::read(on.join("large0")).unwrap(), bytes);
    let other = site.mount("other", &[]);
    assert_eq!(fs::read_dir(&other).unwrap().count() as u32, listed);
    let mut find = ns("find");
    find.arg(&site.namespace).args(["-name", "small", "-size", "-10c", "-printf", "%f %s"]);
    assert_eq!(success(&find.output().unwrap()), "small 4");
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    for number in 0..large - 2 {
        fs::remove_file(on.join(format!("large{number}"))).unwrap();
    }
    wait_until("removed files have left storage", || keep(&other.join("new"), &bytes).is_ok());
    assert_eq!(fs::read(on.join("new")).unwrap(), bytes);
    assert_eq!(fs::read(on.join(format!("large{}", large - 1))).unwrap(), bytes);
    assert_eq!(success(&ns("check").arg(site.url()).output().unwrap()), "no faults\n");
}

/// Chunks that were replaced took the room of new ones until the next look at them, some 10 s later.
#[test]
fn a_file_is_overwritten_more_often_than_storage_has_room() {
    let mut site = Site::on_disk(2, "96m");
    let on = site.mount("on", &[]);
    let path = on.join("file");
    for round in 0..80_u32 {
        let bytes = Vec::from_iter((0..4 << 20).map(|at: u32| ((at + round) % 251) as u8 + 1));
        keep(&path, &bytes).unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    let last = Vec::from_iter((0..4 << 20).map(|at: u32| ((at + 79) % 251) as u8 + 1));
    assert!(fs::read(&path).unwrap() == last);
}

/// Logs of removals took the room of the flushes that would have freed them. Then nothing was ever
/// freed, and no process could open its tables again.
#[test]
fn storage_that_small_files_have_filled_is_emptied_and_served_again() {
    let mut site = Site::on_disk(2, "32m");
    let on = site.mount("on", &[]);
    // Contents that no compression makes smaller.
    let bytes = |number: u32| {
        let mut state = u64::from(number) << 1 | 1;
        Vec::from_iter((0..4000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        }))
    };
    let count = fill(|number| keep(&on.join(number.to_string()), &bytes(number)));
    assert!(count > 1000, "{count}");
    assert_eq!(fs::read(on.join("7")).unwrap(), bytes(7));
    // The last one may have a name without contents.
    for entry in fs::read_dir(&on).unwrap() {
        let file = entry.unwrap().path();
        wait_until("a file can be removed", || fs::remove_file(&file).is_ok());
    }
    success(&site.unmount("on"));
    site.stop();
    site.start();
    let again = site.mount("again", &[]);
    assert_eq!(fs::read_dir(&again).unwrap().count(), 0);
    wait_until("removed files have left storage", || {
        (0..100)
            .all(|number: u32| keep(&again.join(format!("new{number}")), &bytes(number)).is_ok())
    });
    assert_eq!(success(&ns("check").arg(site.url()).output().unwrap()), "no faults\n");
}
