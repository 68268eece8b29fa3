//! `canopy index`

mod arguments;
pub mod follow;
mod plan;
mod summary;
pub mod workers;

pub use arguments::Arguments;
pub(super) use summary::UNCHANGED;

use crate::companion::Companion;
use crate::engine::Engine;
use crate::invocation::Invocation;
use crate::outcome::Outcome;
use anyhow::Context;
use canopy_ingest::plan::plan;
use canopy_ingest::scan::{ScanRequest, Scanned, root_of, scan};
use canopy_ingest::{Namespaces, count_of};
use canopy_scan::Excludes;
use canopy_site::check_links;
use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;
use summary::Summary;

/// Carries the command out. Without `namespaces`, `canopy-ns` is run where there are any.
///
/// # Errors
///
/// If options are refused, nothing could be published, or the run is interrupted.
pub fn run(
    invocation: &Invocation,
    arguments: Arguments,
    engine: Option<&Engine>,
    namespaces: Option<&dyn Namespaces>,
) -> anyhow::Result<Outcome> {
    let mut arguments = arguments;
    if arguments.quiet {
        invocation.be_quiet();
    }
    let location = invocation.site.index_to_write()?;
    check_links(&location)?;
    if arguments.worker {
        return share(invocation, &location, &arguments, engine);
    }
    let has_namespace = arguments.settle_paths(invocation)?;
    if namespaces.is_none() && has_namespace {
        return Companion::Namespace.run();
    }
    let begun = Instant::now();
    let asked_root = arguments.root.as_deref();
    let root_of = |path: &Path| root_of(path, namespaces, asked_root);
    let mut known = HashSet::new();
    let mut paths = std::mem::take(&mut arguments.paths);
    paths.retain(|path| known.insert(root_of(path)));
    let request = ScanRequest { paths, ..arguments.request(invocation) };
    Excludes::new(request.excludes.iter().map(String::as_str)).context("--exclude")?;
    if arguments.dry_run {
        let plan = plan(&invocation.ingest(None), &location, &request, namespaces)?;
        return plan::print(&plan, &invocation.site.settings, arguments.json);
    }
    arguments.paths = request.paths.clone();
    if arguments.level.is_some() {
        return share(invocation, &location, &arguments, engine);
    }
    let cx = invocation.ingest(engine.map(|engine| engine.derived));
    if namespaces.is_none() {
        cx.check_derived_tables(&location)?;
    }
    invocation.watch_signals()?;
    let scanned = scan(&cx, &location, &request, namespaces)?;
    arguments.report(&scanned, &location, begun)?;
    if !arguments.quiet && !arguments.json {
        report_location(invocation, &location, &scanned.roots);
    }
    Ok(Outcome::of(scanned.is_complete))
}

/// Prints where a user's own index is, and that it answers before the site's.
fn report_location(invocation: &Invocation, location: &Path, roots: &[String]) {
    if !invocation.site.is_own_by_default(location) || roots.is_empty() {
        return;
    }
    let roots: Vec<String> = roots.iter().map(|root| shown_root(root)).collect();
    let location = location.display();
    match invocation.site.has_site_index() {
        true => invocation.note(format_args!(
            "your own index is at {location}, for you alone; it answers about {} from now on, \
             before the site's ('canopy source remove PATH' ends that)",
            roots.join(", ")
        )),
        false => {
            invocation.note(format_args!("your own index is at {location}, for you alone"));
        }
    }
}

fn shown_root(root: &str) -> String {
    canopy_text::safe::one_line(&canopy_read::to_path(root).display().to_string())
}

/// Shares a scan with workers, which may have to compute derived tables: `canopy-sql` does it.
fn share(
    invocation: &Invocation,
    location: &Path,
    arguments: &Arguments,
    engine: Option<&Engine>,
) -> anyhow::Result<Outcome> {
    match engine {
        Some(engine) => (engine.share)(invocation, location, arguments, engine),
        None => Companion::Sql.run(),
    }
}

impl Arguments {
    /// Prints the summary of a scan.
    pub(super) fn report(
        &self,
        scanned: &Scanned,
        location: &Path,
        begun: Instant,
    ) -> anyhow::Result<()> {
        let seconds = begun.elapsed().as_secs_f64();
        let summary = Summary { scanned, seconds, held: count_of(location, &scanned.roots) };
        match (self.json, self.quiet) {
            (true, _) => summary.print_json(),
            (false, false) => summary.print(),
            (false, true) => Ok(()),
        }
    }
}
