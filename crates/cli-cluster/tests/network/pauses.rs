//! Lengths of the pauses of clients when a process dies, and when it gives its servers away.

use crate::common::{Process, success};
use crate::machines::address;
use crate::model::Model;
use crate::user::{Outcome, User};
use crate::{Site, make_shared, user};
use canopy_namespace::inode::file_type;
use canopy_namespace::{FileId, Reply};
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The client's machine.
const CLIENT: usize = 2;

/// Creates files one after the other until something has happened, and then some. Returns the longest
/// time that one took.
fn longest_create(user: &User, directories: &[FileId], has_happened: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    let (mut number, mut end) = (0u64, None);
    loop {
        let directory = directories[number as usize % directories.len()];
        let begin = Instant::now();
        let name = format!("file{number}");
        match user.create(&(directory, name.clone()), file_type::REGULAR | 0o644) {
            Outcome::Done(Reply::Inode(_)) => {}
            other => panic!("{name}: {}", other.said()),
        }
        longest = longest.max(begin.elapsed());
        number += 1;
        if has_happened.load(Ordering::Relaxed) {
            let end = *end.get_or_insert_with(|| Instant::now() + Duration::from_millis(1500));
            if Instant::now() > end {
                return longest;
            }
        }
    }
}

/// Returns the longest time of a creation while something happens to the first of two processes.
fn pause_while(test: &str, happens: impl FnOnce(&Site, &[Process])) -> Duration {
    let site = Site::new(test, 3);
    let processes = [site.start(0), site.start(1)];
    let has_happened = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (site, has_happened) = (&site, &has_happened);
        let client = scope.spawn(move || {
            let peers = site.connect(CLIENT, 2);
            let model = Arc::new(Mutex::new(Model::default()));
            let user = user(peers, &model, 1, &[]);
            let directories = make_shared(&user, &model);
            longest_create(&user, &directories, has_happened)
        });
        std::thread::sleep(Duration::from_millis(1500));
        happens(site, &processes);
        has_happened.store(true, Ordering::Relaxed);
        client.join().expect("a client")
    })
}

#[test]
fn a_process_that_is_killed_is_replaced_within_seconds() {
    let pause = pause_while("kill", |_, processes| processes[0].signal(Signal::SIGKILL));
    println!("kill -9: {} ms", pause.as_millis());
    // The lease of 1 s, and 1 s; this machine may be busy.
    assert!(pause < Duration::from_secs(5), "{pause:?}");
}

#[test]
fn a_process_that_is_drained_makes_clients_wait_for_a_moment() {
    let pause = pause_while("drain", |site, _| {
        success(&site.place.run(&["drain", &address(0), "@"]));
    });
    println!("drain: {} ms", pause.as_millis());
    assert!(pause < Duration::from_secs(2), "{pause:?}");
}
