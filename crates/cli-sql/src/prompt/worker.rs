//! The process that answers a statement of the prompt: the same command, told to.

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// The variable that tells the process to answer the one statement on its standard input.
const VARIABLE: &str = "CANOPY_STATEMENT_OF_PROMPT";

/// Returns whether this process is one that answers a statement of the prompt.
pub fn is_worker() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// How the process is started.
pub struct Worker {
    /// What its statements have in common: index, threads, limits.
    arguments: Vec<OsString>,
}

impl Worker {
    /// Takes the arguments of all statements.
    pub fn new(arguments: Vec<OsString>) -> Self {
        Worker { arguments }
    }

    /// Has a statement answered, on standard output if to no file. Returns whether it succeeded;
    /// if not, there was a message.
    pub fn answer(
        &self,
        statement: &str,
        options: &[&str],
        file: Option<&File>,
    ) -> anyhow::Result<bool> {
        let cannot = "cannot start a process for the statement";
        // This very program, also where an update has replaced its file.
        let mut command = Command::new("/proc/self/exe");
        command.args(&self.arguments).args(options).env(VARIABLE, "1").stdin(Stdio::piped());
        if let Some(file) = file {
            command.stdout(file.try_clone().context("cannot write the answer")?);
        }
        let mut process = command.spawn().context(cannot)?;
        let written = process.stdin.take().map(|mut input| input.write_all(statement.as_bytes()));
        let status = process.wait().context(cannot)?;
        match written {
            // It has ended before it read all.
            Some(Err(error)) if error.kind() != ErrorKind::BrokenPipe => {
                return Err(error).context(cannot);
            }
            _ => {}
        }
        match status.signal().map(Signal::try_from) {
            Some(Ok(Signal::SIGINT)) => bail!("stopped"),
            Some(Ok(signal)) => bail!("the statement was ended by {signal}"),
            Some(Err(_)) => bail!("the statement was ended by a signal"),
            None => Ok(status.success()),
        }
    }
}
