//! Faults of texts that somebody typed.

use canopy_model::ErrorKind;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A fault of a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A shell pattern that takes too much memory.
    #[error("the pattern '{0}' is too large")]
    LargePattern(String),
    /// No size.
    #[error("invalid size '{0}'")]
    Size(String),
    /// A size with something behind it that is not a unit.
    #[error("invalid suffix in size '{0}'")]
    SizeSuffix(String),
    /// A size of more than 64 bits.
    #[error("size '{0}' is too large")]
    LargeSize(String),
    /// A size that cannot be a unit.
    #[error("invalid block size '{0}'")]
    BlockSize(String),
    /// No style of times.
    #[error("unknown time style '{style}': give {known}")]
    TimeStyle {
        /// The given style.
        style: String,
        /// The styles that there are.
        known: &'static str,
    },
    /// A style of times with more than two lines.
    #[error("'{0}' has too many lines")]
    TimeStyleLines(String),
    /// No syntax of regular expressions.
    #[error(
        "Unknown regular expression type ‘{0}’; valid types are ‘findutils-default’, ‘ed’, \
         ‘emacs’, ‘gnu-awk’, ‘grep’, ‘posix-awk’, ‘awk’, ‘posix-basic’, ‘posix-egrep’, ‘egrep’, \
         ‘posix-extended’, ‘posix-minimal-basic’, ‘sed’."
    )]
    Syntax(String),
    /// No regular expression.
    #[error("failed to compile regular expression '{pattern}': {why}")]
    Regex {
        /// The given expression.
        pattern: String,
        /// The fault, in the words of regcomp(3).
        why: &'static str,
    },
    /// A regular expression with back-references that takes too long on a path.
    #[error("the regular expression '{pattern}' takes too many steps on ‘{path}’")]
    RegexSteps {
        /// The given expression.
        pattern: String,
        /// The path, escaped.
        path: String,
    },
}

impl Error {
    /// Returns the kind, by which callers handle the error.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}
