//! The process that answers a statement of the prompt: this command, with a variable that says so.

use super::pager::Pager;
use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// The variable that makes the process answer the one statement on its standard input.
const VARIABLE: &str = "CANOPY_STATEMENT_OF_PROMPT";

/// Its value where the answer is for a pager, and so for a terminal.
const PAGED: &str = "paged";

/// Returns whether this process is one that answers a statement of the prompt.
pub fn is_worker() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Returns whether this process answers for a pager.
pub fn is_paged() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == PAGED)
}

/// Returns how many columns the terminal has that standard output is, if it is one that says so.
pub fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size =
        stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(stdout).ok()).flatten()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

/// How the process is started.
pub struct Worker {
    /// Arguments common to its statements: index, threads, limits.
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
        options: &[String],
        file: Option<&File>,
        pages: bool,
    ) -> anyhow::Result<bool> {
        let cannot = "cannot start a process for the statement";
        // This very program, also where an update has replaced its file.
        let mut command = Command::new("/proc/self/exe");
        command.args(&self.arguments).args(options).env(VARIABLE, "1").stdin(Stdio::piped());
        let mut pager = None;
        if let Some(file) = file {
            command.stdout(file.try_clone().context("cannot write the answer")?);
        } else if pages && std::io::stdout().is_terminal() {
            let (started, input) = Pager::start()?;
            pager = Some(started);
            command.env(VARIABLE, PAGED).stdout(input);
        }
        let mut process = command.spawn().context(cannot)?;
        // The pager waits for the end of its input, of which this would be an end.
        drop(command);
        let written = process.stdin.take().map(|mut input| input.write_all(statement.as_bytes()));
        let status = process.wait().context(cannot)?;
        pager.map(Pager::wait).transpose()?;
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
