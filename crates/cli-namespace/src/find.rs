//! `canopy ns find`: find(1) over the records of a namespace, without a mount.

use crate::paths;
use crate::place;
use crate::records::NamespaceRecords;
use crate::viewed::Viewed;
use anyhow::bail;
use canopy::Outcome;
use canopy::commands::find::color;
use canopy::{message, message_lines};
use canopy_ingest::now_ns;
use canopy_text::safe::message_line;
use canopy_tools::find::{self, RunOptions};
use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Carries the command out. A wrong expression ends with exit code 1, as in find(1).
pub fn run(arguments: &[OsString]) -> anyhow::Result<Outcome> {
    let now_ns = now_ns();
    let mut find = match find::parse_for_records(arguments, now_ns) {
        Ok(find) => find,
        Err(error) => {
            message_lines(error);
            return Ok(Outcome::Partial);
        }
    };
    let said = find.warnings.iter().chain(&find.wrong_starts).cloned();
    said.map(find::in_locale).for_each(message);
    let Some(namespace) = places(&mut find.starts)? else { return Ok(Outcome::Partial) };
    let viewed = Viewed::open(&namespace)?;
    let records = NamespaceRecords::new(&viewed);
    let stdout = std::io::stdout();
    color(&mut find, stdout.is_terminal());
    let options = RunOptions {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        terminal: stdout.is_terminal(),
        now_ns,
        reports_unlisted: false,
        diagnostic: |text| message(message_line(text)),
    };
    let mut output = BufWriter::with_capacity(1 << 16, stdout);
    let ended = find::run_records(&find, options, &records, &mut output);
    let ended = ended.map_err(|error| place::advised(Some(&namespace), error.into()))?;
    ended.failed.iter().for_each(message);
    let whole = ended.failed.is_empty() && !ended.partial && find.wrong_starts.is_empty();
    Ok(if whole { Outcome::Complete } else { Outcome::Partial })
}

/// Replaces each `NAMESPACE[:PATH]` by the path in the namespace, and returns the namespace. `None`
/// if there is no start.
fn places(starts: &mut [OsString]) -> anyhow::Result<Option<PathBuf>> {
    let mut namespace: Option<PathBuf> = None;
    for start in starts {
        let (of, path) = paths::split(start.as_ref());
        match &namespace {
            Some(first) if *first != of => bail!(
                "{} and {} are two namespaces: search one after the other",
                first.display(),
                of.display()
            ),
            _ => namespace = Some(of),
        }
        let path = paths::names(&path)?.join(&b'/');
        *start = OsString::from_vec([b"/", path.as_slice()].concat());
    }
    Ok(namespace)
}
