//! Faults of a record or a file, without its place.

use std::borrow::Cow;
use std::fmt::Display;

/// A fault of a record or a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A text that is not what it must be.
    #[error("got '{got}', expected {expected}")]
    Value {
        /// The text, with unprintable characters made visible.
        got: String,
        /// Description of valid texts.
        expected: Cow<'static, str>,
    },
    /// A number out of its range.
    #[error("got {got}, expected {expected}")]
    Range {
        /// The number.
        got: u64,
        /// Description of valid numbers.
        expected: &'static str,
    },
    /// Nothing where something must be.
    #[error("no {0}")]
    Missing(Cow<'static, str>),
    /// A name or a path that no entry can have, or none at this place.
    #[error("{0}")]
    Name(Cow<'static, str>),
    /// Parts of the input that contradict each other, or values that mean nothing.
    #[error("{0}")]
    Contradiction(Cow<'static, str>),
    /// Bytes that do not have the form of a record or of a file.
    #[error("{0}")]
    Form(Cow<'static, str>),
    /// An error from the reader of JSON, Parquet or SQLite.
    #[error("{0}")]
    Decoder(String),
    /// A fault in a part of a record.
    #[error("{part}: {fault}")]
    In {
        /// The part.
        part: String,
        /// The fault in it.
        fault: Box<Fault>,
    },
}

/// The result of understanding a part of an input.
pub(crate) type Checked<T> = Result<T, Fault>;

impl Fault {
    pub(crate) fn value(got: &[u8], expected: impl Into<Cow<'static, str>>) -> Self {
        Fault::Value { got: got.escape_ascii().to_string(), expected: expected.into() }
    }

    pub(crate) fn missing(what: impl Into<Cow<'static, str>>) -> Self {
        Fault::Missing(what.into())
    }

    pub(crate) fn name(text: impl Into<Cow<'static, str>>) -> Self {
        Fault::Name(text.into())
    }

    pub(crate) fn contradiction(text: impl Into<Cow<'static, str>>) -> Self {
        Fault::Contradiction(text.into())
    }

    pub(crate) fn form(text: impl Into<Cow<'static, str>>) -> Self {
        Fault::Form(text.into())
    }

    pub(crate) fn decoder(error: impl Display) -> Self {
        Fault::Decoder(error.to_string())
    }

    /// Says in which part the fault is.
    pub(crate) fn within(self, part: impl Display) -> Self {
        Fault::In { part: part.to_string(), fault: Box::new(self) }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Fault::decoder(error)
    }
}

impl From<Fault> for String {
    fn from(fault: Fault) -> Self {
        fault.to_string()
    }
}
