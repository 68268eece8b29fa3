//! Scans, updates and follows trees, at once in one process: `twice TREE TREE`.
//!
//! Two files are added to each tree.

use canopy_index::Index;
use canopy_ingest::daemon::{Daemon, DaemonOptions, InProcess};
use canopy_ingest::scan::{ScanRequest, scan};
use canopy_ingest::update::{Suspect, Suspects, UpdateOptions, update};
use canopy_ingest::{Cancel, Context};
use canopy_site::Site;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Indexes a tree and changes it, until the index has followed.
pub fn index(tree: &Path, index: &Path) -> anyhow::Result<()> {
    let (site, cancel) = (Site::default(), Cancel::default());
    let cx = Context::new(&site, &cancel);
    let request = ScanRequest { paths: vec![tree.to_owned()], ..ScanRequest::default() };
    let scanned = scan(&cx, index, &request, None)?;
    println!("{}: {} entries", tree.display(), scanned.published.entries);

    std::fs::write(tree.join("updated"), "")?;
    let suspect = Suspect::of_path(tree, false)?;
    let suspects = || Ok(Suspects { all: vec![suspect], ..Suspects::default() });
    let updated = update(&cx, index, suspects, &UpdateOptions::default())?;
    println!("{}: generation {}", tree.display(), updated.generation);

    let interval = Duration::from_millis(200);
    let options = DaemonOptions::new(vec![tree.to_owned()]);
    let options = DaemonOptions { interval, trust_index: true, ..options };
    let runner = InProcess::default();
    let daemon = Daemon::begin(&cx, index, &options, &runner, &|_| {})?;
    std::thread::scope(|scope| {
        let running = scope.spawn(|| daemon.run());
        let changed = std::fs::write(tree.join("followed"), "");
        let is_behind = || Index::open(index).is_ok_and(|it| it.generation() == updated.generation);
        while changed.is_ok() && !running.is_finished() && is_behind() {
            std::thread::sleep(interval);
        }
        // Also after an error: the daemon would not end by itself.
        cancel.request();
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(changed?)
    })
}

/// Indexes each tree into an index of its own.
pub fn main() -> anyhow::Result<()> {
    let trees: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let indexes = tempfile::tempdir()?;
    std::thread::scope(|scope| {
        let run = |(at, tree): (usize, &PathBuf)| {
            let place = indexes.path().join(at.to_string());
            let tree = tree.clone();
            scope.spawn(move || index(&tree, &place))
        };
        let running: Vec<_> = trees.iter().enumerate().map(run).collect();
        running.into_iter().try_for_each(|one| one.join().expect("no thread panics"))
    })
}
