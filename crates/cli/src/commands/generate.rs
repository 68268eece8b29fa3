//! `canopy completions` and `canopy man`: what shells and man(1) read, from the same definitions as
//! `--help`.

use crate::options::Cli;
use crate::outcome::Outcome;
use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Print what makes a shell complete canopy's commands and options
///
/// Example: canopy completions bash > /etc/bash_completion.d/canopy
#[derive(clap::Args)]
pub struct CompletionsArguments {
    /// The shell
    shell: Shell,
}

/// Write the manual pages
///
/// Without DIR, the page of canopy itself is printed: canopy man | man -l -
#[derive(clap::Args)]
pub struct ManArguments {
    /// Directory for one file a command, such as /usr/local/share/man/man1
    dir: Option<PathBuf>,
}

/// Carries `canopy completions` out.
pub fn completions(arguments: CompletionsArguments) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "canopy", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(Outcome::Complete)
}

/// Carries `canopy man` out.
pub fn man(arguments: ManArguments) -> anyhow::Result<Outcome> {
    let mut command = Cli::command();
    command.build();
    match arguments.dir {
        None => std::io::stdout().write_all(&page(&command)?)?,
        Some(dir) => {
            std::fs::create_dir_all(&dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
            write_pages(&command, &dir)?;
        }
    }
    Ok(Outcome::Complete)
}

fn write_pages(command: &clap::Command, dir: &Path) -> anyhow::Result<()> {
    let file = dir.join(format!("{}.1", title(command)));
    std::fs::write(&file, page(command)?)
        .with_context(|| format!("cannot write {}", file.display()))?;
    let below = command
        .get_subcommands()
        .filter(|below| below.get_name() != "help" && !below.is_hide_set());
    below.into_iter().try_for_each(|below| write_pages(below, dir))
}

/// Such as `canopy-table-add`.
fn title(command: &clap::Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &clap::Command) -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    let source = concat!("canopy ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone())
        .title(title(command))
        .source(source)
        .manual("Canopy")
        .render(&mut page)?;
    if title(command) == "canopy" {
        let mut topics = clap_mangen::roff::Roff::new();
        for (name, text) in super::help::TOPICS {
            topics.control("SH", [name.to_uppercase().as_str()]);
            topics.control("nf", []);
            topics.text([clap_mangen::roff::roman(text())]);
            topics.control("fi", []);
        }
        topics.to_writer(&mut page)?;
    }
    Ok(page)
}
