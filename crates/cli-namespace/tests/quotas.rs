//! `canopy ns quota`, and what limits do to programs on a mount.

mod common;

use common::{Mounted, NOBODY, as_user, failure, has, ns, shell, success};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

/// Runs a line of the shell as the user.
fn as_nobody(line: &str) -> Output {
    as_user(NOBODY, "sh").args(["-c", line]).output().unwrap()
}

fn quota(place: &Path, arguments: &[&str]) -> String {
    success(&ns("quota").arg(place).args(arguments).output().unwrap())
}

/// The line of an account, with its cells.
#[track_caller]
fn line(told: &str, account: &str) -> Vec<String> {
    let line = told.lines().find_map(|line| line.strip_prefix(account));
    let line = line.unwrap_or_else(|| panic!("{account} is not in {told}"));
    line.split_whitespace().map(str::to_owned).collect()
}

/// A mount that every user may write to.
fn mounted() -> Mounted {
    let mounted = Mounted::new();
    fs::set_permissions(&mounted.on, Permissions::from_mode(0o1777)).unwrap();
    mounted
}

#[test]
fn limits_are_set_shown_and_kept_while_files_are_in_use() {
    let mounted = mounted();
    let on = mounted.on.display();
    success(&as_nobody(&format!("head -c 100000 /dev/zero > {on}/large; echo 1 > {on}/small")));
    let told = quota(&mounted.on, &["--user", "65534", "--bytes", "100K:200K", "--inodes", "4"]);
    let expected = ["101K", "100K", "200K", "7d", "2", "-", "4", "-"];
    assert_eq!(line(&told, "user nobody"), expected, "{told}");
    // What is written through a descriptor of before, too.
    let refused = as_nobody(&format!("head -c 300000 /dev/zero >> {on}/large"));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("Disk quota exceeded"), "{said}");
    assert!(fs::metadata(mounted.path("large")).unwrap().len() < 200 << 10);
    success(&as_nobody(&format!("truncate -s 0 {on}/large; mkdir {on}/3; ln -s x {on}/4")));
    let refused = as_nobody(&format!("echo > {on}/5"));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("Disk quota exceeded"));
    let json = quota(&mounted.on, &["--json"]);
    assert!(json.contains(r#""id":65534,"inodes":4,"inodes_grace_left_s":null"#), "{json}");
    // Root may do anything, and others may.
    fs::write(mounted.path("given"), "x").unwrap();
    chown(mounted.path("given"), Some(NOBODY), None).unwrap();
    success(&as_user(1, "touch").arg(mounted.path("of another")).output().unwrap());
    assert_eq!(success(&ns("check").arg(&mounted.on).output().unwrap()), "no faults\n");
    fs::File::open(&mounted.on).unwrap().sync_all().unwrap();
    // All of it is on the disk after 100 ms.
    std::thread::sleep(std::time::Duration::from_millis(500));
    mounted.crash();
    mounted.mount(&[]);
    let told = quota(&mounted.on, &["--user", "nobody"]);
    assert_eq!(line(&told, "user nobody")[4..], ["5", "-", "4", "-"], "{told}");
    assert_eq!(told.lines().count(), 2);
    quota(&mounted.on, &["--user", "nobody", "--grace", "12h"]);
    quota(&mounted.on, &["--user", "nobody", "--remove"]);
    success(&as_nobody(&format!("echo > {on}/5; head -c 300000 /dev/zero > {on}/large")));
    mounted.assert_sound();
}

#[test]
fn large_files_that_were_passed_through_are_bounded_once_they_are_opened_anew() {
    let mounted = mounted();
    let on = mounted.on.display();
    success(&as_nobody(&format!("head -c 1000000 /dev/zero > {on}/large")));
    quota(&mounted.on, &["--group", "65534", "--bytes", "1200K"]);
    let overwrite = |bytes| {
        as_nobody(&format!("head -c {bytes} /dev/urandom | dd of={on}/large conv=notrunc bs=64K"))
    };
    success(&overwrite(1_000_000));
    let refused = String::from_utf8(overwrite(2_000_000).stderr).unwrap();
    assert!(refused.contains("Disk quota exceeded"), "{refused}");
    let told = quota(&mounted.on, &["--json"]);
    let of_group = told.split("},{").find(|one| one.contains(r#""kind":"group","name":"nogroup""#));
    let bytes = of_group.unwrap_or_else(|| panic!("{told}")).split(r#""bytes":"#).nth(1).unwrap();
    let bytes: u64 = bytes.split(',').next().unwrap().parse().unwrap();
    assert!(bytes > 1_000_000 && bytes <= 1200 << 10, "{bytes}");
    // Nor does a map write more: what it may not have is told when it is written back.
    let map = "import mmap, os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 20)
m = mmap.mmap(fd, 1 << 20)
m[0:1 << 20] = b'x' * (1 << 20)
try:
    m.flush(); os.fsync(fd); print('all of it')
except OSError as e:
    print(e.strerror)";
    if has("python3") {
        let path = mounted.path("mapped");
        let told = Command::new("python3").args(["-c", map]).arg(path).output().unwrap();
        assert!(!success(&told).contains("all of it"));
    }
    mounted.assert_sound();
}

#[test]
fn trees_have_limits_and_df_shows_them() {
    let mounted = mounted();
    shell(&mounted.on, "mkdir -p project/run other; chmod -R 777 project other; echo 1 > other/1");
    shell(&mounted.on, "head -c 5000 /dev/zero > project/run/5000");
    let told = quota(&mounted.on, &["--tree", "project", "--bytes", "1M", "--inodes", "10"]);
    assert_eq!(line(&told, "tree /project"), ["8.0K", "-", "1.0M", "-", "3", "-", "10", "-"]);
    let df = shell(&mounted.on, "df --output=size,itotal,iused project/run | tail -1");
    assert_eq!(Vec::from_iter(df.split_whitespace()), ["1024", "10", "3"]);
    let whole = shell(&mounted.on, "df --output=itotal other | tail -1");
    assert_ne!(whole.trim(), "10");
    let on = mounted.on.display();
    let refused = as_nobody(&format!("for i in $(seq 20); do echo > {on}/project/$i; done"));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("Disk quota exceeded"));
    assert_eq!(fs::read_dir(mounted.path("project")).unwrap().count(), 8);
    let moved = fs::rename(mounted.path("other/1"), mounted.path("project/1")).unwrap_err();
    assert_eq!(moved.kind(), std::io::ErrorKind::CrossesDevices);
    let linked = fs::hard_link(mounted.path("other/1"), mounted.path("project/x")).unwrap_err();
    assert_eq!(linked.kind(), std::io::ErrorKind::CrossesDevices);
    // mv copies then, as root may.
    shell(&mounted.on, "mv other/1 project/one");
    mounted.unmount();
    let told = quota(&mounted.namespace, &["--tree", "/project/", "--inodes", "5:"]);
    assert_eq!(line(&told, "tree /project")[4..], ["11", "5", "-", "7d"], "{told}");
    let removed = quota(&mounted.namespace, &["--tree", "/project", "--remove"]);
    assert_eq!(removed, "");
    assert!(!quota(&mounted.namespace, &[]).contains("tree"));
    mounted.mount(&[]);
    shell(&mounted.on, "mv other/../project/one other");
    mounted.assert_sound();
}

#[test]
fn users_see_their_own_and_set_nothing() {
    let mounted = mounted();
    let own = || as_user(NOBODY, common::CANOPY).args(["ns", "quota"]).arg(&mounted.on).output();
    // Nothing is counted for them yet.
    assert_eq!(success(&own().unwrap()).lines().count(), 1);
    fs::write(mounted.path("of root"), "x").unwrap();
    quota(&mounted.on, &["--user", "1", "--inodes", "10"]);
    success(&as_nobody(&format!("echo > {}/own", mounted.on.display())));
    let told = success(&own().unwrap());
    assert_eq!(line(&told, "user nobody"), ["512", "-", "-", "-", "1", "-", "-", "-"]);
    assert_eq!(line(&told, "group nogroup")[0], "512");
    assert_eq!(told.lines().count(), 3, "{told}");
    let mut set = as_user(NOBODY, common::CANOPY);
    set.args(["ns", "quota"]).arg(&mounted.on).args(["--user", "65534", "--bytes", "1G"]);
    assert!(failure(&set.output().unwrap()).contains("only root and the owner"));
    for (name, value) in [("user.canopy.quota", "{}"), ("user.canopy.quota.user.0", "1")] {
        for uid in [NOBODY, 0] {
            let mut set = as_user(uid, "setfattr");
            set.args(["-n", name, "-v", value]).arg(&mounted.on);
            assert!(!set.output().unwrap().status.success(), "{name} {uid}");
        }
    }
    assert_eq!(fs::read_dir(&mounted.on).unwrap().count(), 2);
    mounted.assert_sound();
}

#[test]
fn wrong_requests_are_told() {
    let mounted = mounted();
    fs::write(mounted.path("file"), "x").unwrap();
    for (arguments, expected) in [
        (&["--user", "no such user", "--bytes", "1"][..], "no such user: no such user"),
        (&["--group", "no such group"], "no such group: no such group"),
        (&["--tree", "nowhere", "--bytes", "1"], "/nowhere: No such file"),
        (&["--tree", "file", "--bytes", "1"], "/file: not a directory"),
        (&["--tree", "../x"], "'..' is not understood"),
        (&["--user", "0", "--bytes", "5:4"], "the soft limit comes first"),
        (&["--user", "0", "--inodes", "many"], "--inodes: \"many\" is not a limit: write HARD"),
        (&["--user", "0", "--grace", "1y"], "write a number and s, m, h, d or w"),
    ] {
        let said = failure(&ns("quota").arg(&mounted.on).args(arguments).output().unwrap());
        assert!(said.contains(expected), "{said}");
    }
    let none = ns("quota").arg(&mounted.namespace).args(["--user", "4711"]).output().unwrap();
    assert!(none.status.success() && none.stdout.is_empty());
    assert!(String::from_utf8_lossy(&none.stderr).contains("nothing is counted there"));
    for arguments in [&["--bytes", "1"][..], &["--user", "0", "--group", "0"]] {
        assert_eq!(
            ns("quota").arg(&mounted.on).args(arguments).output().unwrap().status.code(),
            Some(2)
        );
    }
}

#[test]
fn a_tree_ends_with_its_directory() {
    // A tree whose directory was removed was listed as "tree 1" for ever, and nothing removed it.
    let mounted = mounted();
    shell(
        &mounted.on,
        "mkdir job other keep; echo 1 > job/file; mkdir job/sub; echo 2 > job/sub/file",
    );
    for tree in ["/job", "/other", "/keep"] {
        quota(&mounted.on, &["--tree", tree, "--inodes", "10"]);
    }
    shell(&mounted.on, "rm -r job");
    let told = quota(&mounted.on, &[]);
    assert!(!told.contains("tree 1") && !told.contains("/job"), "{told}");
    assert!(told.contains("tree /other") && told.contains("tree /keep"), "{told}");
    // A file that was moved out still counts to it.
    shell(&mounted.on, "echo 3 > other/moved; mv other/moved .; rmdir other");
    let told = quota(&mounted.on, &[]);
    assert_eq!(line(&told, "tree 2 (its directory is gone)")[3..5], ["-", "1"], "{told}");
    assert!(quota(&mounted.on, &["--json"]).contains(r#""gone":true"#));
    let run = |words: &[&str]| ns("quota").arg(&mounted.on).args(words).output().unwrap();
    let said = failure(&run(&["--tree", "2", "--inodes", "5"]));
    assert!(said.contains("by number, it can be removed"), "{said}");
    let said = failure(&run(&["--tree", "77", "--remove"]));
    assert!(said.contains("there is no tree 77"), "{said}");
    let said = failure(&run(&["--tree", "/gone", "--remove"]));
    assert!(said.contains("/gone"), "{said}");
    quota(&mounted.on, &["--tree", "2", "--remove"]);
    let told = quota(&mounted.on, &[]);
    assert!(!told.contains("tree 2"), "{told}");
    // The last file that was moved out ends it, too.
    shell(&mounted.on, "echo 4 > keep/moved; mv keep/moved moved2; rmdir keep");
    assert!(quota(&mounted.on, &[]).contains("tree 3 (its directory is gone)"));
    shell(&mounted.on, "rm moved2");
    assert!(!quota(&mounted.on, &[]).contains("tree 3"));
    // By its number, without a mount, one that is there.
    shell(&mounted.on, "mkdir -p again/sub");
    quota(&mounted.on, &["--tree", "/again", "--inodes", "10"]);
    mounted.unmount();
    let told = quota(&mounted.namespace, &["--json"]);
    let number = told.split(r#""kind":"tree""#).next().unwrap();
    let number = number.rsplit(r#""id":"#).next().unwrap().split(',').next().unwrap();
    quota(&mounted.namespace, &["--tree", number, "--remove"]);
    assert!(!quota(&mounted.namespace, &[]).contains("tree"));
    mounted.mount(&[]);
    mounted.assert_sound();
}
