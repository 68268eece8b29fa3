//! `canopy sql`, carried out.

use crate::prompt::{self, Prompt, Worker, is_worker};
use anyhow::Context;
use canopy::commands::sql::{Arguments, FormatName};
use canopy::new_files::{Directory, Old};
use canopy::{Invocation, Outcome};
use canopy_sql::{Session, SessionOptions, TableStyle};
use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{IsTerminal, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Carries the command out.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    if is_worker() {
        // The prompt that started this worker may end without notice.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    }
    let form = arguments.form()?;
    let given = given(&arguments)?;
    // Signals are held before any thread is there that they could go to.
    if given.is_none() {
        anyhow::ensure!(
            arguments.output.is_none(),
            "-o is for statements that are given; at the prompt, .output FILE writes to a file"
        );
        prompt::hold_interrupts()?;
        let worker = Worker::new(of_statements(invocation, &arguments));
        let session = Session::open(
            arguments.read.open_to_answer(invocation, &[])?.flattened(),
            options(invocation, &arguments, None),
        )?;
        let mut prompt = prompt_of(invocation, session, form, &arguments);
        prompt.interactive(worker)?;
        return Ok(Outcome::Complete);
    }
    // Where there is no such place, what does not fit into memory fails.
    let private = Permissions::from_mode(0o700);
    let spills = tempfile::Builder::new().prefix("canopy-sql-").permissions(private).tempdir().ok();
    let directory = spills.as_ref().map(|directory| directory.path().to_owned());
    let files = prompt::end_without(directory.clone())?;
    let index = arguments.read.open_to_answer(invocation, &[])?.flattened();
    let session = Session::open(index, options(invocation, &arguments, directory))?;
    let mut prompt = prompt_of(invocation, session, form, &arguments);
    if let Some(path) = &arguments.output {
        let (directory, name) = Directory::of(path)?;
        prompt.file = Some(files.create(&directory, name, Old::Replaced)?);
    }
    match given {
        Some((text, _)) if is_worker() => prompt.statement(&text)?,
        Some((text, name)) => prompt.script(&text, name.as_deref()).map(drop)?,
        None => {}
    }
    files.publish()?;
    Ok(Outcome::Complete)
}

fn prompt_of(
    invocation: &Invocation,
    session: Session,
    form: FormatName,
    arguments: &Arguments,
) -> Prompt {
    let mut prompt = Prompt::new(session, form, invocation.site.allowed());
    prompt.csv_safe = arguments.csv_safe;
    prompt.null.clone_from(&arguments.null_value);
    prompt.rows_max = arguments.max_rows;
    prompt.timer = arguments.timer;
    prompt
}

fn options(
    invocation: &Invocation,
    arguments: &Arguments,
    spill_directory: Option<PathBuf>,
) -> SessionOptions {
    SessionOptions {
        threads: arguments.read.threads(invocation),
        gufi: arguments.gufi,
        time: arguments.timeout(invocation),
        memory_bytes: arguments.memory_bytes(invocation),
        spill_directory,
        table: TableStyle::default(),
    }
}

/// Returns the arguments of a process that answers a statement of the prompt.
fn of_statements(invocation: &Invocation, arguments: &Arguments) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    if let Some(index) = invocation.site.named() {
        words.extend(["--index".into(), index.into()]);
    }
    words.push("sql".into());
    let mut option = |name: &str, value: String| words.extend([name.into(), value.into()]);
    option("--threads", arguments.read.threads(invocation).to_string());
    let seconds = |time: Duration| format!("{}s", time.as_secs());
    option("--timeout", arguments.timeout(invocation).map_or("none".to_owned(), seconds));
    let bytes = |bytes: usize| bytes.to_string();
    option("--memory", arguments.memory_bytes(invocation).map_or("none".to_owned(), bytes));
    if let Some(at) = arguments.read.at {
        words.extend(["--at".into(), at.to_string().into()]);
    }
    words.extend(arguments.gufi.then(|| "--gufi".into()));
    words
}

/// Returns the statements and the name of their origin; `None` if they are to be typed.
fn given(arguments: &Arguments) -> anyhow::Result<Option<(String, Option<String>)>> {
    if let Some(query) = &arguments.query {
        return Ok(Some((query.clone(), None)));
    }
    match arguments.file.as_deref() {
        Some(file) if file != Path::new("-") => {
            let name = file.display().to_string();
            let text =
                std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
            Ok(Some((text, Some(name))))
        }
        None if std::io::stdin().is_terminal() && !is_worker() => Ok(None),
        _ => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            Ok(Some((text, Some("standard input".to_owned()))))
        }
    }
}
