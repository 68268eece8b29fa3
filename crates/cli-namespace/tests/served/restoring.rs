//! A namespace on servers becomes what it was in a snapshot, whenever that is interrupted.

use crate::common::{ns, shell, success, wait_until};
use crate::site::Site;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// Prints all there is to know of a tree.
const ALL: &str = "find . -printf '%p %y %m %U %G %s %n %T@ %C@ %i %l\\n' | sort; \
    find . | sort | xargs -d'\\n' getfattr -hd -m '.*'";

const CONTENTS: &str = "find . -type f | sort | xargs -d'\\n' sha256sum";

/// Makes a tree on several servers: directories that are split, other names, attributes, chunks.
const MADE: &str = "umask 022; for d in a b c d; do mkdir $d; \
    for i in $(seq 40); do echo $d$i > $d/$i; done; done; \
    mkdir a/sub; mv b/7 a/sub/moved; chown 1000 a/1* c; \
    for i in $(seq 6); do ln a/$i d/link$i; done; ln -s a/5 c/symbolic; \
    setfattr -n user.one -v two a/9; setfattr -n user.one -v two a; \
    for f in large1 large2 large3; do head -c 300000 /dev/urandom > $f; done; truncate -s 5M hole; \
    printf x | dd of=hole bs=1 seek=3000000 conv=notrunc status=none";

/// Changes much of it.
const CHANGED: &str = "for i in $(seq 1 2 40); do mv a/$i b/new$i; done; rm -r c; \
    mkdir c; for i in $(seq 60); do echo other > c/$i; done; mv d a/sub/d; mkdir d; \
    head -c 200000 /dev/urandom > large1; rm large2; printf yy >> large3; rm a/sub/d/link*; \
    chmod 700 b; chown 1000 b/*; for i in $(seq 6); do ln b/$i d/again$i; done; mv b/2 large4; \
    head -c 300000 /dev/urandom > new; rm hole; setfattr -x user.one a; mv a b/a";

fn snapshot(site: &Site, words: &[&str]) -> Output {
    let [verb, rest @ ..] = words else { panic!("no verb") };
    ns("snapshot").arg(verb).arg(&site.namespace).args(rest).output().unwrap()
}

fn all_of(on: &Path) -> String {
    [ALL, CONTENTS].map(|line| shell(on, line)).concat()
}

fn inodes(on: &Path) -> HashSet<u64> {
    let listed = shell(on, "find . -printf '%i\\n'");
    listed.lines().map(|line| line.parse().unwrap()).collect()
}

fn used(site: &Site) -> String {
    let told = ns("quota").arg(&site.namespace).args(["--user", "1000", "--json"]).output();
    success(&told.unwrap())
}

fn message(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_namespace_on_servers_becomes_what_it_was() {
    let mut site = Site::with(4, 2, &["--split-entries", "16", "--chunk-size", "64K"]);
    let one = site.mount("one", &[]);
    let limit = ["--user", "1000", "--inodes", "1000"];
    success(&ns("quota").arg(&site.namespace).args(limit).output().unwrap());
    shell(&one, MADE);
    success(&snapshot(&site, &["create", "then"]));
    let (then, used_then) = (all_of(&one), used(&site));
    let mut seen = inodes(&one);
    shell(&one, CHANGED);
    success(&site.cluster(&["add", "--servers", "2", "@"]));
    shell(&one, "mkdir e f g h; for d in e f g h; do touch $d/$(seq -s \" $d/\" 40); done");
    success(&snapshot(&site, &["create", "later"]));
    let later = all_of(&one);
    seen.extend(inodes(&one));
    shell(&one, "rm -r e b; mkdir i; touch i/$(seq -s ' i/' 40)");
    seen.extend(inodes(&one));
    let running = message(&snapshot(&site, &["restore", "then"]));
    let address = site.processes[0].address.clone();
    assert!(running.contains(&address) && running.contains("SIGTERM"), "{running}");
    site.stop();
    let missing = message(&snapshot(&site, &["restore", "never"]));
    assert!(missing.contains("has no snapshot never; it has later, then"), "{missing}");
    success(&snapshot(&site, &["restore", "then"]));
    for _ in 0..2 {
        site.start();
    }
    // A mount of before sees nothing of it, and changes nothing.
    let refused = |program: &str, name: &str| {
        let output = Command::new(program).arg(one.join(name)).output().unwrap();
        String::from_utf8_lossy(&output.stderr).contains("Stale file handle")
    };
    wait_until("the mount is refused", || refused("touch", "a/after"));
    assert!(refused("ls", "d"));
    let two = site.mount("two", &[]);
    assert_eq!(all_of(&two), then);
    assert_eq!(used(&site), used_then);
    assert_eq!(success(&site.cluster(&["check", "@"])), "no faults\n");
    // Snapshots stay, also those that were made since.
    assert!(later.ends_with(&shell(&two.join("[@later]"), CONTENTS)));
    // Later files have other numbers.
    shell(&two, "mkdir z; touch z/$(seq -s ' z/' 40)");
    assert!(inodes(&two.join("z")).is_disjoint(&seen));
    // Going forward is going back, too.
    success(&site.unmount("two"));
    site.stop();
    success(&snapshot(&site, &["restore", "later"]));
    site.start();
    let three = site.mount("three", &[]);
    assert_eq!(all_of(&three), later);
    assert_eq!(success(&site.cluster(&["check", "@"])), "no faults\n");
    for name in ["then", "later"] {
        success(&snapshot(&site, &["delete", name]));
    }
    success(&site.unmount("three"));
}

/// Kills `canopy ns snapshot restore` at random moments, and starts it again.
#[test]
fn a_restore_that_was_killed_is_finished_by_the_same_command() {
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut site = Site::with(6, 1, &["--split-entries", "16", "--chunk-size", "64K"]);
    let one = site.mount("one", &[]);
    shell(&one, MADE);
    success(&snapshot(&site, &["create", "then"]));
    let then = all_of(&one);
    success(&snapshot(&site, &["create", "other"]));
    shell(&one, CHANGED);
    success(&site.unmount("one"));
    site.stop();
    let restore = || {
        let mut command = ns("snapshot");
        command.arg("restore").arg(&site.namespace).arg("then");
        command
    };
    let restores = site.namespace.join("objects/cluster/restore");
    let (begun, done) = (restores.join("1"), restores.join("1-done"));
    let (mut kills, mut longest) = (0, Duration::from_millis(400));
    while !done.exists() {
        let mut child = restore().spawn().unwrap();
        std::thread::sleep(random.random_range(Duration::ZERO..longest));
        let _ = child.kill();
        child.wait().unwrap();
        kills += 1;
        if kills % 5 == 0 {
            longest *= 2;
        }
        if !begun.exists() || done.exists() {
            continue;
        }
        // Nobody uses what is half done.
        let words = ["start", "@", "--listen", "127.0.0.1:0", "--lease", "0.5"];
        let refusals = [
            site.cluster(&words),
            site.cluster(&["status", "@"]),
            site.cluster(&["check", "@"]),
            site.cluster(&["add", "--servers", "1", "@"]),
            ns("du").arg(&site.namespace).output().unwrap(),
            snapshot(&site, &["list"]),
        ];
        for refusal in &refusals {
            let refusal = message(refusal);
            assert!(refusal.contains("the restore of snapshot then has not ended"), "{refusal}");
        }
        let other = message(&snapshot(&site, &["restore", "other"]));
        assert!(other.contains("the restore of snapshot then has not ended"), "{other}");
    }
    println!("{kills} times");
    site.start();
    let two = site.mount("two", &[]);
    assert_eq!(all_of(&two), then);
    assert_eq!(success(&site.cluster(&["check", "@"])), "no faults\n");
    success(&site.unmount("two"));
}
