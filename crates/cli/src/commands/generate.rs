//! `canopy completions` and `canopy man`: scripts for shells and pages for man(1), from the
//! definitions that make `--help`.

use super::{completing, manual};
use crate::outcome::Outcome;
use anyhow::Context;
use clap::builder::PossibleValue;
use clap_complete::Shell;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Print the script by which a shell completes canopy's commands and options
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
///
/// # Errors
///
/// If output cannot be written.
pub fn completions(
    arguments: CompletionsArguments,
    mut command: clap::Command,
) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "canopy", &mut script);
    let script = String::from_utf8(script).context("completions are text")?;
    let script = match arguments.shell {
        Shell::Bash => completing::bash(&script),
        Shell::Zsh => completing::zsh(&script),
        Shell::Fish => script + &fish_arguments(&command) + &completing::fish(),
        _ => script,
    };
    std::io::stdout().write_all(script.as_bytes())?;
    Ok(Outcome::Complete)
}

/// Returns the lines by which fish completes arguments that are words. Its generated script leaves
/// them out.
fn fish_arguments(command: &clap::Command) -> String {
    let line = |below: &clap::Command| {
        let words = below.get_positionals().next()?.get_possible_values();
        let words: Vec<&str> = words.iter().map(PossibleValue::get_name).collect();
        let (name, words) = (below.get_name(), words.join(" "));
        let condition = format!("__fish_canopy_using_subcommand {name}");
        (!words.is_empty())
            .then(|| format!("complete -c canopy -n \"{condition}\" -f -a \"{words}\"\n"))
    };
    command.get_subcommands().filter_map(line).collect()
}

/// Carries `canopy man` out.
///
/// # Errors
///
/// If output cannot be written.
pub fn man(arguments: ManArguments, mut command: clap::Command) -> anyhow::Result<Outcome> {
    command.build();
    match arguments.dir {
        None => std::io::stdout().write_all(&manual::page(&command, "canopy")?)?,
        Some(dir) => {
            std::fs::create_dir_all(&dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
            write_pages(&command, &dir)?;
        }
    }
    Ok(Outcome::Complete)
}

/// Writes the pages of a command and of those below it.
fn write_pages(command: &clap::Command, dir: &Path) -> anyhow::Result<()> {
    let title = manual::title(command);
    let file = dir.join(format!("{title}.1"));
    let above = title.rsplit_once('-').map_or("canopy", |(above, _)| above);
    std::fs::write(&file, manual::page(command, above)?)
        .with_context(|| format!("cannot write {}", file.display()))?;
    manual::below(command).try_for_each(|below| write_pages(below, dir))
}
