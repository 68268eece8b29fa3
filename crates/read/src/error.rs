//! What can go wrong with a read.

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong with a read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The index cannot be read.
    #[error(transparent)]
    Index(#[from] canopy_index::Error),
    /// No source holds this path.
    #[error("no index covers {path}{hint}; indexed are: {covered}")]
    NotCovered {
        /// The absolute path.
        path: String,
        /// What helps, to be read behind the path; empty if nothing does.
        hint: String,
        /// The roots of the sources that the caller may know of.
        covered: String,
    },
    /// A source holds the path, but nothing is there that the caller may see.
    #[error("{0}: no such file or directory in the index, or not for you to see")]
    NotFound(String),
    /// A symbolic link that is looked through leads to where the index knows nothing.
    #[error("{0}: this link leads out of the index, or through what is not for you to see")]
    LeadsOut(String),
    /// More symbolic links are on the way than the kernel follows for one path.
    #[error("{0}: too many levels of symbolic links")]
    TooManyLinks(String),
    /// A relative path has nothing to begin from.
    #[error("cannot tell the working directory")]
    WorkingDirectory(#[source] std::io::Error),
}

impl Error {
    /// Returns whether a path that the user gave has no answer, which leaves the answers for other
    /// paths.
    pub fn is_of_path(&self) -> bool {
        match self {
            Error::NotCovered { .. }
            | Error::NotFound(_)
            | Error::LeadsOut(_)
            | Error::TooManyLinks(_) => true,
            Error::Index(_) | Error::WorkingDirectory(_) => false,
        }
    }
}
