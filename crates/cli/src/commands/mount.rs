//! `canopy mount`, `canopy unmount`: their arguments. `canopy-ns` carries them out.

// Help has queries in brackets, which are not links.
#![allow(rustdoc::broken_intra_doc_links)]

use crate::read_options::moment;
use canopy_index::Moment;
use std::path::PathBuf;

/// Mount an index as a read-only file system
///
/// It shows the indexed sources at their paths, with all attributes but without contents. Each user
/// sees the entries that the source would show, and a name in brackets searches for files, as in
/// DIRECTORY/data/[size>1G and age>1y] (docs/queries.md). If root mounts it, every user may use it;
/// otherwise, only the user who mounted it. 'canopy unmount' or umount(8) unmount it.
///
/// Example: canopy mount /index
#[derive(clap::Args)]
pub struct Arguments {
    /// Where to mount it
    pub directory: PathBuf,
    /// Show this source alone, by its name or root, as the root of the mount
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// Show the index as it was at a time, such as 2026-06-01, '3 days ago' or 7d, or the
    /// generation with a number. Only the owner of the index can use such a mount
    #[arg(long, value_name = "TIME|GENERATION", value_parser = moment)]
    pub at: Option<Moment>,
    /// Stay in the foreground until it is unmounted, or Ctrl-C
    #[arg(long, short)]
    pub foreground: bool,
    /// Let only yourself use it, even if you are root
    #[arg(long)]
    pub private: bool,
    /// Answer the kernel with so many threads [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Append later messages, such as why a query was refused, to this file [default:
    /// /var/log/canopy-mount.log for root, $XDG_STATE_HOME/canopy/mount.log for others]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Options as of mount(8): noexec; others change nothing
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Print a line to standard output when it is mounted, and detach from the terminal
    #[arg(long, hide = true)]
    pub detached: bool,
}

/// Unmount an index, or a namespace
///
/// Example: canopy unmount /index
#[derive(clap::Args)]
pub struct Unmount {
    /// Where it is mounted
    pub directory: PathBuf,
}
