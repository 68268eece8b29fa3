//! The page of one user: its request, and the process that has become the user and writes it.

use crate::invocation::Invocation;
use crate::outcome::{self, Outcome, message};
use crate::read_options::ReadOptions;
use crate::terminal::stdout_for_json;
use anyhow::Context;
use canopy_as_user::{Channel, Service};
use canopy_ingest::now_ns;
use canopy_tools::report::{self, DuplicateRule, Limit, Limits, ReportOptions, Sections};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

/// The service that writes the page of a user.
pub(crate) const PAGE: Service = Service {
    name: "page",
    program: "canopy",
    memory_bytes_max: None,
    files_max: None,
    writes_files: true,
    ends_first: false,
    variables: &["TZ", "LANG", "LC_ALL", "LC_CTYPE", "LC_TIME"],
    // Paths are relative to it.
    keeps_directory: true,
    serve: |channel| outcome::exit_code(page(&channel), None),
};

/// Most bytes of paths in a frame with several.
const PATHS_BYTES_MAX: usize = 256 << 10;

/// The request that all pages share. Frames with paths follow, the last one empty, and a frame for the
/// user: whether limits are compared, and the limit.
#[derive(Serialize, Deserialize)]
pub(super) struct PageRequest {
    /// The directory of the index.
    pub(super) index: PathBuf,
    pub(super) sections: Sections,
    /// Most rows of a list.
    pub(super) top: u64,
    pub(super) threads: usize,
    pub(super) is_verbose: bool,
}

/// The limit of the user, if limits are compared.
pub(super) type OwnLimit = Option<Option<Limit>>;

/// Returns paths in portions that fit into a frame, and an empty one behind them.
pub(super) fn frames_of(paths: &[OsString]) -> impl Iterator<Item = &[OsString]> {
    let mut rest = Some(paths);
    std::iter::from_fn(move || {
        let paths = rest?;
        let mut bytes = 0;
        let fits = |path: &&OsString| {
            bytes += path.len();
            bytes <= PATHS_BYTES_MAX
        };
        // A single path is shorter than a frame: the kernel limits words of a command line.
        let count = paths.iter().take_while(fits).count().max(1).min(paths.len());
        let (frame, others) = paths.split_at(count);
        rest = (!frame.is_empty()).then_some(others);
        Some(frame)
    })
}

/// Writes the page of the user of this process to standard output.
fn page(channel: &Channel) -> anyhow::Result<Outcome> {
    let unread = "cannot read which page is asked for";
    let asked: PageRequest = channel.receive().context(unread)?;
    let mut paths: Vec<OsString> = Vec::new();
    loop {
        let mut more: Vec<OsString> = channel.receive().context(unread)?;
        if more.is_empty() {
            break;
        }
        paths.append(&mut more);
    }
    let own: OwnLimit = channel.receive().context(unread)?;
    let uid = geteuid().as_raw();
    let limits = own.map(|own| {
        let mut limits = Limits::default();
        own.into_iter().for_each(|limit| limits.set_user(uid, limit));
        limits
    });
    let read = ReadOptions { at: None, verbose: asked.is_verbose, threads: Some(asked.threads) };
    let invocation = Invocation::unconfigured(Some(asked.index));
    let index = read.open(&invocation)?;
    let options = ReportOptions {
        sections: asked.sections,
        top: usize::try_from(asked.top)?,
        owner: Some(uid),
        limits,
        duplicates: DuplicateRule::SizeTimeAndName,
        now_ns: now_ns(),
        threads: asked.threads,
    };
    let (report, failed) = report::report(&index, &paths, &options)?;
    failed.iter().for_each(message);
    if !failed.is_empty() && report.paths.is_empty() {
        return Ok(Outcome::Partial);
    }
    let mut output = stdout_for_json();
    report::write_html(&report, &mut output)?;
    output.flush()?;
    invocation.end(Ok(Outcome::of_errors(&failed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_in_frames_with_an_empty_one_at_the_end() {
        let path = |bytes: usize| OsString::from("x".repeat(bytes));
        for (lengths, expected) in [
            (&[][..], &[0][..]),
            (&[1, 2], &[2, 0]),
            (&[PATHS_BYTES_MAX + 1, 1], &[1, 1, 0]),
            (&[PATHS_BYTES_MAX / 2, PATHS_BYTES_MAX / 2, 1, 1], &[2, 2, 0]),
        ] {
            let paths: Vec<OsString> = lengths.iter().map(|&bytes| path(bytes)).collect();
            let frames: Vec<&[OsString]> = frames_of(&paths).collect();
            assert_eq!(frames.iter().map(|frame| frame.len()).collect::<Vec<_>>(), expected);
            assert_eq!(frames.concat(), paths);
        }
    }
}
