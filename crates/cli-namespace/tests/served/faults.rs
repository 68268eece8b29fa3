//! Processes that die below a mount, and mounts that die.

use crate::common::{failure, ns, shell, success, wait_until};
use crate::site::{Site, is_mounted};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn operations_wait_while_a_server_is_replaced() {
    let mut site = Site::with(4, 2, &["--split-entries", "64"]);
    let on = site.mount("on", &[]);
    fs::create_dir(on.join("d")).unwrap();
    let mut open = File::create(on.join("open")).unwrap();
    let unlinked = File::options().create_new(true).read(true).write(true).open(on.join("gone"));
    let unlinked = unlinked.unwrap();
    fs::remove_file(on.join("gone")).unwrap();
    let made = std::thread::scope(|scope| {
        let makers = Vec::from_iter((0..4).map(|maker| {
            let on = &on;
            scope.spawn(move || {
                let (begun, mut longest) = (Instant::now(), Duration::ZERO);
                let mut count = 0;
                while begun.elapsed() < Duration::from_secs(4) {
                    let one = Instant::now();
                    fs::write(on.join(format!("d/{maker}-{count}")), format!("{count}")).unwrap();
                    longest = longest.max(one.elapsed());
                    count += 1;
                }
                (count, longest)
            })
        }));
        std::thread::sleep(Duration::from_secs(1));
        let process = site.processes.remove(0);
        process.kill();
        Vec::from_iter(makers.into_iter().map(|maker| maker.join().unwrap()))
    });
    for (maker, (count, longest)) in made.iter().enumerate() {
        assert!(*longest < Duration::from_secs(20), "{longest:?}");
        for number in 0..*count {
            let read = fs::read_to_string(on.join(format!("d/{maker}-{number}"))).unwrap();
            assert_eq!(read, number.to_string());
        }
    }
    let all: usize = made.iter().map(|(count, _)| count).sum();
    assert_eq!(fs::read_dir(on.join("d")).unwrap().count(), all);
    // Open files are still open.
    open.write_all(b"text").unwrap();
    drop(open);
    assert_eq!(fs::read_to_string(on.join("open")).unwrap(), "text");
    unlinked.write_all_at(b"text", 0).unwrap();
    unlinked.sync_all().unwrap();
    drop(unlinked);
    success(&site.unmount("on"));
}

#[test]
fn a_mount_without_servers_waits_and_can_be_unmounted() {
    let mut site = Site::new(2, 1);
    let on = site.mount("on", &[]);
    let mut open = File::create(on.join("file")).unwrap();
    site.processes.remove(0).kill();
    let writer = std::thread::spawn(move || {
        open.write_all(b"text").unwrap();
        open.sync_all()
    });
    std::thread::sleep(Duration::from_secs(1));
    assert!(!writer.is_finished());
    // At another address: the map in the storage names it.
    site.start();
    writer.join().unwrap().unwrap();
    assert_eq!(fs::read_to_string(on.join("file")).unwrap(), "text");
    // Nothing waits to be sent, so no server is needed.
    site.processes.remove(0).kill();
    let begun = Instant::now();
    success(&site.unmount("on"));
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(!is_mounted(&on));
}

/// Programs waited for 80 s, whatever signals came.
#[test]
fn programs_that_wait_for_servers_can_be_ended() {
    let mut site = Site::new(2, 1);
    let on = site.mount("on", &[]);
    fs::write(on.join("file"), "text").unwrap();
    site.processes.remove(0).kill();
    for (program, name, signal) in [
        ("ls", ".", Signal::SIGINT),
        ("touch", "new", Signal::SIGTERM),
        ("mkdir", "made", Signal::SIGHUP),
        ("stat", "file", Signal::SIGKILL),
    ] {
        let mut waiting = Command::new(program);
        let mut waiting = waiting.arg(on.join(name)).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(700));
        assert!(waiting.try_wait().unwrap().is_none(), "{program}");
        let begun = Instant::now();
        kill(Pid::from_raw(waiting.id().cast_signed()), signal).unwrap();
        assert!(!waiting.wait().unwrap().success(), "{program}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{program}: {:?}", begun.elapsed());
    }
    site.start();
    assert_eq!(shell(&on, "cat file; ls"), "textfile\n");
    success(&site.unmount("on"));
}

/// A mount that stands still loses its locks to others. It once wrote over their bytes afterwards.
#[test]
fn a_mount_that_stood_still_writes_nothing_under_locks_that_it_has_lost() {
    let mut site = Site::new(2, 1);
    let (one, other) = (site.mount("one", &[]), site.mount("other", &[]));
    let names = ["synced", "closed", "unlocked", "cut"];
    let open = |on: &Path| {
        names.map(|name| File::options().read(true).write(true).open(on.join(name)).unwrap())
    };
    names.iter().for_each(|name| fs::write(one.join(name), "begin").unwrap());
    let (mine, others) = (open(&one), open(&other));
    for file in &mine {
        file.lock().unwrap();
        file.write_all_at(b"stale", 0).unwrap();
    }
    let process = Pid::from_raw(rustix_xattr(&one));
    kill(process, Signal::SIGSTOP).unwrap();
    for file in &others {
        file.lock().unwrap();
        file.write_all_at(b"newer", 0).unwrap();
        file.sync_all().unwrap();
        file.unlock().unwrap();
    }
    kill(process, Signal::SIGCONT).unwrap();
    // Neither does the kernel show what is dropped, nor takes another program the error away.
    let path = one.join("synced");
    wait_until("the kernel has forgotten it", || {
        File::open(&path).and_then(|mut file| file.read(&mut [0])).is_err()
    });
    assert!(mine.iter().all(|file| file.read_at(&mut [0], 0).is_err()));
    let [synced, closed, unlocked, cut] = mine;
    let errno = |done: std::io::Result<()>| done.err().and_then(|error| error.raw_os_error());
    let eio = Some(nix::libc::EIO);
    assert_eq!(errno(synced.sync_all()), eio);
    assert_eq!(nix::unistd::close(closed), Err(nix::errno::Errno::EIO));
    assert_eq!(errno(unlocked.unlock()), eio);
    assert_eq!(nix::unistd::close(unlocked), Err(nix::errno::Errno::EIO));
    assert_eq!(errno(cut.set_len(2)), eio);
    drop((synced, cut));
    for (name, on) in names.iter().flat_map(|name| [(name, &one), (name, &other)]) {
        assert_eq!(fs::read_to_string(on.join(name)).unwrap(), "newer", "{name}");
    }
    // Locks and files are usable again.
    for file in &open(&one) {
        file.lock().unwrap();
        file.write_all_at(b"again", 0).unwrap();
        file.unlock().unwrap();
    }
    for name in names {
        assert_eq!(fs::read_to_string(other.join(name)).unwrap(), "again", "{name}");
    }
}

#[test]
fn a_mount_that_was_killed_is_cleared() {
    let mut site = Site::new(2, 1);
    let (on, other) = (site.mount("on", &[]), site.mount("other", &[]));
    let mut kept = File::create(other.join("kept")).unwrap();
    kept.write_all(b"kept").unwrap();
    fs::write(on.join("synced"), "text").unwrap();
    let process = rustix_xattr(&on);
    kill(Pid::from_raw(process), Signal::SIGKILL).unwrap();
    wait_until("nobody answers", || fs::read_dir(&on).is_err());
    let again = ns("mount").arg(site.url()).arg(&on).output().unwrap();
    assert!(failure(&again).contains("was killed; first unmount it"));
    success(&site.unmount("on"));
    assert!(!is_mounted(&on));
    site.mount("on", &[]);
    assert_eq!(shell(&on, "cat synced"), "text");
    drop(kept);
    assert_eq!(fs::read_to_string(on.join("kept")).unwrap(), "kept");
    for on in ["on", "other"] {
        success(&site.unmount(on));
    }
}

/// The process that answers for a mount.
fn rustix_xattr(on: &std::path::Path) -> i32 {
    let mut value = [0; 32];
    let length = rustix::fs::getxattr(on, "system.canopy.process", &mut value[..]).unwrap();
    std::str::from_utf8(&value[..length]).unwrap().parse().unwrap()
}
