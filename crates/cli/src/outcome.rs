//! How commands end: what is said on standard error, and the exit code.

use crate::streams::was_output_closed;
use crate::terminal::stdout_for_json;
use canopy_model::ErrorKind;
use canopy_text::safe;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Returns the kind of an error, if it is one of those that only some programs know.
pub type KindOf = fn(&(dyn std::error::Error + 'static)) -> Option<ErrorKind>;

/// How a command that was carried out has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// All of it: exit code 0.
    #[default]
    Complete,
    /// Part of it; messages have said what is missing: exit code 1.
    Partial,
    /// Part of it, without something that was asked for by name, where ls(1) takes that for worse:
    /// exit code 2.
    Serious,
}

impl Outcome {
    /// Returns the outcome of a command that lacks nothing, or something.
    pub fn of(is_complete: bool) -> Self {
        if is_complete { Outcome::Complete } else { Outcome::Partial }
    }

    /// How a command has ended that could not answer for these reasons.
    pub fn of_errors<E>(errors: &[E]) -> Self {
        if errors.is_empty() { Outcome::Complete } else { Outcome::Partial }
    }
}

/// Prints the error of a command that failed, and gives the exit code: 0 complete, 1 partial, 2
/// failed; that of GNU's tools for what they refuse. `others` knows more errors than this crate.
pub fn exit_code(outcome: anyhow::Result<Outcome>, others: Option<KindOf>) -> ExitCode {
    match outcome.and_then(flushed) {
        Ok(Outcome::Complete) => ExitCode::SUCCESS,
        Ok(Outcome::Partial) => ExitCode::from(1),
        Ok(Outcome::Serious) => ExitCode::from(2),
        // The reader of the output has had enough, as in 'canopy find | head'.
        Err(error) if broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            message_lines(error_chain(&error));
            ExitCode::from(match error.downcast_ref() {
                Some(Refused { code, .. }) => *code,
                None if error.is::<Unsaid>() => 1,
                None => code_of(kind_of(&error, others)),
            })
        }
    }
}

/// Returns the exit code of a command that failed with an error of this kind. Exit codes
/// distinguish complete, partial and failed, but not kinds of failures.
fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::NotFound
        | ErrorKind::Denied
        | ErrorKind::Invalid
        | ErrorKind::Corrupt
        | ErrorKind::Busy
        | ErrorKind::Taken
        | ErrorKind::Exhausted
        | ErrorKind::Unavailable
        | ErrorKind::Internal => 2,
    }
}

/// Returns the kind of the first error in a chain that has one. A refusal in a command's own words
/// is a wrong request.
fn kind_of(error: &anyhow::Error, others: Option<KindOf>) -> ErrorKind {
    let of_others = |cause| others.and_then(|others| others(cause));
    let mut kinds = error.chain().filter_map(|cause| of_others(cause).or_else(|| known(cause)));
    kinds.next().unwrap_or(ErrorKind::Invalid)
}

/// Returns the kind of an error of a library that this crate uses.
fn known(cause: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
    macro_rules! kind {
        ($($library:ty),*) => {
            $(if let Some(error) = cause.downcast_ref::<$library>() {
                return Some(error.kind());
            })*
        };
    }
    kind!(
        canopy_tools::Error,
        canopy_read::Error,
        canopy_index::Error,
        canopy_import::Error,
        canopy_scan::RootError,
        canopy_text::Error,
        canopy_watch::Error
    );
    cause.downcast_ref().map(ErrorKind::of_io)
}

/// Flushes standard output. Fails if that cannot be done.
///
/// # Errors
///
/// If standard output cannot be written.
pub fn flushed(outcome: Outcome) -> anyhow::Result<Outcome> {
    io::stdout().flush().map_err(canopy_tools::Error::Output)?;
    Ok(outcome)
}

/// Why a tool that others have defined does not take a command line, in their words and with their
/// exit code.
#[derive(Debug, thiserror::Error)]
#[error("{told}")]
pub struct Refused {
    /// The reason.
    pub told: String,
    /// The exit code.
    pub code: u8,
}

/// An error of a command line where GNU's tools hint at their help. Other errors have no hint.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// A value that is none of the words that it may be.
    #[error("{0}")]
    Word(String),
    /// Anything else.
    #[error("{0}")]
    Usage(String),
}

/// Why something was refused, in several lines that the program has made: what comes from elsewhere
/// in them has no ends of lines.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SeveralLines(pub String);

/// Returns the file of an index that there is no room for, if that is the error.
fn full_index<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Path> {
    match error.downcast_ref() {
        Some(canopy_index::Error::Io { path, source, .. })
            if source.kind() == io::ErrorKind::StorageFull =>
        {
            Some(path)
        }
        _ => None,
    }
}

/// Formats an error chain on one line, dropping causes already contained in the outer message.
pub fn error_chain(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain() {
        let has_lines = cause.is::<SeveralLines>() || cause.is::<Refused>() || cause.is::<Wrong>();
        let cause = match cause.to_string() {
            cause if has_lines => cause,
            cause => safe::message_line(&cause).into_owned(),
        };
        if told.is_empty() {
            told = cause;
        } else if !told.ends_with(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    if let Some(file) = error.chain().find_map(full_index) {
        let advice = canopy_index::advice_when_full(file);
        told = format!("{told}; {}", safe::message_line(advice));
    } else if was_output_closed() && error.chain().any(is_full) {
        told = told.replace(&full_disk().to_string(), "standard output is closed");
    }
    told
}

/// Returns the error of a device without room, which stands in for a standard output that is closed.
fn full_disk() -> io::Error {
    rustix::io::Errno::NOSPC.into()
}

fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let kind = error.downcast_ref().map(io::Error::kind);
    kind == Some(io::ErrorKind::StorageFull)
}

/// Prints a message on standard error, a line, with `?` for control characters.
pub fn message(text: impl std::fmt::Display) {
    message_lines(safe::message_line(&text.to_string()));
}

/// Prints a message on standard error that may have several lines: those of [`error_chain`], or of nothing
/// but the program's own words.
pub fn message_lines(text: impl std::fmt::Display) {
    // A closed standard error is not a failure.
    let text = without_numbers(&text.to_string());
    let _ = writeln!(std::io::stderr(), "canopy: {}", safe::message_lines(&text));
}

/// Returns a message without the numbers of errors, which say nothing to users beside the words.
pub fn without_numbers(text: &str) -> String {
    let mut pieces = text.split(" (os error ");
    let mut told = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once(')') {
            Some((number, rest)) if number.parse::<u32>().is_ok() => told += rest,
            _ => told = format!("{told} (os error {piece}"),
        }
    }
    told
}

/// Why a command that has done its work could not say so: exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("the work is done, but standard output cannot be written: {0}")]
struct Unsaid(#[source] std::io::Error);

/// Prints a line about what was done, which stays done if nobody reads it, with `?` for control
/// characters.
///
/// # Errors
///
/// If standard output cannot be written, with exit code 1.
pub fn say(line: impl std::fmt::Display) -> anyhow::Result<()> {
    said(writeln!(std::io::stdout(), "{}", safe::message_line(&line.to_string())))
}

/// Prints an object about what was done, on a line.
///
/// # Errors
///
/// If standard output cannot be written, with exit code 1.
pub fn say_json(object: &serde_json::Value) -> anyhow::Result<()> {
    let mut output = stdout_for_json();
    said(writeln!(output, "{object}").and_then(|()| output.flush()))
}

/// Prints a line of an answer, with `?` for control characters.
///
/// # Errors
///
/// If standard output cannot be written.
pub fn answer(line: impl std::fmt::Display) -> anyhow::Result<()> {
    answered(writeln!(io::stdout(), "{}", safe::message_line(&line.to_string())))
}

/// Prints an object of an answer, on a line.
///
/// # Errors
///
/// If standard output cannot be written.
pub fn answer_json(object: &serde_json::Value) -> anyhow::Result<()> {
    let mut output = stdout_for_json();
    answered(writeln!(output, "{object}").and_then(|()| output.flush()))
}

/// Passes on why what was done could not be printed, unless the reader has had enough.
///
/// # Errors
///
/// That of printing, unless the reader has had enough.
pub fn said(printed: io::Result<()>) -> anyhow::Result<()> {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Unsaid(error).into()),
        _ => Ok(()),
    }
}

/// Passes on why an answer could not be printed, unless the reader has had enough: the exit code
/// stays that of the answer.
///
/// # Errors
///
/// That of printing, unless the reader has had enough.
pub fn answered(printed: io::Result<()>) -> anyhow::Result<()> {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(canopy_tools::Error::Output(error).into())
        }
        _ => Ok(()),
    }
}

fn broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<canopy_tools::Error>().is_some_and(|error| error.is_broken_pipe())
            || cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn every_kind_of_failure_has_the_exit_code_of_failures() {
        assert_eq!(ErrorKind::ALL.map(code_of), [2; ErrorKind::ALL.len()]);
    }

    #[test]
    fn programs_know_kinds_of_their_own_errors() {
        let others: KindOf = |cause| cause.is::<std::fmt::Error>().then_some(ErrorKind::Taken);
        let error = anyhow::Error::from(std::fmt::Error).context("cannot open it");
        assert_eq!(kind_of(&error, Some(others)), ErrorKind::Taken);
        assert_eq!(kind_of(&error, None), ErrorKind::Invalid);
    }

    #[test]
    fn errors_of_commands_have_the_kinds_of_their_causes() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let locked = || canopy_index::Error::Locked("/i".into());
        for (error, kind) in [
            (locked().into(), ErrorKind::Busy),
            (canopy_read::Error::from(locked()).into(), ErrorKind::Busy),
            (canopy_tools::Error::from(locked()).into(), ErrorKind::Busy),
            (canopy_import::Error::Input("wrong".into()).into(), ErrorKind::Invalid),
            (canopy_text::Error::Size("x".into()).into(), ErrorKind::Invalid),
            (canopy_watch::Error::Locked("/w".into()).into(), ErrorKind::Taken),
            (
                canopy_scan::RootError { path: "/r".into(), source: denied() }.into(),
                ErrorKind::Denied,
            ),
            (denied().into(), ErrorKind::Denied),
            (anyhow::Error::from(denied()).context("cannot read it"), ErrorKind::Denied),
            (anyhow!("name one PATH"), ErrorKind::Invalid),
        ] {
            assert_eq!(kind_of(&error, None), kind, "{error:#}");
        }
    }

    #[test]
    fn numbers_of_errors_are_not_told() {
        for (text, told) in [
            (
                "cannot open /x: No such file (os error 2); it stays",
                "cannot open /x: No such file; it stays",
            ),
            ("a (os error 13): b (os error 2)", "a: b"),
            ("a (os error x) b", "a (os error x) b"),
            ("plain", "plain"),
        ] {
            assert_eq!(without_numbers(text), told);
        }
    }
}
