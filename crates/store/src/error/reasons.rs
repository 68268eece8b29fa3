//! Reasons why the engine refuses something.

use crate::batch::BATCH_BYTES_MAX;
use crate::key::{Key, NAME_MAX};
use crate::names::TableId;
use crate::record::VALUE_MAX;
use canopy_model::ErrorKind;
use std::path::PathBuf;

/// Why a process may not go on: others have what it needs, or have ended its job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fenced {
    /// Another process has the lock of a table in a local directory.
    #[error("{}: another process writes this table", .0.display())]
    Locked(PathBuf),
    /// Another process has ended the log, to open the table for writing.
    #[error("table {0}: another process opened it for writing")]
    LogTaken(TableId),
    /// Others have opened the table for writing since.
    #[error("table {table}: opened for writing {times} times since")]
    Reopened {
        /// The table.
        table: TableId,
        /// How often it was opened.
        times: u64,
    },
    /// Others have closed the job of the table's writer.
    #[error("the writer's job was closed")]
    WriterClosed,
    /// Others have closed a job whose time was over.
    #[error("job {0} was closed by another process")]
    JobClosed(u64),
    /// Others have ended an ingestion whose time was over.
    #[error("the ingestion took too long, and others ended it; begin it anew")]
    IngestionEnded,
    /// Others have changed runs while they were merged.
    #[error("the runs that were merged have changed")]
    RunsChanged,
    /// An earlier error has ended all writes of this opening.
    #[error("nothing more can be written: {said}")]
    Ended {
        /// The kind of the earlier error.
        kind: ErrorKind,
        /// The message of the earlier error.
        said: String,
    },
}

impl Fenced {
    /// Returns what a caller should make of it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Fenced::Locked(_)
            | Fenced::LogTaken(_)
            | Fenced::Reopened { .. }
            | Fenced::WriterClosed => ErrorKind::Taken,
            // The work can begin anew at once.
            Fenced::JobClosed(_) | Fenced::IngestionEnded | Fenced::RunsChanged => ErrorKind::Busy,
            // This opening never succeeds again, but another one may.
            Fenced::Ended { kind, .. } => match kind {
                ErrorKind::Busy | ErrorKind::Exhausted | ErrorKind::Denied => {
                    ErrorKind::Unavailable
                }
                kind => *kind,
            },
        }
    }
}

/// An impossible request of a caller.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// A name in a key is too long.
    #[error("a name of {0} bytes; at most {NAME_MAX}")]
    LongName(usize),
    /// A value is too long.
    #[error("a value of {0} bytes; at most {VALUE_MAX}")]
    LongValue(usize),
    /// A batch is too large.
    #[error("a batch of {0} bytes; at most {BATCH_BYTES_MAX}")]
    LargeBatch(usize),
    /// Batches that go into the log together are too large.
    #[error("more than 4 GiB of changes at once")]
    LargeGroup,
    /// A key lies outside of the table's range.
    #[error("a key that is not in the table's range")]
    OutOfRange,
    /// An ingestion got the removal of a range.
    #[error("an ingestion adds records alone")]
    NotARecord,
    /// An ingestion goes on after an error.
    #[error("records of this ingestion were lost; begin it anew")]
    LostRecords,
    /// A record does not fit behind those before it in an SSTable.
    #[error("record {key:?} {fault}")]
    Record {
        /// The key of the record.
        key: Key,
        /// Fault of the record.
        fault: RecordFault,
    },
    /// A clone has nothing to begin from.
    #[error("a clone of no table")]
    NoBase,
    /// Tables differ too much for one clone.
    #[error("the tables have different layouts or merge operators")]
    DifferentTables,
    /// The records of a table need another merge operator.
    #[error("the table's merges are by {expected:?}, not by {got:?}")]
    MergeOperator {
        /// The name of the operator that the table needs.
        expected: String,
        /// The name of the operator that the caller has.
        got: String,
    },
    /// A layout contradicts itself.
    #[error("the widths or references of the layout are wrong")]
    Layout,
    /// There is such a table already.
    #[error("there is a table {0} already")]
    TableExists(TableId),
    /// A clone is still being made.
    #[error("table {0} is not made yet")]
    Unmade(TableId),
    /// A part of an SSTable cannot be encoded.
    #[error("{0}")]
    SectionEncoding(postcard::Error),
    /// The state of a table cannot be encoded.
    #[error("this state cannot be written: {0}")]
    StateEncoding(postcard::Error),
    /// A loss cannot be encoded.
    #[error("this loss cannot be noted: {0}")]
    LossEncoding(postcard::Error),
    /// Storage overwrites objects, or lists them late.
    #[error(
        "this storage overwrites objects that must be created once, or does not list them at once; \
         tables would lose data in it"
    )]
    OverwritingStorage,
    /// Storage does not have what it took.
    #[error("this storage does not list or read what it has")]
    ForgetfulStorage,
    /// Storage does not list objects in the order of their names.
    #[error("this store lists objects out of order; tables would lose data in it")]
    UnorderedStorage,
    /// Storage takes no changes.
    #[error("'{0}' changes nothing")]
    ReadOnlyStorage(&'static str),
    /// Storage is named or set up wrongly, by the crate that has it.
    #[error("{cause}")]
    Setup {
        /// Kind that the error is reported as.
        kind: ErrorKind,
        /// The error of that crate.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A fault of a record for an SSTable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// Its key is not greater than the one before.
    #[error("comes after a key that is not less")]
    Order,
    /// Its name is longer than [`NAME_MAX`].
    #[error("has a name that is too long")]
    LongName,
    /// Its value is longer than [`VALUE_MAX`].
    #[error("has a value that is too long")]
    LongValue,
    /// It deletes a record and has a value.
    #[error("is a delete with a value")]
    ValueOfDelete,
}

impl Invalid {
    /// Returns what a caller should make of it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Invalid::LongName(_)
            | Invalid::LongValue(_)
            | Invalid::LargeBatch(_)
            | Invalid::LargeGroup
            | Invalid::OutOfRange
            | Invalid::NotARecord
            | Invalid::LostRecords
            | Invalid::Record { .. }
            | Invalid::NoBase
            | Invalid::DifferentTables
            | Invalid::MergeOperator { .. }
            | Invalid::Layout
            | Invalid::TableExists(_)
            | Invalid::ReadOnlyStorage(_) => ErrorKind::Invalid,
            Invalid::Unmade(_) => ErrorKind::Busy,
            Invalid::SectionEncoding(_) | Invalid::StateEncoding(_) | Invalid::LossEncoding(_) => {
                ErrorKind::Internal
            }
            // Another storage may be fit for tables.
            Invalid::OverwritingStorage | Invalid::ForgetfulStorage | Invalid::UnorderedStorage => {
                ErrorKind::Unavailable
            }
            Invalid::Setup { kind, .. } => *kind,
        }
    }
}

/// The state that others changed meanwhile, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contended {
    /// The state of a table.
    #[error("table {0}")]
    Table(TableId),
    /// A clone that took too long.
    #[error("making table {0} took too long, and others gave it up")]
    Clone(TableId),
    /// The state of a table, so often that the outcome of the change is not known.
    #[error(
        "table {table}: version {own} may have been written; there is version {latest} already"
    )]
    Overtaken {
        /// The table.
        table: TableId,
        /// The version that has the change, if it was written.
        own: u64,
        /// The latest version.
        latest: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use std::io;

    fn check(cases: impl IntoIterator<Item = (Error, ErrorKind, &'static str)>) {
        for (error, kind, message) in cases {
            assert_eq!(error.to_string(), message);
            assert_eq!(error.kind(), kind, "{message}");
        }
    }

    #[test]
    fn fences_have_kinds_and_messages() {
        let table = TableId(0xab);
        let ended = |kind| Fenced::Ended { kind, said: "log: full".into() };
        let more = "nothing more can be written: log: full";
        check(
            [
                (
                    Fenced::Locked("/t/lock".into()),
                    ErrorKind::Taken,
                    "/t/lock: another process writes this table",
                ),
                (
                    Fenced::LogTaken(table),
                    ErrorKind::Taken,
                    "table 000000000000000000000000000000ab: another process opened it for writing",
                ),
                (
                    Fenced::Reopened { table, times: 2 },
                    ErrorKind::Taken,
                    "table 000000000000000000000000000000ab: opened for writing 2 times since",
                ),
                (Fenced::WriterClosed, ErrorKind::Taken, "the writer's job was closed"),
                (Fenced::JobClosed(7), ErrorKind::Busy, "job 7 was closed by another process"),
                (
                    Fenced::IngestionEnded,
                    ErrorKind::Busy,
                    "the ingestion took too long, and others ended it; begin it anew",
                ),
                (Fenced::RunsChanged, ErrorKind::Busy, "the runs that were merged have changed"),
                (ended(ErrorKind::Exhausted), ErrorKind::Unavailable, more),
                (ended(ErrorKind::Busy), ErrorKind::Unavailable, more),
                (ended(ErrorKind::Denied), ErrorKind::Unavailable, more),
                (ended(ErrorKind::Taken), ErrorKind::Taken, more),
                (ended(ErrorKind::NotFound), ErrorKind::NotFound, more),
            ]
            .map(|(fenced, kind, message)| (fenced.into(), kind, message)),
        );
    }

    #[test]
    fn wrong_requests_have_kinds_and_messages() {
        let table = TableId(0xab);
        let record = |fault| Invalid::Record {
            key: Key { directory: 7, hash: 1, name: b"a".into() },
            fault,
        };
        let cases = [
            (Invalid::LongName(70_000), "a name of 70000 bytes; at most 65535"),
            (Invalid::LongValue(2), "a value of 2 bytes; at most 16777216"),
            (Invalid::LargeBatch(3), "a batch of 3 bytes; at most 67108864"),
            (Invalid::LargeGroup, "more than 4 GiB of changes at once"),
            (Invalid::OutOfRange, "a key that is not in the table's range"),
            (Invalid::NotARecord, "an ingestion adds records alone"),
            (Invalid::LostRecords, "records of this ingestion were lost; begin it anew"),
            (
                record(RecordFault::Order),
                "record 7/0000000000000001/a comes after a key that is not less",
            ),
            (
                record(RecordFault::LongName),
                "record 7/0000000000000001/a has a name that is too long",
            ),
            (
                record(RecordFault::LongValue),
                "record 7/0000000000000001/a has a value that is too long",
            ),
            (
                record(RecordFault::ValueOfDelete),
                "record 7/0000000000000001/a is a delete with a value",
            ),
            (Invalid::NoBase, "a clone of no table"),
            (Invalid::DifferentTables, "the tables have different layouts or merge operators"),
            (
                Invalid::MergeOperator { expected: "sum".into(), got: String::new() },
                "the table's merges are by \"sum\", not by \"\"",
            ),
            (Invalid::Layout, "the widths or references of the layout are wrong"),
            (
                Invalid::TableExists(table),
                "there is a table 000000000000000000000000000000ab already",
            ),
            (Invalid::ReadOnlyStorage("canopy store"), "'canopy store' changes nothing"),
        ];
        check(cases.map(|(invalid, message)| (invalid.into(), ErrorKind::Invalid, message)));
    }

    #[test]
    fn refusals_that_are_not_the_callers_fault_have_other_kinds() {
        let full = postcard::Error::SerializeBufferFull;
        let cause = Box::new(io::Error::other("no bucket"));
        check(
            [
                (
                    Invalid::Unmade(TableId(0xab)),
                    ErrorKind::Busy,
                    "table 000000000000000000000000000000ab is not made yet",
                ),
                (
                    Invalid::SectionEncoding(full.clone()),
                    ErrorKind::Internal,
                    "The serialize buffer is full",
                ),
                (
                    Invalid::StateEncoding(full.clone()),
                    ErrorKind::Internal,
                    "this state cannot be written: The serialize buffer is full",
                ),
                (
                    Invalid::LossEncoding(full),
                    ErrorKind::Internal,
                    "this loss cannot be noted: The serialize buffer is full",
                ),
                (
                    Invalid::OverwritingStorage,
                    ErrorKind::Unavailable,
                    "this storage overwrites objects that must be created once, or does not list \
                     them at once; tables would lose data in it",
                ),
                (
                    Invalid::ForgetfulStorage,
                    ErrorKind::Unavailable,
                    "this storage does not list or read what it has",
                ),
                (
                    Invalid::UnorderedStorage,
                    ErrorKind::Unavailable,
                    "this store lists objects out of order; tables would lose data in it",
                ),
                (Invalid::Setup { kind: ErrorKind::Denied, cause }, ErrorKind::Denied, "no bucket"),
            ]
            .map(|(invalid, kind, message)| (invalid.into(), kind, message)),
        );
    }

    #[test]
    fn other_errors_have_kinds_and_messages() {
        let table = TableId(0xab);
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        check([
            (Error::NotFound("a".into()), ErrorKind::NotFound, "a: no such object"),
            (Error::corrupt("a", "torn"), ErrorKind::Corrupt, "a: torn"),
            (Error::storage("a", full()), ErrorKind::Exhausted, "a: no storage space"),
            (Error::storage("a", full()).deferred(), ErrorKind::Exhausted, "a: no storage space"),
            (
                Error::storage("a", io::Error::other("nobody answers")),
                ErrorKind::Unavailable,
                "a: nobody answers",
            ),
            (
                Contended::Table(table).into(),
                ErrorKind::Busy,
                "table 000000000000000000000000000000ab: others kept changing it; try again",
            ),
            (
                Contended::Clone(table).into(),
                ErrorKind::Busy,
                "making table 000000000000000000000000000000ab took too long, and others gave it \
                 up: others kept changing it; try again",
            ),
            (
                Contended::Overtaken { table, own: 3, latest: 90 }.into(),
                ErrorKind::Busy,
                "table 000000000000000000000000000000ab: version 3 may have been written; there is \
                 version 90 already: others kept changing it; try again",
            ),
        ]);
    }
}
