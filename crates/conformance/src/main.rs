//! `canopy-conformance`: thousands of cases of what POSIX and Linux ask of a file system, run against
//! the one that a directory lies on.
//!
//! Cases are scripts (`cases/`, whose language is in `script.rs`) and tables that `matrix` computes
//! with its own small model of the kernel's rules. `runner.rs` runs them by way of `actors.rs`:
//! processes of this same program, one for each user, in which `worker` makes the calls.

mod actors;
mod arguments;
mod case;
mod credentials;
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
        Mode::List => list(&arguments.filter),
        Mode::Run(directory) => run(directory, arguments),
        Mode::Worker(who) => worker::serve(&Credentials::parse(who)?).map(|()| true),
    }
}

fn print(text: &str) -> anyhow::Result<bool> {
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(true)
}

fn list(filter: &str) -> anyhow::Result<bool> {
    let cases = suite::cases()?.into_iter().filter(|case| case.name.contains(filter));
    print(&cases.map(|case| case.name + "\n").collect::<String>())
}

fn run(directory: &Path, arguments: &Arguments) -> anyhow::Result<bool> {
    if !nix::unistd::geteuid().is_root() {
        bail!("only root can make calls as several users");
    }
    let known = arguments.known.as_deref().map_or(Ok(Known::default()), Known::read)?;
    let mut cases = suite::cases()?;
    cases.retain(|case| case.name.contains(&arguments.filter));
    let started = Instant::now();
    let base = Base::new(directory)?;
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
