//! The verbs as a library: several runs at once in one process, each with values of its own. Needs
//! root, and `canopy` built beside.

#[path = "../../examples/twice.rs"]
#[expect(dead_code, reason = "the example's main")]
mod twice;

mod following;

use canopy_index::{Index, Writer};
use canopy_ingest::daemon::{Daemon, DaemonOptions, InProcess};
use canopy_ingest::scan::{ScanRequest, scan};
use canopy_ingest::{Cancel, Context, DerivedTables, Interrupted, Observer};
use canopy_site::{Settings, Site};
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Returns the program in the directory of this test's build.
fn canopy() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("canopy");
    assert!(path.exists(), "{} is not built", path.display());
    path
}

/// Makes a tree with so many files.
fn tree(above: &Path, name: &str, files: usize) -> PathBuf {
    let tree = above.join(name);
    fs::create_dir(&tree).unwrap();
    (0..files).for_each(|number| fs::write(tree.join(number.to_string()), "text").unwrap());
    tree.canonicalize().unwrap()
}

fn names(index: &Path, tree: &Path) -> Vec<String> {
    let output = std::process::Command::new(canopy())
        .arg("--index")
        .arg(index)
        .arg("find")
        .arg(tree)
        .args(["-printf", "%f\\n"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Returns whether an index has an entry of a tree, which may not be in it yet.
fn has(index: &Path, tree: &Path, name: &str) -> bool {
    let is_source = |index: Index| !index.sources().is_empty();
    Index::open(index).is_ok_and(is_source) && names(index, tree).iter().any(|one| one == name)
}

#[test]
fn two_trees_are_scanned_updated_and_followed_at_once() {
    let place = tempfile::tempdir().unwrap();
    let trees = [("one", 300), ("other", 500)].map(|(name, files)| tree(place.path(), name, files));
    let index = |at: usize| place.path().join(format!("index{at}"));
    std::thread::scope(|scope| {
        for (at, tree) in trees.iter().enumerate() {
            scope.spawn(move || twice::index(tree, &index(at)).unwrap());
        }
    });
    for (at, files) in [300, 500].into_iter().enumerate() {
        let names = names(&index(at), &trees[at]);
        assert_eq!(names.len(), files + 3, "{names:?}");
        assert!(["updated", "followed"].iter().all(|name| names.iter().any(|one| one == name)));
    }
}

/// Keeps messages.
#[derive(Default)]
struct Messages(Mutex<Vec<String>>);

impl Observer for Messages {
    fn warn(&self, text: &dyn Display) {
        self.0.lock().unwrap().push(text.to_string());
    }

    fn note(&self, text: &dyn Display) {
        self.warn(text);
    }
}

#[test]
fn each_run_has_its_own_configuration_messages_and_end() {
    let place = tempfile::tempdir().unwrap();
    let tree = tree(place.path(), "tree", 10);
    let pruned = Settings { prune_names: Some(vec!["3".to_owned()]), ..Settings::default() };
    let sites = [Site::default(), Site::new(pruned, None)];
    let messages = [Messages::default(), Messages::default()];
    let request = |path: &Path| ScanRequest { paths: vec![path.into()], ..ScanRequest::default() };
    let (cancel, cancelled) = (Cancel::default(), Cancel::default());
    cancelled.request();
    for (at, (site, observer)) in sites.iter().zip(&messages).enumerate() {
        let index = place.path().join(format!("index{at}"));
        let cx = Context { observer, ..Context::new(site, &cancel) };
        let cancelled = Context { observer, ..Context::new(site, &cancelled) };
        let error = scan(&cancelled, &index, &request(&tree), None).map(drop).unwrap_err();
        assert!(error.is::<Interrupted>(), "{error:#}");
        let missing = scan(&cx, &index, &request(&place.path().join("none")), None);
        let missing = format!("{:#}", missing.map(drop).unwrap_err());
        assert!(missing.contains("none") && missing.contains("nothing was published"), "{missing}");
        scan(&cx, &index, &request(&tree), None).unwrap();
        assert_eq!(names(&index, &tree).len(), 11 - at);
        assert_eq!(Index::open(&index).unwrap().generation().0, 1);
    }
}

/// Derived tables that are computed only from the second time on.
#[derive(Default)]
struct PanicOnce(AtomicBool);

impl DerivedTables for PanicOnce {
    fn refresh(&self, _: &mut Writer, _: usize) -> anyhow::Result<bool> {
        assert!(self.0.swap(true, Ordering::SeqCst), "on purpose");
        Ok(true)
    }
}

/// Cancels all when it goes out of scope, so that a failed test ends.
struct CancelAll<'a>(&'a [Cancel]);

impl Drop for CancelAll<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(Cancel::request);
    }
}

/// Waits until an index has a file of a tree.
fn wait_for(index: &Path, tree: &Path, name: &str) {
    wait_until(name, || has(index, tree, name));
}

/// Waits for something that a name describes.
fn wait_until(name: &str, is_there: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{name}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn one_process_hosts_two_daemons_and_neither_disturbs_the_other() {
    let place = tempfile::tempdir().unwrap();
    let trees = [("one", 3), ("other", 5)].map(|(name, files)| tree(place.path(), name, files));
    let index = [0, 1].map(|at| place.path().join(format!("index{at}")));
    let (site, cancel) = (Site::default(), [Cancel::default(), Cancel::default()]);
    let (messages, tables) = ([Messages::default(), Messages::default()], PanicOnce::default());
    let cx = [0, 1].map(|at| Context {
        observer: &messages[at],
        derived: (at == 0).then_some(&tables as &dyn DerivedTables),
        ..Context::new(&site, &cancel[at])
    });
    let runner = InProcess::default();
    let begin = |at: usize| {
        let options = DaemonOptions {
            interval: Duration::from_millis(100),
            ..DaemonOptions::new(vec![trees[at].clone()])
        };
        Daemon::begin(&cx[at], &index[at], &options, &runner, &|_| {}).unwrap()
    };
    let daemons = [0, 1].map(begin);
    std::thread::scope(|scope| {
        let _ends = CancelAll(&cancel);
        let [one, other] = &daemons;
        let (one, other) = (scope.spawn(|| one.run()), scope.spawn(|| other.run()));
        for at in [0, 1] {
            wait_for(&index[at], &trees[at], "0");
            fs::write(trees[at].join("new"), "").unwrap();
            wait_for(&index[at], &trees[at], "new");
        }
        cancel[0].request();
        one.join().unwrap().unwrap();
        fs::write(trees[1].join("newer"), "").unwrap();
        wait_for(&index[1], &trees[1], "newer");
        assert!(!other.is_finished());
        cancel[1].request();
        other.join().unwrap().unwrap();
    });
    let said = messages.map(|messages| messages.0.into_inner().unwrap());
    assert!(said[0].iter().any(|text| text.contains("on purpose")), "{said:?}");
    assert!(said[1].is_empty(), "{said:?}");
}
