//! Quotas of a namespace on several servers: set through the servers, and through a mount.

use crate::common::{ns, shell, success, wait_until};
use crate::site::Site;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

const ADA: u32 = 1000;

fn quota(place: &str, words: &[&str]) -> Output {
    ns("quota").arg(place).args(words).output().unwrap()
}

/// Runs a line as a user in a directory.
fn as_ada(on: &std::path::Path, line: &str) -> Output {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(on).uid(ADA).gid(ADA);
    command.output().unwrap()
}

#[test]
fn limits_hold_on_all_mounts() {
    let mut site = Site::new(4, 2);
    let [one, other] = ["one", "other"].map(|name| site.mount(name, &[]));
    fs::set_permissions(&one, fs::Permissions::from_mode(0o777)).unwrap();
    let url = site.url();
    success(&quota(&url, &["--user", "1000", "--inodes", "20"]));
    let line = "for i in $(seq 40); do touch $1$i 2>/dev/null && echo made; done | wc -l";
    let count = |on, prefix: &str| {
        let output = as_ada(on, &line.replace("$1", prefix));
        String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap()
    };
    let (here, there) = std::thread::scope(|scope| {
        let there = scope.spawn(|| count(&other, "b"));
        (count(&one, "a"), there.join().unwrap())
    });
    assert_eq!(here + there, 20);
    let refused = as_ada(&other, "touch beyond");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("quota exceeded"), "{refused:?}");
    let told = success(&quota(&url, &["--user", "1000", "--json"]));
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told[0]["inodes"], 20, "{told}");
    // Through a mount, and by the place.
    let on = one.to_str().unwrap();
    success(&quota(on, &["--user", "1000", "--inodes", "21"]));
    success(&as_ada(&other, "touch beyond"));
    let place = site.namespace.to_str().unwrap().to_owned();
    success(&quota(&place, &["--user", "1000", "--remove"]));
    success(&as_ada(&one, "touch more"));
    // A write without room is reported when the file is closed, at the latest.
    success(&quota(&place, &["--user", "1000", "--bytes", "1M"]));
    fs::write(one.join("large"), b"").unwrap();
    std::os::unix::fs::chown(one.join("large"), Some(ADA), Some(ADA)).unwrap();
    let written = as_ada(&one, "dd if=/dev/urandom of=large bs=64k count=64 conv=fsync");
    assert!(!written.status.success());
    assert!(String::from_utf8_lossy(&written.stderr).contains("quota exceeded"), "{written:?}");
    success(&as_ada(
        &other,
        "head -c 500000 /dev/urandom > fits && head -c 9 /dev/urandom >> fits",
    ));
    // Zeros are holes, which take nothing.
    success(&as_ada(&one, "dd if=/dev/zero of=zeros bs=64k count=64 conv=fsync"));
    assert_eq!(shell(&one, "du -k zeros").split_whitespace().next(), Some("0"));
}

#[test]
fn trees_have_limits_and_df_shows_them() {
    let mut site = Site::new(3, 1);
    let on = site.mount("on", &[]);
    shell(&on, "mkdir -p tree/below && touch tree/below/file");
    let url = site.url();
    success(&quota(&url, &["--tree", "/tree", "--inodes", "5", "--bytes", "1G"]));
    let shown = shell(&on, "df --output=itotal,iused tree/below | tail -1");
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ["5", "3"]);
    let mut file = fs::File::create(on.join("outside")).unwrap();
    file.write_all(b"x").unwrap();
    drop(file);
    let moved = fs::rename(on.join("outside"), on.join("tree/x")).unwrap_err();
    assert_eq!(moved.raw_os_error(), Some(rustix::io::Errno::XDEV.raw_os_error()));
    let made =
        shell(&on, "cd tree; for i in 1 2 3; do setpriv --reuid 0 touch $i; done; ls | wc -l");
    // Root is not bound.
    assert_eq!(made.trim(), "4");
    success(&quota(&url, &["--tree", "/tree", "--remove"]));
}

/// The kernel and the client let removed files go later. They counted until then.
#[test]
fn removed_files_leave_room_at_once() {
    let mut site = Site::new(2, 1);
    let on = site.mount("on", &[]);
    shell(&on, "mkdir tree && chmod 777 tree");
    let url = site.url();
    success(&quota(&url, &["--tree", "/tree", "--inodes", "12"]));
    // Servers that have just begun keep removed files: clients may hold them.
    shell(&on, "cd tree; echo x > first; rm first");
    wait_until("servers forget removed files", || {
        let told = success(&quota(&url, &["--tree", "/tree", "--json"]));
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        told[0]["inodes"] == 1
    });
    for round in 0..5 {
        let line = "cd tree; for i in $(seq 20); do echo x > $i || break; done; ls | wc -l; rm *; echo x > a && rm a";
        let output = as_ada(&on, &format!("{line} && echo {round}"));
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text, format!("11\n{round}\n"), "{output:?}");
    }
}
