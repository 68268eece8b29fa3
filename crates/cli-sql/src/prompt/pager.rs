//! The program that shows an answer page by page.

use anyhow::Context;
use std::process::{Child, Command, Stdio};

/// Pager where `PAGER` is empty or not set. It cuts long lines, and leaves answers of one page on
/// the screen.
const DEFAULT: &str = "less -SRFX";

/// A pager that runs.
pub struct Pager(Child);

impl Pager {
    /// Starts the command in `PAGER` by a shell, as other programs do; returns its standard input.
    pub fn start() -> anyhow::Result<(Self, Stdio)> {
        let line = std::env::var("PAGER").ok().filter(|line| !line.trim().is_empty());
        let line = line.unwrap_or_else(|| DEFAULT.to_owned());
        let mut shell = Command::new("/bin/sh");
        // With an empty path, a shell runs what lies in the working directory.
        if std::env::var_os("PATH").is_some_and(|path| path.is_empty()) {
            shell.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        }
        let mut pager = shell
            .args(["-c", &line])
            .stdin(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {line}"))?;
        let input = pager.stdin.take().context("the pager has no input")?;
        Ok((Pager(pager), input.into()))
    }

    /// Waits until it has been left.
    pub fn wait(mut self) -> anyhow::Result<()> {
        self.0.wait().map(drop).context("cannot wait for the pager")
    }
}
