//! `canopy ns`: its arguments. `canopy-ns` carries it out.

// Help has queries in brackets, which are not links.
#![allow(rustdoc::broken_intra_doc_links)]

mod arguments;
mod named;

pub use arguments::{Account, Check, Create, Du, Find, Import, Index, Mount, Quota};
pub use named::{SnapshotCommand, ViewCommand};

use clap::Subcommand;
use std::path::PathBuf;

/// Make namespaces: file systems whose metadata is a table that is searched as fast as it is read
///
/// NAMESPACE is the directory that has one: its records, and the contents of large files. Or it is a
/// bucket that has them (see 'canopy ns create --help').
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Make an empty namespace
    ///
    /// The user who makes a namespace owns its root directory. A bucket of S3, or of a store that
    /// speaks its language, is named s3://BUCKET/PREFIX; AWS_ENDPOINT_URL and AWS_REGION set its
    /// address, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY the account. If the store overwrites
    /// objects, as Garage does, name a directory for objects that must not be overwritten:
    /// DIRECTORY+s3://BUCKET/PREFIX.
    ///
    /// Example: canopy ns create /srv/projects
    Create(Create),
    /// Print how large a namespace is, where its parts are, and whether it is mounted
    ///
    /// Example: canopy ns info /srv/projects
    Info {
        /// The namespace, or where it is mounted
        #[arg(value_name = "PLACE")]
        namespace: PathBuf,
        /// Print JSON, one object
        #[arg(long)]
        json: bool,
    },
    /// Check every record against all others
    ///
    /// Prints a line for each fault, then a summary; exit code 1 means that there are faults. To check
    /// a namespace in use, name the directory that it is mounted on, as root.
    ///
    /// With --repair, exit code 1 means that all faults are repaired, 2 that some are left. Orphaned
    /// files move to lost+found; no contents are removed. If contents in storage are missing, or with
    /// --data damaged, reading them fails until they are written again. If files of records are
    /// damaged, --repair keeps the records that it can read and a copy of the damaged files. It prints
    /// the path of each file that is lost or has older attributes or contents than before.
    ///
    /// Example: canopy ns check /projects
    Check(Check),
    /// Show or change which attributes there are indexes of
    ///
    /// Queries of these attributes are answered without looking at every file. Indexes that are
    /// added to a mounted namespace are built while it is in use, and are in parentheses until they
    /// are complete. Attributes are size, blocks, uid, gid, links, project, type, mtime, ctime,
    /// atime, btime, ext, name, and extended ones.
    ///
    /// Example: canopy ns index /projects --add atime,user.run
    Index(Index),
    /// Show or set the usage and limits of users, groups and trees
    ///
    /// Without limits, shows all accounts, or the one that is named. Users who do not own the
    /// namespace see their own account on its mount. Writing beyond a hard limit fails with EDQUOT,
    /// and so does writing beyond a soft limit once the grace period is over. Limits do not bind
    /// root.
    ///
    /// A tree is a directory with all below it. Nothing can be moved or linked into it from elsewhere.
    /// It ends when its directory, and everything that was moved out of it, is removed. Usage is
    /// counted from the first limit or tree on.
    ///
    /// Example: canopy ns quota /projects --user ada --bytes 10G:12G --inodes 1M
    Quota(Quota),
    /// Copy a tree of files into a namespace
    ///
    /// Names, types, owners, modes, times, hard links, targets of symbolic links, device numbers,
    /// extended attributes and ACLs are copied, and with --data also the contents of files. All of
    /// it appears at once at the end, or nothing does. Exit code 1: something was left out, such as
    /// files that vanished meanwhile, or the namespace itself if it lies in the tree. The namespace
    /// must not be mounted.
    ///
    /// A namespace on several servers can be in use. Entries appear one after the other; a new directory
    /// of --into is closed to users until all are there. If it is interrupted, the same command goes on.
    ///
    /// Example: canopy ns import /home /srv/projects --into /home --data
    Import(Import),
    /// Write a tree of a namespace into a directory of the system
    ///
    /// Writes everything that 'canopy ns import' copies, except times of birth and of changes of
    /// attributes, which nobody can set. Exit code 1: the copy is not complete. Something could not
    /// be written, such as owners by users other than root, or read, since files of the namespace
    /// are damaged. The rest is written.
    ///
    /// Root can export a mounted namespace. To copy files whole while they are written to, make a
    /// snapshot and export that.
    ///
    /// Example: canopy ns export /srv/projects:/home /mnt/copy
    Export {
        /// The namespace, and the directory in it [default: its root]
        #[arg(value_name = "NAMESPACE[:PATH]")]
        source: PathBuf,
        /// A directory that is empty, or not there yet
        directory: PathBuf,
        /// Write the tree as this snapshot has it
        #[arg(long, value_name = "NAME")]
        snapshot: Option<String>,
    },
    /// Add up the space that directories of a namespace take, as du(1) does
    ///
    /// Files with several names are counted once. Files that were imported without their contents
    /// count the space that these took where they came from. Root can read a mounted namespace.
    ///
    /// Example: canopy ns du -h --max-depth 1 /srv/projects:/home
    #[command(disable_help_flag = true)]
    Du(Du),
    /// Find files with find(1)'s expressions, in the records of a namespace
    ///
    /// Paths are those in the namespace, and absolute links lead from its root. Tests and actions
    /// are those of 'canopy find', except -exec, -ok and -delete. Indexes of attributes are used
    /// where they help, so that not every file is read. The search finds everything, as the owner
    /// of the namespace may see it. Only root can search a mounted namespace.
    ///
    /// Example: canopy ns find /srv/projects:/home -user ann -size +1M
    Find(Find),
    /// Make, list, delete and restore snapshots: the tree as it was
    ///
    /// Where a namespace is mounted, every directory shows itself as it was in '[@NAME]'. Nothing is
    /// copied but large files, when they are first changed after the snapshot. It may be in use: name
    /// the directory that it is mounted on then, as root or as who mounted it.
    ///
    /// Example: canopy ns snapshot create /projects monday
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Name queries: '.canopy/views/NAME' on a mount shows the results of one
    ///
    /// A view is a symbolic link to a query. Each user who lists it sees the files that the query
    /// shows to that user.
    ///
    /// Example: canopy ns view add /projects big 'raw/[size>1G and age>1y]'
    #[command(subcommand)]
    View(ViewCommand),
    /// List the files that a query on a mount finds, or explain how it is answered or why it fails
    ///
    /// PATH ends with one or several queries in brackets, as docs/queries.md has them. Paths are
    /// printed relative to the directory that they hang below. --explain marks the mistake in a query
    /// that fails, and otherwise prints which indexes the query uses.
    ///
    /// Example: canopy ns query --explain '/projects/[size>1G and age>1y]'
    Query {
        /// A query on a mount
        path: PathBuf,
        /// Explain the query instead of running it
        #[arg(long)]
        explain: bool,
    },
    /// Mount a namespace on a directory
    ///
    /// The kernel checks permissions. Mounted by root, every user may use it. It is unmounted by
    /// 'canopy ns unmount' or umount(8).
    ///
    /// Example: canopy ns mount /srv/projects /projects
    Mount(Mount),
    /// Unmount a namespace, and wait until all of it is on the disk
    ///
    /// Example: canopy ns unmount /projects
    Unmount {
        /// Where it is mounted
        directory: PathBuf,
    },
}
