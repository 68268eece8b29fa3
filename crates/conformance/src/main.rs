//! `canopy-conformance`: thousands of cases of what POSIX and Linux ask of a file system, run
//! against the one that a directory lies on.
//!
//! Cases are scripts (`cases/`, whose language is in `script.rs`) and tables that `matrix` computes
//! with its own small model of the kernel's rules. `runner.rs` runs them by way of `actors.rs`:
//! processes of this same program, one for each user, in which `worker` makes the calls. `deal.rs`
//! divides the steps of a case among several mounts.

mod actors;
mod arguments;
mod case;
mod credentials;
mod deal;
mod features;
mod known;
mod matrix;
mod model;
mod report;
mod runner;
mod script;
mod suite;
mod word;
mod worker;

use anyhow::bail;
use arguments::{Arguments, Mode};
use case::Case;
use credentials::Credentials;
use features::Features;
use known::Known;
use report::Report;
use runner::Base;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)).and_then(|arguments| act(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("canopy-conformance: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether all is well.
fn act(arguments: &Arguments) -> anyhow::Result<bool> {
    match &arguments.mode {
        Mode::Help => print(arguments::HELP),
        Mode::List => list(arguments),
        Mode::Run(directory) => run(directory, arguments),
        Mode::Worker(who) => worker::serve(&Credentials::parse(who)?).map(|()| true),
    }
}

fn print(text: &str) -> anyhow::Result<bool> {
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(true)
}

/// The cases that are asked for.
fn chosen(arguments: &Arguments) -> anyhow::Result<Vec<Case>> {
    let mut cases = match &arguments.script {
        Some(path) => suite::cases_of(&std::fs::read_to_string(path)?)?,
        None => suite::cases()?,
    };
    cases.retain(|case| case.name.contains(&arguments.filter));
    let cases = Vec::from_iter(cases.into_iter().step_by(arguments.every));
    if cases.is_empty() {
        bail!("no case has {} in its name", arguments.filter);
    }
    Ok(cases)
}

fn list(arguments: &Arguments) -> anyhow::Result<bool> {
    let names = chosen(arguments)?.into_iter().map(|case| case.name + "\n");
    print(&names.collect::<String>())
}

fn run(directory: &Path, arguments: &Arguments) -> anyhow::Result<bool> {
    if !nix::unistd::geteuid().is_root() {
        bail!("only root can make calls as several users");
    }
    let known = arguments.known.as_deref().map_or(Ok(Known::default()), Known::read)?;
    let cases = chosen(arguments)?;
    let started = Instant::now();
    let base = Base::new(directory, &arguments.also)?;
    let features = Features::probe(&base, &suite::features()?);
    let outcomes = runner::run(&base, &cases, &features);
    drop(base);
    let cases = cases.iter().zip(outcomes).collect();
    let report = Report { cases, features, known, elapsed: started.elapsed() };
    let mut output = std::io::stdout().lock();
    if arguments.json {
        writeln!(output, "{:#}", report.to_json())?;
    } else {
        report.print(&mut output)?;
    }
    Ok(report.is_good())
}
