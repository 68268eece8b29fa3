//! Where names are in long listings, as Emacs asks with `--dired`.

use std::io::Write;

/// Begins lines.
pub(super) const INDENT: &[u8] = b"  ";

/// Positions of names in all that was printed, without what gives colours.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// How many bytes were printed before the lines that are made.
    printed: usize,
    /// How many bytes of those lines give colours.
    colors: usize,
    /// Where names of entries begin and end.
    names: Vec<usize>,
    /// Where headings of directories begin and end.
    headings: Vec<usize>,
}

impl Positions {
    /// Notes that bytes of the lines give colours.
    pub(super) fn color(&mut self, bytes: usize) {
        self.colors += bytes;
    }

    /// Notes a name in the lines.
    pub(super) fn name(&mut self, at: usize, length: usize) {
        let begin = self.printed + at - self.colors;
        self.names.extend([begin, begin + length]);
    }

    /// Notes a heading that is printed next, behind so many bytes.
    pub(super) fn heading(&mut self, at: usize, length: usize) {
        let begin = self.printed + at;
        self.headings.extend([begin, begin + length]);
    }

    /// Notes that lines were printed.
    pub(super) fn printed(&mut self, bytes: usize) {
        self.printed += bytes - std::mem::take(&mut self.colors);
    }

    /// Prints all positions.
    pub(super) fn print(&self, style: &str, output: &mut dyn Write) -> std::io::Result<()> {
        for (what, positions) in [("DIRED", &self.names), ("SUBDIRED", &self.headings)] {
            if !positions.is_empty() {
                write!(output, "//{what}//")?;
                positions.iter().try_for_each(|position| write!(output, " {position}"))?;
                writeln!(output)?;
            }
        }
        writeln!(output, "//DIRED-OPTIONS// --quoting-style={style}")
    }
}
