//! Commands for parts of a namespace that have names: snapshots and views.

use clap::Subcommand;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum SnapshotCommand {
    /// Make a snapshot of a namespace as it is now
    ///
    /// Example: canopy ns snapshot create /projects monday
    Create {
        /// The namespace, or where it is mounted
        place: PathBuf,
        /// Letters, digits and - . _ : +
        name: String,
    },
    /// List the snapshots of a namespace, the oldest first
    ///
    /// Prints for each one its time, the numbers of its files and directories, the total length of
    /// its files, and the space of contents that only snapshots need.
    ///
    /// Example: canopy ns snapshot list /projects
    List {
        /// The namespace, or where it is mounted
        place: PathBuf,
        /// Print JSON, an object a line
        #[arg(long)]
        json: bool,
    },
    /// Delete a snapshot, and the contents that only it needs
    ///
    /// Example: canopy ns snapshot delete /projects monday
    Delete {
        /// The namespace, or where it is mounted
        place: PathBuf,
        /// Its name
        name: String,
    },
    /// Restore a namespace to the state of a snapshot
    ///
    /// Restores names, attributes, contents, indexes, and limits and usage of quotas, all at once. All
    /// later changes are lost: make a snapshot first if you may need them. All snapshots stay. The
    /// namespace must not be mounted; if it is on several servers, stop these first (docs/cluster.md).
    /// If the command is interrupted, the same command finishes it. To get back a few files, copy them from the snapshot on a mount:
    /// cp -a '/projects/[@monday]/a' /projects/a
    ///
    /// Example: canopy ns snapshot restore /srv/projects monday
    Restore {
        /// The namespace
        place: PathBuf,
        /// The name of the snapshot
        name: String,
    },
}

#[derive(Subcommand)]
pub enum ViewCommand {
    /// Make a view
    ///
    /// Example: canopy ns view add /projects copies '[size>1M]/[duplicates]'
    Add {
        /// Where the namespace is mounted
        directory: PathBuf,
        /// One name
        name: OsString,
        /// A path below the root of the mount, with at least one query in brackets
        query: OsString,
    },
    /// List views, each with its type and its query
    ///
    /// Example: canopy ns view list /projects
    List {
        /// Where the namespace is mounted
        directory: PathBuf,
        /// Print JSON, an object a line
        #[arg(long)]
        json: bool,
    },
    /// Remove a view
    ///
    /// Example: canopy ns view remove /projects big
    Remove {
        /// Where the namespace is mounted
        directory: PathBuf,
        /// Its name
        name: OsString,
    },
}
