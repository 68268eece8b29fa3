//! Forms in which `canopy report` is written.

use super::arguments::Arguments;
use crate::new_files::{Directory, NewFiles, Old};
use canopy_text::locale::is_utf8;
use canopy_tools::json::exact_lines;
use canopy_tools::report::{self, Report, ReportOptions, Section, TextOptions};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes a report in the format that is asked for.
pub(super) fn write_as_asked(
    report: &Report,
    arguments: &Arguments,
    output: &mut dyn Write,
) -> anyhow::Result<()> {
    if arguments.json {
        write_json(report, output)?;
    } else if arguments.csv {
        report::write_csv(report, arguments.section[0], output)?;
    } else if arguments.html {
        report::write_html(report, output)?;
    } else {
        let options = TextOptions { ascii: arguments.ascii || !is_utf8(), heading: true };
        report::write_text(report, options, output)?;
    }
    Ok(output.flush()?)
}

/// Writes a file `SECTION.csv` of each section into a directory, which is made if it is missing.
pub(super) fn write_each_csv(
    report: &Report,
    options: &ReportOptions,
    directory: &Path,
    files: &NewFiles,
) -> anyhow::Result<()> {
    let opened = Directory::make_own(directory)?;
    for section in Section::ALL.iter().filter(|section| options.sections.has(**section)) {
        let name = format!("{}.csv", section.name());
        let file = files.create(&opened, name.as_ref(), Old::Distrusted)?;
        let mut output = BufWriter::new(file);
        report::write_csv(report, *section, &mut output)?;
        output.flush()?;
    }
    files.publish()
}

/// Writes a report as JSON, with an end of line.
///
/// # Errors
///
/// If output cannot be written.
pub fn write_json(report: &Report, output: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(output, "{}", exact_lines(&serde_json::to_string_pretty(report)?))?;
    output.flush()?;
    Ok(())
}
