//! The work of one user on a mount costs others neither time nor memory, however many uids that
//! user has. Needs root and /dev/fuse.

mod common;

use common::{Mounted, as_user, success};
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Runs in a thread in which `/etc/subuid` has other contents, which nobody else sees.
fn with_subordinate_uids(text: &str, run: impl FnOnce() + Send) {
    let etc = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").args(["-a", "/etc/."]).arg(etc.path()).status().unwrap();
    assert!(copied.success());
    fs::write(etc.path().join("subuid"), text).unwrap();
    let private = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        // Mounts of other tests would stay in use here. Those below others cannot be reached.
        let script = "mount --make-rprivate / && mount --bind \"$0\" /etc && \
                      awk '$3 ~ /^fuse/ { print $2 }' /proc/self/mounts | while read -r at; do \
                      umount -l \"$at\" || ! mountpoint -q \"$at\" || exit 1; done";
        let mut command = Command::new("sh");
        assert!(command.args(["-c", script]).arg(etc.path()).status().unwrap().success());
        run();
    };
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(private).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Makes files whose paths are almost as long as they can be.
fn long_paths(mounted: &Mounted, count: usize) -> PathBuf {
    let deep = mounted.path(vec!["x".repeat(250); 14].join("/"));
    fs::create_dir_all(&deep).unwrap();
    for number in 0..count {
        fs::write(deep.join(format!("file{number}")), "").unwrap();
    }
    deep
}

/// 60 uids of one user with regular expressions over long paths had another wait for 28 s.
#[test]
fn a_query_does_not_wait_for_those_of_all_uids_of_another_user() {
    with_subordinate_uids("2001:100000:65536\n", || {
        let mounted = Mounted::new();
        long_paths(&mounted, 1500);
        fs::create_dir(mounted.path("small")).unwrap();
        fs::write(mounted.path("small/mine"), "").unwrap();
        // Each has to go through all paths, many times.
        let query = mounted.path("[path=~\"(x[^y]{1,90}){3}z\"]");
        let mut others: Vec<Child> = (100_000..100_060)
            .map(|uid| {
                let mut command = as_user(uid, "ls");
                command.arg(&query).stdout(Stdio::null()).stderr(Stdio::null());
                command.spawn().unwrap()
            })
            .collect();
        let own = as_user(2002, "ls").arg(mounted.path("small/[true]")).output().unwrap();
        let is_over = |child: &mut Child| child.try_wait().unwrap().is_some();
        let before = others.iter_mut().map(is_over).filter(|is_over| *is_over).count();
        assert_eq!(success(&own), "mine\n");
        for child in &mut others {
            child.kill().unwrap();
        }
        mounted.let_go();
        for mut child in others {
            child.wait().unwrap();
        }
        // It was the last to ask.
        assert!(before < 50, "{before} others were first");
    });
}

/// Each result had its whole path, for every uid that had a query open.
#[test]
fn open_results_take_no_more_than_names() {
    let mounted = Mounted::new();
    long_paths(&mounted, 3000);
    let memory_kb = || {
        let status = format!("/proc/{}/status", mounted.processes()[0]);
        let text = fs::read_to_string(status).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let before = memory_kb();
    let open: Vec<Child> = (3000..3020)
        .map(|uid| {
            let mut command = as_user(uid, "sh");
            command.args(["-c", "exec 3< \"$0\"; echo; read line"]).arg(mounted.path("[true]"));
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            child
        })
        .collect();
    let taken_kb = memory_kb().saturating_sub(before);
    for mut child in open {
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(child.wait().unwrap().success());
    }
    // 20 times 3,000 paths of 3.5 kB would be 210 MB.
    assert!(taken_kb < 64 << 10, "{taken_kb} kB");
    mounted.assert_sound();
}

/// The kernel remembers a link for longer than what a query found is kept.
#[test]
fn links_lead_where_they_did_when_results_are_gone() {
    use rustix::fs::{Mode, OFlags};
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("a")).unwrap();
    fs::write(mounted.path("a/file"), "").unwrap();
    fs::write(mounted.path("a/other"), "").unwrap();
    let link = |name: &str| {
        let path = mounted.path(format!("[type=f]/{name}"));
        rustix::fs::open(&path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap()
    };
    let (one, other) = (link("file"), link("other"));
    fs::rename(mounted.path("a/other"), mounted.path("other")).unwrap();
    // Other results take the place of these.
    for number in 0..40 {
        let count = fs::read_dir(mounted.path(format!("[size>{number}]"))).unwrap().count();
        assert_eq!(count, 0);
    }
    let target = |link: &rustix::fd::OwnedFd| rustix::fs::readlinkat(link, "", Vec::new());
    assert_eq!(target(&one).unwrap().as_bytes(), b"../a/file");
    assert_eq!(target(&other), Err(rustix::io::Errno::STALE));
    drop((one, other));
    mounted.assert_sound();
}
