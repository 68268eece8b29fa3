//! The first try that README and docs/cluster.md show.

use crate::common::{shell, success};
use crate::site::Site;

/// Files that are made: 100,000 with `CANOPY_LONG=1`.
fn files() -> usize {
    if std::env::var_os("CANOPY_LONG").is_some() { 100_000 } else { 2_000 }
}

#[test]
fn a_directory_outlives_a_process() {
    let files = files();
    let split = (files / 8).to_string();
    let mut site = Site::with(4, 2, &["--split-entries", &split]);
    let on = site.mount("on", &[]);
    let line = format!("mkdir big && seq -f big/%.0f {files} | xargs touch");
    shell(&on, &line);
    let shown = success(&site.cluster(&["partitions", "/big", "@"]));
    assert!(shown.lines().count() > 4, "{shown}");
    site.processes.pop().unwrap().kill();
    assert_eq!(shell(&on, "ls big | wc -l").trim(), files.to_string());
    assert_eq!(shell(&on, "ls -U big | sort -n | uniq | tail -1").trim(), files.to_string());
    success(&site.unmount("on"));
}
