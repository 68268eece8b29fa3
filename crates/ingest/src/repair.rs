//! Repair: damaged files that can be derived from the rest are rewritten, and sources with lost data
//! are scanned again.

use crate::Context;
use crate::faults::{Faults, warn_of_mounts};
use crate::listing::{Scans, one_reader};
use crate::observer::with_progress;
use crate::publishing::{end_if_cancelled, publish_changes, warn_of};
use crate::update::{Task, list_anew};
use canopy_as_user::subordinate_uids;
use canopy_index::{
    CheckReport, Published, Remedy, ScanRecord, SourceRecord, Writer, WriterOptions,
};
use canopy_model::{Device, unescape};
use canopy_scan::Selection;
use canopy_site::check_links;
use canopy_text::safe::message_line;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How an index is repaired.
#[derive(Clone, Copy, Debug)]
pub struct RepairOptions {
    /// Threads that scan.
    pub threads: usize,
    /// Entries that are looked at per second at most.
    pub rate_max: Option<NonZeroU32>,
    /// Memory for building, in bytes.
    pub memory_bytes: usize,
}

/// The result of a repair.
pub struct Repaired {
    /// The generation.
    pub published: Published,
    /// Whether every source with lost data was scanned again, and nothing else is lost.
    pub is_complete: bool,
}

/// Repairs the damage that a check found, as far as it can be repaired.
///
/// # Errors
///
/// [`Interrupted`](crate::Interrupted), and errors of the index.
pub fn repair(
    cx: &Context<'_>,
    location: &Path,
    report: &CheckReport,
    options: &RepairOptions,
) -> anyhow::Result<Repaired> {
    Repair { cx, location, options }.run(report)
}

fn shown(escaped: &str) -> String {
    message_line(&String::from_utf8_lossy(&unescape(escaped))).into_owned()
}

/// Returns the roots of sources whose scan options are lost, if they are trees of this machine.
fn of_unknown_options(writer: &Writer) -> BTreeSet<String> {
    let is_here = |source: &SourceRecord| {
        let about = canopy_read::to_path(&source.root).symlink_metadata();
        about.is_ok_and(|it| (Device(it.dev()), it.ino()) == (source.dev, source.attributes.ino))
    };
    let sources = writer.sources().into_iter();
    let unknown = sources.filter(|(source, record)| record.is_none() && is_here(source));
    unknown.map(|(source, _)| source.root).collect()
}

/// One repair.
struct Repair<'a> {
    cx: &'a Context<'a>,
    location: &'a Path,
    options: &'a RepairOptions,
}

impl Repair<'_> {
    fn run(&self, report: &CheckReport) -> anyhow::Result<Repaired> {
        let cx = self.cx;
        check_links(self.location)?;
        let remedies = |remedy: Remedy| report.damages.iter().filter(move |it| it.remedy == remedy);
        if remedies(Remedy::Anew).next().is_some() {
            anyhow::bail!("the index at {} cannot be repaired", self.location.display());
        }
        let mut writer = cx.open_writer(self.location, self.options())?;
        let (mut unknown, mut lost_queries) = (BTreeSet::new(), false);
        let mut roots: BTreeSet<String> =
            remedies(Remedy::Scan).flat_map(|damage| damage.affected.keys().cloned()).collect();
        if let Some(salvaged) = writer.salvaged() {
            roots.extend(salvaged.to_scan.iter().cloned());
            if salvaged.guesses_retention && !report.kept.is_empty() {
                cx.warn(
                    "the setting of how many older generations to keep is lost: set it again with \
                     'canopy compact --keep'",
                );
            }
            for table in &salvaged.lost_tables {
                cx.warn(format_args!("the query of the table {table} is lost: derive it again"));
                lost_queries = true;
            }
            if salvaged.lost_options {
                unknown = of_unknown_options(&writer);
            }
            if let Some(generation) = salvaged.from_generation {
                cx.warn(format_args!("the index is rebuilt from generation {generation}"));
            }
        }
        for root in &unknown {
            cx.warn(format_args!(
                "the options of the last scan of {} are lost: it is scanned with the configured \
                 ones; index it again if it was indexed with options such as -x or --exclude",
                shown(root)
            ));
        }
        roots.extend(unknown.iter().cloned());
        writer.renew_damaged()?;
        if remedies(Remedy::Rewrite).next().is_some() {
            writer.publish_anyway();
        }
        if remedies(Remedy::Compute).next().is_some() {
            writer.clear_derived();
            writer.publish_anyway();
        }
        let (writer, is_complete) = self.scan(writer, &roots, &unknown)?;
        let (published, _) = publish_changes(cx, writer, self.options.threads)?;
        warn_of(cx, &published);
        Ok(Repaired { published, is_complete: is_complete && !lost_queries })
    }

    fn options(&self) -> WriterOptions {
        WriterOptions {
            memory_bytes: self.options.memory_bytes,
            threads: self.options.threads,
            holders: subordinate_uids(),
            salvages: true,
            ..WriterOptions::default()
        }
    }

    /// Scans sources again; returns whether all could be scanned. The others stay as they are.
    fn scan(
        &self,
        mut writer: Writer,
        roots: &BTreeSet<String>,
        unknown: &BTreeSet<String>,
    ) -> anyhow::Result<(Writer, bool)> {
        let cx = self.cx;
        let faults = Faults::new(None, self.location, None)?;
        let scans = Scans::new(
            cx,
            &writer,
            self.options.memory_bytes,
            self.options.threads,
            self.options.rate_max,
            faults,
        )?;
        let known = writer.sources();
        let is_asked = |root: &String| roots.contains(root);
        let known = known.into_iter().filter(|(source, _)| is_asked(&source.root));
        let mut is_complete = true;
        with_progress(cx.observer, &scans, || {
            for (source, record) in known {
                let root = shown(&source.root);
                let is_unknown = unknown.contains(&source.root);
                let Some(record) = record.or_else(|| is_unknown.then(ScanRecord::default)) else {
                    cx.warn(format_args!("{root} was not scanned: import or read it again"));
                    is_complete = false;
                    continue;
                };
                let rules = cx.mount_rules(record.no_prune);
                let task = Task { source, record, selection: Selection::default() };
                if let Err(error) = list_anew(&mut writer, &scans, &rules, &task) {
                    cx.warn(format_args!("{error:#}; {root} stays as it is in the index"));
                    is_complete = false;
                }
                if !one_reader() {
                    warn_of_mounts(cx, &rules.closed());
                }
            }
        });
        is_complete &= scans.counts.faults() == 0;
        let Scans { counts, faults, .. } = scans;
        let writer = end_if_cancelled(cx, writer)?;
        faults.finish(cx, &counts)?;
        Ok((writer, is_complete))
    }
}
