//! The commands, one file each: parse, open, plan, run, print.

pub mod check;
pub mod compact;
mod completing;
pub mod diff;
pub mod du;
pub mod export;
pub mod find;
pub mod generate;
mod growth;
pub mod help;
pub mod history;
pub mod import;
pub mod index;
pub mod index_follow;
mod index_plan;
mod index_summary;
pub mod index_workers;
pub mod info;
mod info_metrics;
pub mod locate;
pub mod ls;
mod manual;
pub mod mount;
pub mod ns;
mod past;
pub mod report;
mod report_per_user;
pub mod source;
pub mod sql;
pub mod staleness;
pub mod stat;
pub mod store;
pub(crate) mod switches;
pub mod table;
pub mod top;
pub mod update;
mod update_request;
pub mod watch;
mod watch_status;

use crate::Engine;
use crate::companion::Companion;
use crate::invocation::Invocation;
use crate::options::Command;
use crate::outcome::{Outcome, Refused};
use std::ffi::{OsStr, OsString};

/// Checks options of tools that others have defined, and writes abbreviated ones out, as those take
/// them.
pub fn unabbreviated(
    command: Option<&OsStr>,
    words: impl Iterator<Item = OsString>,
) -> Result<Vec<OsString>, Refused> {
    match command.and_then(OsStr::to_str) {
        Some("du") => switches::unabbreviated::<du::Du>(words),
        Some("ls") => switches::unabbreviated::<ls::Ls>(words),
        Some("stat") => switches::unabbreviated::<stat::Stat>(words),
        _ => Ok(words.collect()),
    }
}

/// Carries out what the command line asks for.
pub fn run(
    invocation: &mut Invocation,
    command: Command,
    engine: Option<&Engine>,
) -> anyhow::Result<Outcome> {
    match command {
        Command::Index(arguments) => index::run(invocation, arguments, engine, None),
        Command::Update(arguments) => update::run(invocation, arguments, engine),
        Command::Compact(arguments) => compact::run(invocation, arguments),
        Command::Check(arguments) => check::run(invocation, arguments, engine),
        Command::Import(arguments) => match engine {
            Some(engine) => (engine.import)(invocation, arguments),
            None => Companion::Sql.run(),
        },
        Command::Find(arguments) => find::run(invocation, arguments),
        Command::Locate(arguments) => locate::run(invocation, arguments),
        Command::Diff(arguments) => diff::run(invocation, arguments),
        Command::History(arguments) => history::run(invocation, arguments),
        Command::Du(arguments) => du::run(invocation, arguments),
        Command::Ls(arguments) => ls::run(invocation, arguments),
        Command::Stat(arguments) => stat::run(invocation, arguments),
        Command::Sql(arguments) => match engine {
            Some(engine) => (engine.sql)(invocation, arguments),
            None => Companion::Sql.run(),
        },
        Command::Table(arguments) => match engine {
            Some(engine) => (engine.table)(invocation, arguments),
            None => Companion::Sql.run(),
        },
        Command::Store(_) => Companion::Store.run(),
        Command::Ns(_) | Command::Mount(_) | Command::Unmount(_) => Companion::Namespace.run(),
        Command::Export(arguments) => export::run(invocation, arguments),
        Command::Report(arguments) => report::run(invocation, arguments),
        Command::Top(arguments) => top::run(invocation, arguments),
        Command::Source(arguments) => source::run(invocation, arguments, engine),
        Command::Watch(arguments) => watch::run(invocation, arguments),
        Command::Info(arguments) => info::run(invocation, arguments),
        Command::Help(arguments) => help::run(arguments),
        Command::Completions(arguments) => generate::completions(arguments),
        Command::Man(arguments) => generate::man(arguments),
    }
}
