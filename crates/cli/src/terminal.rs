//! The terminal: its width, and output that is safe to show.

use canopy_text::line_width;
use canopy_text::safe::TerminalWriter;
use std::io::{BufWriter, IsTerminal, Write};

/// Returns how wide lines are: as the terminal, else as `COLUMNS` says.
pub fn width(terminal: bool) -> usize {
    let columns = || line_width(&std::env::var("COLUMNS").ok()?);
    terminal_width(terminal).or_else(columns).unwrap_or(80)
}

pub(crate) fn terminal_width(terminal: bool) -> Option<usize> {
    let size = terminal.then(|| rustix::termios::tcgetwinsize(std::io::stdout()).ok()).flatten()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

/// Returns standard output for JSON and text in which control characters above 127 are as they are:
/// a terminal gets `?` for them, and for all bytes that it would take for one.
pub fn stdout_for_json() -> BufWriter<Box<dyn Write>> {
    let stdout = std::io::stdout();
    BufWriter::with_capacity(
        1 << 16,
        match stdout.is_terminal() {
            true => Box::new(TerminalWriter::new(stdout)),
            false => Box::new(stdout),
        },
    )
}
