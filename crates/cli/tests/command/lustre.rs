//! `canopy watch --lustre`: whatever happens in a tree, to the records that tell of it and to the
//! daemon, the index becomes what a scan would make, for every user, and no record is cleared from a
//! log before the index has it. Needs root.

#[path = "../../../watch/tests/model/lustre.rs"]
mod cluster;

use crate::common;
use crate::watch::{Changes, Daemon, make_tree, status, wait_for_equality, wait_until};
use cluster::{Cluster, Mishaps, TARGETS};
use common::Fixture;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A program in place of `lfs`: logs are files, and before one is cleared, it sees whether the
/// index has the markers that were made before the last record to be cleared.
const LFS: &str = r#"#!/bin/sh
cd LOGS || exit 1
log=$2
cleared=$(cat "$log.cleared" 2>/dev/null || echo 0)
case $1 in
changelog)
    from=${3:-0}
    [ "$from" -gt "$cleared" ] || from=$((cleared + 1))
    exec awk -v from="$from" 'BEGIN { RS = "\036"; ORS = "" } /^[0-9]/ && $1 + 0 >= from' "$log"
    ;;
changelog_clear)
    # One that a daemon left behind when it was killed may still run.
    exec 9> "$log.lock"
    flock 9
    { [ "$3" = cl1 ] && [ "$4" -gt 0 ]; } || echo "$*" >> wrong
    CANOPY --index INDEX find TREE > "$log.shown"
    while read -r marker last; do
        [ "$last" -gt "$4" ] || grep -qx "$marker" "$log.shown" || echo "$*: no $marker" >> wrong
    done < "$log.markers"
    [ "$4" -gt "$(cat "$log.cleared" 2>/dev/null || echo 0)" ] || exit 0
    echo "$4" > "$log.new"
    mv "$log.new" "$log.cleared"
    ;;
esac
"#;

/// A tree with change logs, and an index that follows it.
struct Site {
    place: Fixture,
    tree: PathBuf,
    index: PathBuf,
    logs: PathBuf,
    lfs: PathBuf,
    cluster: Cluster,
    markers: usize,
}

impl Site {
    fn new(seed: u64, mishaps: Mishaps) -> Self {
        let place = Fixture::new();
        let [mount, index, logs, lfs] =
            ["mount", "index", "logs", "lfs"].map(|name| place.path(name));
        let tree = mount.join("tree");
        fs::create_dir_all(&tree).unwrap();
        make_tree(&tree);
        let script =
            [("LOGS", &logs), ("CANOPY", &place.canopy), ("INDEX", &index), ("TREE", &tree)]
                .iter()
                .fold(LFS.to_owned(), |script, (word, path)| {
                    script.replace(word, path.to_str().unwrap())
                });
        write_program(&lfs, &script);
        let cluster = Cluster::new(&mount, &logs, seed, mishaps);
        for log in TARGETS {
            fs::write(logs.join(format!("{log}.markers")), "").unwrap();
        }
        Site { place, tree, index, logs, lfs, cluster, markers: 0 }
    }

    fn start(&self) -> Daemon {
        let logs = TARGETS.map(|log| format!("{log}:cl1")).join(",");
        let words = [
            self.tree.as_os_str(),
            "--lustre".as_ref(),
            logs.as_ref(),
            "--lfs".as_ref(),
            self.lfs.as_os_str(),
        ];
        Daemon::start(&self.place, &self.index, &words)
    }

    /// Makes a file, and has it be known by which record the index must have it.
    fn mark(&mut self) {
        self.markers += 1;
        let marker = self.tree.join(format!("marker{}", self.markers));
        fs::write(&marker, "").unwrap();
        let last = self.cluster.observe();
        let teller = Cluster::teller_of(&self.tree);
        let path = self.logs.join(format!("{}.markers", TARGETS[teller]));
        let mut file = fs::File::options().append(true).open(path).unwrap();
        file.write_all(format!("{} {}\n", marker.display(), last[teller]).as_bytes()).unwrap();
    }

    /// Waits until the index is as the tree is.
    fn assert_equal(&self) {
        wait_for_equality(&self.place, &self.index, &[&self.tree]);
    }

    /// Waits until logs are cleared but for the last records.
    fn assert_cleared(&mut self) {
        let last = self.cluster.last();
        self.cluster.fill(20);
        wait_until("the logs are cleared", || {
            TARGETS.iter().zip(last).all(|(log, last)| cluster::cleared(&self.logs, log) >= last)
        });
        let wrong = fs::read_to_string(self.logs.join("wrong")).unwrap_or_default();
        assert_eq!(wrong, "");
    }
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn change_logs_are_followed_and_cleared() {
    let mut site = Site::new(1, Mishaps::default());
    let daemon = site.start();
    let at = |path: &str| site.tree.join(path);
    fs::write(at("open/new"), "new").unwrap();
    fs::create_dir_all(at("gate/in/1/2/3")).unwrap();
    let (new, linked) = (at("open/new"), at("gate/in/1/linked"));
    let (gate, moved) = (at("gate/in/1"), at("open/moved"));
    site.cluster.observe();
    site.assert_equal();
    fs::hard_link(&new, &linked).unwrap();
    site.cluster.observe();
    fs::write(&new, "longer than before").unwrap();
    site.cluster.observe();
    fs::rename(&gate, &moved).unwrap();
    site.cluster.observe();
    fs::write(moved.join("2/3/deep"), "x").unwrap();
    site.cluster.observe();
    site.assert_equal();
    site.assert_cleared();
    let now = || status(&site.place, &site.index);
    assert_eq!(now()["method"], "Lustre change logs");
    wait_until("how far the logs are in the index is told", || {
        now()["change_logs"][1]["record"].is_u64() && now()["change_logs"][0]["record"].is_u64()
    });
    let text = site.place.canopy(&site.index, &["watch".as_ref(), "--status".as_ref()]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("change log  test-MDT0000: in the index up to record "), "{text}");
    // It goes on where it was killed: of what no record tells, nothing is seen.
    drop(daemon);
    fs::write(site.tree.join("gate/untold"), "x").unwrap();
    site.cluster.forget();
    fs::write(site.tree.join("open/told"), "x").unwrap();
    site.cluster.observe();
    let daemon = site.start();
    let listed =
        || site.place.canopy(&site.index, &["find".as_ref(), site.tree.as_os_str()]).stdout;
    let has = |name: &str| String::from_utf8(listed()).unwrap().contains(name);
    wait_until("what was told is there", || has("/open/told"));
    assert!(!has("/gate/untold"));
    // Somebody else has cleared the log.
    site.cluster.wipe(0);
    site.assert_equal();
    daemon.stop();
}

#[test]
fn whatever_befalls_records_and_the_daemon_nothing_is_missed() {
    for seed in 0..2 {
        let mishaps = match seed {
            0 => Mishaps { late: 300, ..Mishaps::default() },
            _ => Mishaps { lost: 10, twice: 20, damaged: 5, late: 300, fids_again: true },
        };
        let mut site = Site::new(seed, mishaps);
        let outside = site.tree.with_file_name("outside");
        fs::create_dir(&outside).unwrap();
        let mut changes = Changes::new(&site.tree, outside, 9000 + seed);
        for round in 0..4 {
            let daemon = site.start();
            for step in 0..60 {
                changes.change();
                site.cluster.observe();
                if step % 20 == 0 {
                    site.mark();
                    // Something is read, and more or less of it is in the index.
                    let before = status(&site.place, &site.index)["events"].as_u64();
                    wait_until("records are read", || {
                        site.cluster.fill(1);
                        status(&site.place, &site.index)["events"].as_u64() > before
                    });
                }
            }
            if round == 1 {
                site.cluster.wipe(1);
            }
            // SIGKILL.
            drop(daemon);
        }
        let daemon = site.start();
        changes.change();
        site.cluster.be_kind();
        site.mark();
        site.assert_cleared();
        site.assert_equal();
        daemon.stop();
    }
}

#[test]
fn records_come_from_files_and_pipes_too() {
    let mut site = Site::new(3, Mishaps::default());
    site.place.index(&site.index, &site.tree);
    let told = site.tree.join("open/told");
    fs::write(&told, "x").unwrap();
    site.cluster.observe();
    let lines = TARGETS.map(|log| cluster::lines_from(&site.logs, log, 0)).concat();
    let words = ["--trust-index", "--lustre", "-"].map(OsStr::new);
    let words = [&[site.tree.as_os_str()], &words[..]].concat();
    let mut daemon = Daemon::start_with(&site.place, &site.index, &words, Stdio::piped());
    daemon.child.stdin.take().unwrap().write_all(&lines).unwrap();
    assert!(daemon.child.wait().unwrap().success(), "{}", daemon.said());
    site.assert_equal();
    // A file, to which more is written.
    let file = site.place.path("records");
    fs::write(&file, "").unwrap();
    let words = [site.tree.as_os_str(), "--lustre".as_ref(), file.as_os_str()];
    let daemon = Daemon::start(&site.place, &site.index, &words);
    site.assert_equal();
    fs::write(&told, "longer").unwrap();
    let before = site.cluster.last();
    site.cluster.observe();
    let lines = TARGETS.iter().zip(before);
    let lines = lines.flat_map(|(log, last)| cluster::lines_from(&site.logs, log, last + 1));
    let mut records = fs::File::options().append(true).open(&file).unwrap();
    records.write_all(&Vec::from_iter(lines)).unwrap();
    site.assert_equal();
    daemon.stop();
}

#[test]
fn trees_without_change_logs_are_errors() {
    let site = Site::new(4, Mishaps::default());
    let fails = |words: &[&OsStr], expected: &str| {
        let words = [&[OsStr::new("watch")], words].concat();
        let output = site.place.canopy(&site.index, &words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
    };
    let lustre = OsStr::new("--lustre");
    let elsewhere = site.place.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fails(&[elsewhere.as_os_str(), lustre, "x".as_ref()], "no directory above has .lustre/fid");
    fails(&[site.tree.as_os_str(), lustre, "x:".as_ref()], "give a target, such as");
    fails(&[site.tree.as_os_str(), "--lfs".as_ref(), "x".as_ref()], "--lustre");
    // A program that fails is tried again, and nothing is missed.
    fs::write(site.tree.join("open/later"), "x").unwrap();
    let works = site.place.path("works");
    fs::rename(&site.lfs, &works).unwrap();
    write_program(&site.lfs, "#!/bin/sh\necho 'lfs changelog: no such target' >&2\nexit 3\n");
    let daemon = site.start();
    let error = || status(&site.place, &site.index)["deaf"].as_str().unwrap_or_default().to_owned();
    wait_until("the error is told", || error().contains("lfs changelog: no such target"));
    fs::rename(&works, &site.lfs).unwrap();
    wait_until("it is tried again", || status(&site.place, &site.index)["deaf"].is_null());
    site.assert_equal();
    daemon.stop();
}
