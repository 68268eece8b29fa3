//! The commands, one file each: parse, open, plan, run, print.

pub mod building;
pub mod check;
pub mod compact;
mod completing;
pub mod diff;
pub mod du;
pub mod export;
pub mod find;
pub mod following;
pub mod generate;
mod growth;
pub mod help;
pub mod history;
pub mod import;
pub mod index;
mod index_faults;
pub mod index_namespace;
mod index_plan;
mod index_progress;
mod index_run;
mod index_summary;
pub mod index_workers;
pub mod info;
mod info_metrics;
pub mod locate;
pub mod ls;
mod manual;
pub mod mount;
pub mod ns;
pub mod report;
mod report_per_user;
mod resuming;
mod scanning;
pub mod source;
pub mod sql;
pub mod staleness;
pub mod stat;
pub mod store;
pub(crate) mod switches;
pub mod table;
pub mod top;
pub mod update;
mod update_costs;
mod update_request;
pub mod watch;
mod watch_apply;
mod watch_status;

use crate::Engine;
use crate::companion::Companion;
use crate::options::{Cli, Command};
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
pub fn run(cli: Cli, engine: Option<&Engine>) -> anyhow::Result<Outcome> {
    let index = cli.index;
    if cli.command.is_configured() {
        crate::config::load(cli.command.scans())?;
    }
    match cli.command {
        Command::Index(arguments) => index::run(index, arguments, engine, None),
        Command::Update(arguments) => update::run(index, arguments, engine),
        Command::Compact(arguments) => compact::run(index, arguments),
        Command::Check(arguments) => check::run(index, arguments, engine),
        Command::Import(arguments) => match engine {
            Some(engine) => (engine.import)(index, arguments),
            None => Companion::Sql.run(),
        },
        Command::Find(arguments) => find::run(index, arguments),
        Command::Locate(arguments) => locate::run(index, arguments),
        Command::Diff(arguments) => diff::run(index, arguments),
        Command::History(arguments) => history::run(index, arguments),
        Command::Du(arguments) => du::run(index, arguments),
        Command::Ls(arguments) => ls::run(index, arguments),
        Command::Stat(arguments) => stat::run(index, arguments),
        Command::Sql(arguments) => match engine {
            Some(engine) => (engine.sql)(index, arguments),
            None => Companion::Sql.run(),
        },
        Command::Table(arguments) => match engine {
            Some(engine) => (engine.table)(index, arguments),
            None => Companion::Sql.run(),
        },
        Command::Store(_) => Companion::Store.run(),
        Command::Ns(_) | Command::Mount(_) | Command::Unmount(_) => Companion::Namespace.run(),
        Command::Export(arguments) => export::run(index, arguments),
        Command::Report(arguments) => report::run(index, arguments),
        Command::Top(arguments) => top::run(index, arguments),
        Command::Source(arguments) => source::run(index, arguments, engine),
        Command::Watch(arguments) => watch::run(index, arguments),
        Command::Info(arguments) => info::run(index, arguments),
        Command::Help(arguments) => help::run(arguments),
        Command::Completions(arguments) => generate::completions(arguments),
        Command::Man(arguments) => generate::man(arguments),
    }
}
