//! `canopy report`

mod arguments;
mod output;
mod page;
mod per_user;

pub use arguments::{Arguments, parse_user};
pub use output::write_json;
pub(crate) use page::PAGE;

use crate::invocation::Invocation;
use crate::new_files::{Directory, NewFiles, Old};
use crate::outcome::{Outcome, message};
use crate::terminal::stdout_for_json;
use arguments::{form_of_name, read_limits, sections_of};
use canopy_ingest::now_ns;
use canopy_tools::report::{self, DuplicateRule, ReportOptions};
use output::{write_as_asked, write_each_csv};
use per_user::write_for_users;
use std::io::{BufWriter, Write};

/// Carries the command out.
///
/// # Errors
///
/// If options are refused, no index answers, or output cannot be written.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let mut arguments = arguments;
    if arguments.mine {
        arguments.user = vec![nix::unistd::geteuid().as_raw()];
    }
    form_of_name(&mut arguments)?;
    anyhow::ensure!(
        arguments.user.len() < 2 || arguments.per_user.is_some(),
        "a report is on one user, or a page on each (--per-user DIR)"
    );
    anyhow::ensure!(
        !arguments.csv || arguments.section.len() == 1 || arguments.output.is_some(),
        "--csv is of one section (--section NAME), or writes a file of each into a directory (-o)"
    );
    let limits = arguments.limits.as_deref().map(read_limits).transpose()?;
    let sections = sections_of(&arguments, limits.is_some())?;
    let threads = arguments.read.threads(invocation);
    if let Some(directory) = &arguments.per_user {
        anyhow::ensure!(
            nix::unistd::geteuid().is_root(),
            "--per-user is for root alone, who can become each user"
        );
        // That of root, whoever reads it.
        return write_for_users(invocation, &arguments, directory, sections, limits);
    }
    let files = arguments.output.as_ref().map(|_| NewFiles::new()).transpose()?;
    let index = arguments.read.open_to_answer(invocation, &arguments.paths)?;
    let options = ReportOptions {
        sections,
        top: usize::try_from(arguments.top)?,
        owner: arguments.user.first().copied(),
        limits,
        duplicates: DuplicateRule::SizeTimeAndName,
        now_ns: now_ns(),
        threads,
    };
    let (mut report, failed) = report::report(&index, &arguments.paths, &options)?;
    if arguments.read.at.is_some() {
        // They are those of now.
        report.problems.clear();
    }
    failed.iter().for_each(message);
    if !failed.is_empty() && report.paths.is_empty() {
        return Ok(Outcome::Partial);
    }
    let to = arguments.output.as_deref().zip(files.as_ref());
    if let (true, Some((directory, files))) = (arguments.csv, to)
        && (arguments.section.len() != 1 || directory.is_dir())
    {
        write_each_csv(&report, &options, directory, files)?;
        return Ok(Outcome::of_errors(&failed));
    }
    let write = |output: &mut dyn Write| write_as_asked(&report, &arguments, output);
    match to {
        Some((path, files)) => {
            let (directory, name) = Directory::of(path)?;
            write(&mut BufWriter::new(files.create(&directory, name, Old::Replaced)?))?;
            files.publish()?;
        }
        None => write(&mut stdout_for_json())?,
    }
    Ok(Outcome::of_errors(&failed))
}
