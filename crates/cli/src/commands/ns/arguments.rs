//! Arguments of single commands of `canopy ns`.

use crate::limits::thread_count;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Create {
    /// An empty directory, or a new one in an existing directory; or a bucket that is empty below
    /// PREFIX: s3://BUCKET/PREFIX, or DIRECTORY+s3://BUCKET/PREFIX
    pub namespace: PathBuf,
    /// Keep contents of so many bytes at most with the records
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub inline: usize,
    /// Keep larger contents in objects of this size, beside the records, such as 4M [default: files
    /// of the directory, or 4M in a bucket or with --shared]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub chunk_size: Option<u64>,
    /// Make it in a directory of a file system that many machines share (Lustre, GPFS, CephFS, NFS 4),
    /// so that all of them can use it; contents are in objects
    #[arg(long)]
    pub shared: bool,
    /// Make it for N servers, in a directory that many machines share or in a bucket; 'canopy cluster'
    /// runs them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub servers: Option<u32>,
    /// Split a partition of a directory beyond about N entries [default: 8000]
    #[arg(
        long, value_name = "N", requires = "servers",
        value_parser = clap::value_parser!(u64).range(16..=1_000_000_000)
    )]
    pub split_entries: Option<u64>,
    /// Give each server up to N partitions of a directory; larger ones are not split further [default:
    /// 4]
    #[arg(
        long, value_name = "N", requires = "servers",
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub partitions_per_server: Option<u32>,
    /// Keep indexes of these attributes, with commas between them, or of none [default: size, uid,
    /// gid, mtime, ext]
    #[arg(long, value_name = "ATTRIBUTES", value_delimiter = ',')]
    pub indexes: Vec<String>,
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    canopy_text::parse_size(text).map_err(|error| error.to_string())
}

fn parse_some_bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).and_then(|bytes| match bytes {
        0 => Err("give more than nothing".to_owned()),
        bytes => Ok(bytes),
    })
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
pub struct Check {
    /// The namespace, or where it is mounted
    pub place: PathBuf,
    /// Repair the faults; users who change something wait meanwhile
    #[arg(long)]
    pub repair: bool,
    /// Also read all contents that lie in storage, and compare them with their checksums
    #[arg(long)]
    pub data: bool,
    /// Check the contents of this snapshot instead
    #[arg(long, value_name = "NAME", conflicts_with = "repair")]
    pub snapshot: Option<String>,
    /// The file of the server's certificate, if the namespace has servers [default:
    /// NAMESPACE/server.pem, if it is there]
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct Quota {
    /// The namespace, or where it is mounted
    pub place: PathBuf,
    #[command(flatten)]
    pub account: Account,
    /// Most bytes that the account may use, such as 10G; with a soft limit before: 10G:12G. 0 means
    /// unlimited
    #[arg(long, value_name = "[SOFT:]HARD", requires = "one")]
    pub bytes: Option<String>,
    /// Allow N files of all kinds, such as 1M
    #[arg(long, value_name = "[SOFT:]HARD", requires = "one")]
    pub inodes: Option<String>,
    /// Allow use above the soft limits for this long, such as 12h [default: 7d]
    #[arg(long, value_name = "TIME", requires = "one")]
    pub grace: Option<String>,
    /// Remove the limits; a tree is then no longer counted
    #[arg(long, requires = "one", conflicts_with_all = ["bytes", "inodes", "grace"])]
    pub remove: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The account that a quota is for.
#[derive(clap::Args)]
#[group(id = "one", multiple = false)]
pub struct Account {
    /// A user, by name or number
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// A group, by name or number
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// A directory and all below it, by its path in the namespace. --remove also takes its number
    #[arg(long, value_name = "PATH")]
    pub tree: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct Import {
    /// The directory whose contents are copied
    pub source: PathBuf,
    /// The namespace, which must not be mounted, or whose servers run
    pub namespace: PathBuf,
    /// The directory of the namespace to import into, made if it is missing. If it is new or empty,
    /// it gets the attributes of SOURCE
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub into: PathBuf,
    /// Also copy the contents of files; without this, files that are not empty cannot be opened
    #[arg(long)]
    pub data: bool,
    /// Also copy file systems that are mounted below SOURCE
    #[arg(long)]
    pub cross_mounts: bool,
    /// Print JSON, one object
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct Du {
    /// The namespace, and a directory or a file in it [default: its root]
    #[arg(value_name = "NAMESPACE[:PATH]")]
    pub place: PathBuf,
    /// Print one line for PATH
    #[arg(long, short)]
    pub summarize: bool,
    /// Print sizes for people, such as 4.0K or 12M
    #[arg(long, short = 'h')]
    pub human_readable: bool,
    /// Print lines only for directories at most N levels below PATH
    #[arg(long, short = 'd', value_name = "N")]
    pub max_depth: Option<usize>,
    /// Print a line for every file too
    #[arg(long, short)]
    pub all: bool,
    /// Add up sizes instead of the space taken on disk
    #[arg(long)]
    pub apparent_size: bool,
    /// Add up the files of this snapshot
    #[arg(long, value_name = "NAME")]
    pub snapshot: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub help: Option<bool>,
}

#[derive(clap::Args)]
pub struct Find {
    /// The namespace or where it is mounted, and a path in it [default: its root]; then an
    /// expression
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "NAMESPACE[:PATH]... EXPRESSION"
    )]
    pub arguments: Vec<OsString>,
}

#[derive(clap::Args)]
pub struct Mount {
    /// The namespace: its directory or bucket; or canopy://HOST:PORT,HOST:PORT for one whose servers
    /// listen there
    pub namespace: PathBuf,
    /// Where to mount it
    pub directory: PathBuf,
    /// Stay in the foreground until it is unmounted, or Ctrl-C
    #[arg(long, short)]
    pub foreground: bool,
    /// Mount read-only. Unless contents are in objects (--chunk-size), this needs no room on a full
    /// disk, even after a crash
    #[arg(long)]
    pub read_only: bool,
    /// Show the tree as this snapshot has it, and let nothing be changed
    #[arg(long, value_name = "NAME")]
    pub snapshot: Option<String>,
    /// Let only yourself use it, even if you are root
    #[arg(long)]
    pub private: bool,
    /// Answer the kernel with so many threads [default: as many as there are processors; for a namespace
    /// on several servers at least 16]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<NonZeroUsize>,
    /// Read and write large files in this process, even if the kernel could do so itself
    #[arg(long)]
    pub no_passthrough: bool,
    /// Cache contents that lie in storage in this directory [default: contents in the namespace's
    /// directory; for s3:// and with --shared one below $XDG_CACHE_HOME/canopy/namespaces]
    #[arg(long, value_name = "DIRECTORY")]
    pub cache: Option<PathBuf>,
    /// Cache so much of them at most [default: 4G; for a namespace on several servers 128M, in memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_some_bytes)]
    pub cache_size: Option<u64>,
    /// The file of the certificate by which servers know this machine or user [default: server.pem in the
    /// namespace's directory, if it can be read]
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Where this machine finds the storage of the servers, in which contents of large files lie; 'none'
    /// does without these contents [default: as the servers name it]
    #[arg(long, value_name = "PLACE")]
    pub storage: Option<PathBuf>,
    /// Options as of mount(8), for /etc/fstab: ro, nosuid, nodev and noexec; for a namespace on several
    /// servers also certificate=FILE, storage=PLACE, and cache=SECONDS, for which the kernel caches
    /// names and attributes [default: 1 for directories, 0 for all else]. Other options of mount(8) change
    /// nothing; unknown ones are refused
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Print a line to standard output when it is mounted, and detach from the terminal
    #[arg(long, hide = true)]
    pub detached: bool,
}
