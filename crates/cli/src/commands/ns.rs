//! `canopy ns`: its arguments. `canopy-ns` carries it out.

use clap::Subcommand;
use std::path::PathBuf;

/// Make namespaces: file systems whose metadata is a table that is searched as fast as it is read
///
/// NAMESPACE is the directory that has one: its records, and the contents of large files.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Make an empty namespace
    ///
    /// Its root directory belongs to whoever makes it.
    ///
    /// Example: canopy ns create /srv/projects
    Create {
        /// A directory that is empty, or not there yet
        namespace: PathBuf,
        /// Keep contents of so many bytes at most with the records
        #[arg(long, value_name = "BYTES", default_value_t = 4096)]
        inline: usize,
        /// Keep indexes of these attributes, with commas between them, or of none [default: size,
        /// uid, gid, mtime, ext]
        #[arg(long, value_name = "ATTRIBUTES", value_delimiter = ',')]
        indexes: Vec<String>,
    },
    /// Tell what a namespace has
    ///
    /// Example: canopy ns info /srv/projects
    Info {
        namespace: PathBuf,
        /// Print JSON, one object
        #[arg(long)]
        json: bool,
    },
    /// Check every record against all others
    ///
    /// Each fault is a line, the last line a summary; exit code 1 tells of faults. It may be in use:
    /// name the directory that it is mounted on then, as root.
    ///
    /// Example: canopy ns check /projects
    Check {
        /// The namespace, or where it is mounted
        place: PathBuf,
    },
    /// Show or change which attributes there are indexes of
    ///
    /// Queries of these attributes are answered without looking at every file. Indexes that are
    /// added to a mounted namespace are built while it is in use, and are in parentheses until they
    /// are complete. Attributes are size, blocks, uid, gid, links, project, type, mtime, ctime,
    /// atime, btime, ext, name, and extended ones.
    ///
    /// Example: canopy ns index /projects --add atime,user.run
    Index(Index),
    /// Copy a tree of files into a namespace
    ///
    /// Names, types, owners, modes, times, hard links, targets of symbolic links, device numbers,
    /// extended attributes and ACLs are copied, and with --data what the files have in them. All of
    /// it appears at once when it is done, or nothing does. Exit code 1 tells that something was
    /// left out, such as files that vanished meanwhile. The namespace must not be mounted.
    ///
    /// Example: canopy ns import /home /srv/projects --into /home --data
    Import(Import),
    /// Write a tree of a namespace into a directory of the system
    ///
    /// All is written that 'canopy ns import' copies, but for times of birth and of changes of
    /// attributes, which nobody can set. Exit code 1 tells that something could not be written, such
    /// as owners by others than root. The namespace must not be mounted.
    ///
    /// Example: canopy ns export /srv/projects:/home /mnt/copy
    Export {
        /// The namespace, and the directory in it [default: its root]
        #[arg(value_name = "NAMESPACE[:PATH]")]
        source: PathBuf,
        /// A directory that is empty, or not there yet
        directory: PathBuf,
    },
    /// Add up the space that directories of a namespace take, as du(1) does
    ///
    /// Files with several names are counted once. Files that were imported without their contents
    /// count what these took where they came from. The namespace must not be mounted.
    ///
    /// Example: canopy ns du -h --max-depth 1 /srv/projects /home
    #[command(disable_help_flag = true)]
    Du(Du),
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

#[derive(clap::Args)]
pub struct Index {
    /// The namespace, or where it is mounted
    pub place: PathBuf,
    /// Add indexes of these, with commas between them
    #[arg(long, value_name = "ATTRIBUTES", value_delimiter = ',')]
    pub add: Vec<String>,
    /// Remove the indexes of these
    #[arg(long, value_name = "ATTRIBUTES", value_delimiter = ',')]
    pub remove: Vec<String>,
}

#[derive(clap::Args)]
pub struct Import {
    /// The directory whose contents are copied
    pub source: PathBuf,
    pub namespace: PathBuf,
    /// The directory of the namespace that they go into, made if it is missing: a new or an empty
    /// one takes on the attributes of SOURCE
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub into: PathBuf,
    /// Copy what files have in them; without this, files that are not empty cannot be opened
    #[arg(long)]
    pub data: bool,
    /// Also copy what is mounted below SOURCE
    #[arg(long)]
    pub cross_mounts: bool,
}

#[derive(clap::Args)]
pub struct Du {
    pub namespace: PathBuf,
    /// A directory or a file in it
    #[arg(default_value = "/")]
    pub path: PathBuf,
    /// Print one line for PATH
    #[arg(long, short)]
    pub summarize: bool,
    /// Print sizes for people, such as 4.0K or 12M
    #[arg(long, short = 'h')]
    pub human_readable: bool,
    /// Print lines for what is at most N levels below PATH
    #[arg(long, short = 'd', value_name = "N")]
    pub max_depth: Option<usize>,
    /// Print a line for every file too
    #[arg(long, short)]
    pub all: bool,
    /// Add up sizes instead of the space taken on disk
    #[arg(long)]
    pub apparent_size: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub help: Option<bool>,
}

#[derive(clap::Args)]
pub struct Mount {
    pub namespace: PathBuf,
    /// Where to mount it
    pub directory: PathBuf,
    /// Stay in the foreground until it is unmounted, or Ctrl-C
    #[arg(long, short)]
    pub foreground: bool,
    /// Let nothing be changed
    #[arg(long)]
    pub read_only: bool,
    /// Let only yourself use it, though you are root
    #[arg(long)]
    pub private: bool,
    /// Answer the kernel with so many threads [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Read and write large files for the kernel, though it could itself
    #[arg(long)]
    pub no_passthrough: bool,
    /// Options as of mount(8), for /etc/fstab: ro is understood, others are left to the system
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Tell on standard output when it is mounted, and leave the terminal
    #[arg(long, hide = true)]
    pub detached: bool,
}
