//! Errors of an index, and their kinds, by which callers handle them.

use canopy_model::{ErrorKind, Generation};
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of an index.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no index at this path.
    #[error("no index at {0}; make one with 'canopy index PATH', or name another with --index")]
    NoIndex(PathBuf),
    /// There is no generation yet, since the first scan has not come to its end.
    #[error("the index at {path} is not complete: {state}")]
    NotComplete {
        /// The index.
        path: PathBuf,
        /// The progress of the scan, and the command that continues it.
        state: String,
    },
    /// A generation was asked for that is not there.
    #[error("generation {number} is not kept; {}", nearest_generations(*nearest))]
    NotKept {
        /// Its number.
        number: Generation,
        /// Those next to it that are there, an older and a newer one.
        nearest: [Option<Generation>; 2],
    },
    /// A time was asked for before anything that is there was published.
    #[error(
        "nothing is kept from before generation {0}: 'canopy info' tells when that was published, \
         'canopy index --keep' how much of the past is kept from now on"
    )]
    BeforeOldest(Generation),
    /// The caller may not see older generations.
    #[error(
        "the past of the index at {0} is only for those who write it; name one of your own with \
         --index"
    )]
    PastDenied(PathBuf),
    /// An older generation cannot be read any more.
    #[error("generation {generation} is lost, since {path} is damaged; others do not need it")]
    PastDamaged {
        /// Its number.
        generation: Generation,
        /// The file.
        path: PathBuf,
    },
    /// A file of a shard is not there, or not for the caller.
    #[error(
        "cannot read {path}; if the index has been written meanwhile, run the command again, else \
         'canopy check'"
    )]
    ShardFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The operating system refused.
    #[error("cannot {action} {path}")]
    Io {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of the index does not hold what it must.
    #[error("{path} ({}) is damaged: {detail}; {}", contents(path), remedy(path))]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Description of the damage.
        detail: String,
    },
    /// A file of the index was written by another version of Canopy.
    #[error(
        "{path} has format {found}, this canopy reads format {expected}; {}",
        if found > expected { "use the newer canopy that wrote it" } else { anew(path) }
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: u32,
        /// The format that can be read.
        expected: u32,
    },
    /// There is something in the directory, and nothing proves that it is an index.
    #[error(
        "{0} is not empty and no index of canopy's, which would have a file 'lock' with its key; name an empty or a new directory with --index"
    )]
    NotAnIndex(PathBuf),
    /// Another writer is at work.
    #[error("another canopy is writing to {0}; wait until it is done")]
    Locked(PathBuf),
    /// Workers share a scan of it.
    #[error(
        "workers share a scan for {0}; wait until they have published it, join them with 'canopy \
         index --worker', or give up what they have done with 'canopy index --restart'"
    )]
    Shared(PathBuf),
    /// Others have gone on with what this worker had, or it was published or given up.
    #[error("this worker was taken for dead, or what it scans was published or given up")]
    WorkerLost,
    /// A directory is not safe from others.
    #[error("{path} is not a safe place: {why}")]
    Unsafe {
        /// The directory at fault.
        path: PathBuf,
        /// Description of the fault.
        why: String,
    },
    /// A name is taken by another source.
    #[error("the name '{name}' belongs to the source {root}; choose another with --name")]
    NameTaken {
        /// The name.
        name: String,
        /// The root of the source that has it.
        root: String,
    },
    /// A source cannot be called like a path that it is not.
    #[error("'{0}' is not a name but a path; choose one that does not begin with '/'")]
    NameIsPath(String),
    /// There is no source with this root.
    #[error("{0} is not a source of the index; 'canopy info' names those that are")]
    NoSource(String),
    /// A subtree of another source cannot have a name.
    #[error("{root} lies in the source {above} and is replaced there; leave out --name")]
    InSource {
        /// The root of the subtree.
        root: String,
        /// The root of the source.
        above: String,
    },
    /// A column of a batch was asked for that was not read.
    #[error("the column {0} was not read: a fault of canopy")]
    NotRead(&'static str),
    /// There is such a table already.
    #[error("there is a table '{0}' already; 'canopy table drop {0}' removes it")]
    TableTaken(String),
    /// There is no such table among those that were added.
    #[error("no table '{0}' was added to the index; 'canopy table list' names those that were")]
    NoTable(String),
}

impl Error {
    /// Returns what a caller should make of it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NoIndex(_)
            | Error::NotComplete { .. }
            | Error::NoSource(_)
            | Error::NoTable(_)
            | Error::NotKept { .. }
            | Error::BeforeOldest(_) => ErrorKind::NotFound,
            Error::Io { source, .. } | Error::ShardFile { source, .. } => ErrorKind::of_io(source),
            Error::PastDenied(_) => ErrorKind::Denied,
            Error::Corrupt { .. } | Error::PastDamaged { .. } | Error::Version { .. } => {
                ErrorKind::Corrupt
            }
            Error::Locked(_) | Error::Shared(_) => ErrorKind::Busy,
            Error::WorkerLost => ErrorKind::Taken,
            Error::NotAnIndex(_)
            | Error::Unsafe { .. }
            | Error::NameTaken { .. }
            | Error::NameIsPath(_)
            | Error::InSource { .. }
            | Error::TableTaken(_) => ErrorKind::Invalid,
            Error::NotRead(_) => ErrorKind::Internal,
        }
    }

    /// Returns the damaged or missing file of the index, if that is the error. A scan that lists
    /// all of a source anew replaces the parts of such a file that belong to it.
    pub fn damaged_file(&self) -> Option<&Path> {
        // A sector that the disk cannot read.
        let is_unreadable = |error: &io::Error| {
            error.raw_os_error() == Some(Errno::IO.raw_os_error())
                || error.kind() == io::ErrorKind::UnexpectedEof
        };
        match self {
            Error::Corrupt { path, .. } => Some(path),
            Error::Io { action: "read", path, source } if is_unreadable(source) => Some(path),
            Error::Io { path, source, .. } | Error::ShardFile { path, source } => {
                (source.kind() == io::ErrorKind::NotFound).then_some(path)
            }
            _ => None,
        }
    }

    /// Describes the damage of a file, without its path and a remedy.
    pub(crate) fn damage(&self) -> String {
        match self {
            Error::Corrupt { detail, .. } => detail.clone(),
            Error::Io { source, .. } | Error::ShardFile { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => "it is missing".to_owned(),
                _ => format!("it cannot be read: {source}"),
            },
            other => other.to_string(),
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    }

    /// Returns what it means that something cannot be encoded for a file.
    pub(crate) fn encode<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> Error + use<E> {
        let path = path.to_owned();
        move |error| {
            let source = io::Error::other(error.to_string());
            Error::Io { action: "encode", path: path.clone(), source }
        }
    }

    pub(crate) fn corrupt(path: &Path, detail: impl std::fmt::Display) -> Error {
        Error::Corrupt { path: path.to_owned(), detail: detail.to_string() }
    }
}

/// Names the kept generations next to one that is not kept.
fn nearest_generations(nearest: [Option<Generation>; 2]) -> String {
    match nearest {
        [Some(older), Some(newer)] => format!("the nearest are {older} and {newer}"),
        [Some(last), None] => format!("the last is {last}"),
        [None, first] => format!("the oldest is {}", first.unwrap_or_default()),
    }
}

/// Returns the advice for an unreadable index that contains this file.
fn anew(path: &Path) -> &'static str {
    match is_callers(path) {
        true => "remove the index and index its sources again",
        false => "whoever writes the index can remove it and index its sources again",
    }
}

/// Returns the remedy for a damaged file.
fn remedy(path: &Path) -> &'static str {
    match is_callers(path) {
        true => "'canopy check' names all damage, 'canopy check --repair' repairs it",
        false => "whoever writes the index can repair it with 'canopy check --repair'",
    }
}

/// Returns whether the caller is root, or owns a file or, where that is missing, its directory.
fn is_callers(path: &Path) -> bool {
    let directory = path.parent().unwrap_or(path);
    let about = path.symlink_metadata().or_else(|_| directory.symlink_metadata());
    let caller = rustix::process::geteuid();
    about.is_ok_and(|about| caller.is_root() || about.uid() == caller.as_raw())
}

/// Describes the contents of a file of an index, by its name.
pub(crate) fn contents(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_list = path.parent().is_some_and(|directory| directory.ends_with("lists"));
    let of_id = |name: &str| name.split_once('-').map_or(String::new(), |(id, _)| id.to_owned());
    let text = match &*name {
        "CURRENT" => "the number of the current generation",
        "CURRENT.copy" => "a copy of CURRENT",
        "everyone" | "classes" | "lists" | "and" | "gated" => "a directory of the index",
        "lock" => "the key of the index",
        "failures" => "sources that could not be indexed",
        name if is_list => {
            let of = if name.starts_with('g') { "the members of gid" } else { "uid" };
            let id = of_id(name);
            return format!("the list of classes for {of} {}", id.trim_start_matches(['u', 'g']));
        }
        name if name.starts_with("table-") => "rows of a derived table",
        name if name.starts_with("catalog-") => "the list of classes for everybody",
        name if name.starts_with("manifests-") => "the list of all classes, for the writer",
        name if name.ends_with("-bundle.bin") => "contents of classes, for the writer",
        name if name.starts_with("manifest-") => "contents of a class, for its readers",
        name if name.ends_with("-page.bin") => "places of listings",
        name if name.ends_with("-sealed.bin") => "names behind directories that cannot be listed",
        name if name.ends_with("-listings.parquet") => "directories and their sums",
        name if name.ends_with("-entries.parquet") => "files",
        name if name.ends_with("-dirs.parquet") => "subdirectories",
        name if name.ends_with("-usage.parquet") => "sums by owner and group",
        name if name.ends_with("-hardlinks.parquet") => "files with several names",
        name if name.ends_with("-summaries.parquet") => "statistics of directories",
        name if name.ends_with("-xattrs.parquet") => "values of extended attributes",
        _ => "a part of the index",
    };
    text.to_owned()
}

/// Returns what went wrong with the file that a Parquet file was written to: the library hides it
/// in its own error.
pub fn parquet_write_error(error: parquet::errors::ParquetError) -> io::Error {
    use parquet::errors::ParquetError;
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(cause) => *cause,
            Err(cause) => io::Error::other(cause),
        },
        other => io::Error::other(other),
    }
}
