//! Options of `canopy index`, and the scan that they ask for.

use crate::invocation::Invocation;
use crate::limits::{OwnerLimitOptions, memory_size, rate};
use canopy_index::{Layout, Retention};
use canopy_ingest::COPIED_ROWS_MAX;
use canopy_ingest::scan::ScanRequest;
use canopy_site::namespace_of;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

/// Scan trees and publish them as a new generation of the index
///
/// A tree that was indexed before is replaced; other sources stay. A PATH inside a source replaces
/// that part of it, and a source inside PATH becomes part of PATH's. Readers see the old generation
/// until the new one is whole. If a tree cannot be scanned, its entries stay as they were, and
/// 'canopy info' prints since when. An interrupted run continues, even after a loss of power, if
/// you run the same command within 24 hours. File systems of other machines (such as NFS) are left
/// out unless they are named, trusted ('trust_fs') or asked for. Exit code 0: complete; 1: some
/// entries vanished, could not be read, have too long a path or changed hands meanwhile, or a tree
/// stays as it was; 2: nothing was published.
///
/// Example: canopy index /home /data --exclude '*.snapshot' --errors errors.txt
#[derive(clap::Args)]
pub struct Arguments {
    /// Trees to scan, and with ns: in front namespaces, of which the records are read [default: the
    /// configured sources]
    #[arg(value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Threads that scan [default: one per core]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<usize>,
    /// Entries to look at per second at most, so that a busy server is spared (not of namespaces)
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(super) max_rate: Option<NonZeroU32>,
    /// Stay on the file system of each PATH
    #[arg(short = 'x', long)]
    pub(super) one_file_system: bool,
    /// Leave out entries whose name matches, or whose path below PATH if there is a '/' (can be
    /// repeated); adds to the configured patterns
    #[arg(long, value_name = "GLOB")]
    pub(super) exclude: Vec<String>,
    /// Also index paths that the configuration leaves out, and file systems such as /proc (for root
    /// alone)
    #[arg(long)]
    pub(super) no_prune: bool,
    /// Leave out extended attributes and ACLs; scans faster. Permissions still decide who sees an
    /// entry
    #[arg(long)]
    pub(super) no_xattrs: bool,
    /// Name of the source, for one PATH [default: its path, or with --incremental as before]
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) name: Option<String>,
    /// Treat the root of a namespace as this directory, for one PATH [default: where it is mounted]
    #[arg(long, value_name = "DIR")]
    pub(super) root: Option<PathBuf>,
    /// Memory for building, such as 512M or 2G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory_size)]
    pub(super) memory: usize,
    #[command(flatten)]
    pub(super) limits: OwnerLimitOptions,
    /// Most live rows of a partly replaced shard that are rewritten
    #[arg(long, value_name = "N", default_value_t = COPIED_ROWS_MAX, hide = true)]
    pub(super) copied_rows: usize,
    /// Generations to keep from now on: a number of them, or the last one of each hour, day and
    /// week, for so many of these, such as 24h,14d,8w; or none [default: as before, at first none]
    #[arg(long, value_name = "N|Nh|Nd|Nw,...|none")]
    pub(super) keep: Option<Retention>,
    /// Write only the changes since each PATH was indexed
    #[arg(long, conflicts_with = "replace")]
    pub(super) incremental: bool,
    /// Do not read a directory again if its times show that its names have not changed. Changes of
    /// files in place, such as sizes and permissions, are then missed
    #[arg(long, requires = "incremental")]
    pub(super) trust_directory_times: bool,
    /// Remove the entries of each PATH from the index before the scan. This needs half of the
    /// space. Until the end, queries about PATH return nothing, and running readers may fail. Kept
    /// generations prevent it, since they still need the files
    #[arg(long)]
    pub(super) replace: bool,
    /// Scan all anew, even where an interrupted run could go on
    #[arg(long)]
    pub(super) restart: bool,
    /// Share the scan of PATH with workers on this and other machines: directories N levels below it
    /// become parts that they list
    #[arg(long, value_name = "N", conflicts_with_all = ["incremental", "replace", "worker"])]
    pub(super) level: Option<NonZeroU32>,
    /// Join workers that share a scan, which one of them has begun with --level
    #[arg(long, conflicts_with_all = ["paths", "exclude", "one_file_system", "no_xattrs", "no_prune",
          "name", "keep", "incremental", "replace", "restart"])]
    pub(super) worker: bool,
    /// With --level, workers on this machine, which share its threads; with 0, the scan is only begun
    #[arg(long, value_name = "N", default_value_t = 1, requires = "level",
          value_parser = clap::value_parser!(u16).range(..=1024))]
    pub(super) workers: u16,
    /// With --worker, do not print the summary; the parent prints it
    #[arg(long, hide = true, requires = "worker")]
    pub(super) started: bool,
    /// How often a worker shows that it lives, in milliseconds: after 60 times it is taken for dead
    #[arg(long, value_name = "MS", default_value_t = 1000, hide = true)]
    pub(super) beat: u64,
    /// How to divide listings into files: by access, or for root alone by subtree and directory, as
    /// Brindexer does, for comparison [default: access, or with --incremental as before]
    #[arg(
        long,
        value_enum,
        hide = true,
        hide_possible_values = true,
        value_name = "access|leveled"
    )]
    pub(super) layout: Option<LayoutName>,
    /// With --layout leveled, the number of parts of the index
    #[arg(long, value_name = "N", default_value_t = 64, requires = "layout", hide = true,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) shards: u32,
    /// List entries that vanished or could not be read in FILE
    #[arg(long, value_name = "FILE")]
    pub(super) errors: Option<PathBuf>,
    /// Print which trees would be scanned and left out, and by which configuration; write nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Say nothing but errors, for cron
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Print the summary, or the result of --dry-run, as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Entries after which it is noted how far the scan is, besides each minute
    #[arg(long, value_name = "N", hide = true)]
    pub(super) noted_every: Option<NonZeroU64>,
    /// Read the changes of a namespace since it was last read this way, as 'canopy watch' does
    #[arg(long, hide = true)]
    pub(super) follow: bool,
}

impl Arguments {
    /// Returns whether a namespace is followed.
    pub fn follows(&self) -> bool {
        self.follow
    }

    /// Takes the configured sources where no PATH is given, and refuses options that are not for
    /// these paths. Returns whether any is a namespace.
    pub(super) fn settle_paths(&mut self, invocation: &Invocation) -> anyhow::Result<bool> {
        if self.paths.is_empty() {
            let sources = invocation.site.settings.sources.iter().flatten();
            self.paths = sources.map(|source| source.path.clone()).collect();
            anyhow::ensure!(
                !self.paths.is_empty(),
                "no PATH is given, and no sources are configured ('canopy help config')"
            );
        }
        anyhow::ensure!(
            self.name.is_none() || self.paths.len() == 1,
            "--name names one source; index several paths one by one to name them"
        );
        anyhow::ensure!(
            self.root.is_none()
                || (self.paths.len() == 1 && namespace_of(&self.paths[0]).is_some()),
            "--root is for one namespace: ns:PATH"
        );
        let has_namespace = self.paths.iter().any(|path| namespace_of(path).is_some());
        anyhow::ensure!(
            !has_namespace || self.level.is_none() && self.layout.is_none(),
            "--level and --layout are for trees: a namespace is read by one process, and divided by access"
        );
        Ok(has_namespace)
    }

    /// Returns the scan that is asked for.
    pub(super) fn request(&self, invocation: &Invocation) -> ScanRequest {
        ScanRequest {
            paths: self.paths.clone(),
            threads: invocation.scan_threads(self.threads),
            memory_bytes: self.memory,
            rate_max: self.max_rate,
            one_file_system: self.one_file_system,
            excludes: self.exclude.clone(),
            no_prune: self.no_prune,
            no_xattrs: self.no_xattrs,
            name: self.name.clone(),
            root: self.root.clone(),
            limits: self.limits.given(),
            copied_rows_max: self.copied_rows,
            retention: self.keep.clone(),
            incremental: self.incremental,
            trusts_directory_times: self.trust_directory_times,
            replaces: self.replace,
            restarts: self.restart,
            layout: self.layout.map(|name| match name {
                LayoutName::Access => Layout::Access,
                LayoutName::Leveled => {
                    let level = self.level.map_or(1, NonZeroU32::get);
                    Layout::Leveled { level, shards: self.shards }
                }
            }),
            errors: self.errors.clone(),
            noted_every: self.noted_every.map(NonZeroU64::get),
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum LayoutName {
    Access,
    Leveled,
}
