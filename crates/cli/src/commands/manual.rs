//! Manual pages: the text of a command's `--help`, then sections for examples, files, variables,
//! exit codes and other pages.

use super::help::{EXIT_CODES, TOPICS};
use canopy_site::SITE_FILE;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

/// Variables that commands read beside canopy's own.
const VARIABLES: [(&str, &[(&str, &str)]); 5] = [
    (
        "canopy-ls",
        &[
            ("LS_COLORS", "colours of names on a terminal"),
            ("NO_COLOR", "keeps colours away, unless --color is given"),
            ("COLUMNS", "width of lines where the output is not a terminal"),
            ("TABSIZE", "columns between tabulators"),
            ("QUOTING_STYLE", "how names are quoted without --quoting-style"),
            ("TIME_STYLE", "how times are shown without --time-style"),
            ("LS_BLOCK_SIZE, BLOCK_SIZE, BLOCKSIZE", "units of sizes without --block-size"),
            ("TZ", "the zone of times"),
        ],
    ),
    (
        "canopy-du",
        &[
            ("DU_BLOCK_SIZE, BLOCK_SIZE, BLOCKSIZE", "units of sizes without --block-size"),
            ("TIME_STYLE", "how times are shown without --time-style"),
            ("TZ", "the zone of times"),
        ],
    ),
    ("canopy-stat", &[("QUOTING_STYLE", "how %N quotes names"), ("TZ", "the zone of times")]),
    ("canopy-find", &[("TZ", "the zone of times")]),
    ("canopy-sql", &[("XDG_STATE_HOME", "where the history of the prompt is")]),
];

/// Pages of other programs that commands take after.
const MODELS: [(&str, &str); 4] = [
    ("canopy-ls", "ls(1), dircolors(1)"),
    ("canopy-du", "du(1)"),
    ("canopy-stat", "stat(1)"),
    ("canopy-find", "find(1)"),
];

/// Returns the page of a command; `above` is the title of the one that it is below.
pub(super) fn page(command: &Command, above: &str) -> std::io::Result<Vec<u8>> {
    let title = title(command);
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let (examples, description): (Vec<&str>, Vec<&str>) =
        about.split("\n\n").partition(|paragraph| paragraph.starts_with(EXAMPLE));
    let man = Man::new(command.clone().long_about(description.join("\n\n")))
        .title(title)
        .source(concat!("canopy ", env!("CARGO_PKG_VERSION")))
        .manual("Canopy");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if below(command).next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::new();
    if !examples.is_empty() {
        let lines = examples.iter().map(|example| example[EXAMPLE.len()..].trim());
        section("EXAMPLES", &lines.collect::<Vec<_>>().join("\n"), &mut rest);
    }
    if title == "canopy" {
        for (topic, text) in TOPICS {
            let heading = match topic {
                "at" => "TIMES AND GENERATIONS".to_owned(),
                "config" => "CONFIGURATION".to_owned(),
                "exit-codes" => "EXIT STATUS".to_owned(),
                topic => topic.to_uppercase(),
            };
            section(&heading, &text(), &mut rest);
        }
    } else {
        section("ENVIRONMENT", &variables(title), &mut rest);
        section("EXIT STATUS", EXIT_CODES, &mut rest);
        section("FILES", &files(), &mut rest);
    }
    section("SEE ALSO", &see_also(command, above), &mut rest);
    rest.to_writer(&mut page)?;
    Ok(page)
}

/// Beginning of examples.
const EXAMPLE: &str = "Example:";

/// Returns the title of a command's page, such as `canopy-table-add`.
pub(super) fn title(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Returns the commands below one that have pages: not the `help` that each of several has.
pub(super) fn below(command: &Command) -> impl Iterator<Item = &Command> {
    let top = title(command) == "canopy";
    let commands = command.get_subcommands();
    commands.filter(move |below| (top || below.get_name() != "help") && !below.is_hide_set())
}

/// Writes a section whose lines stay as they are.
fn section(heading: &str, text: &str, page: &mut Roff) {
    page.control("SH", [heading]);
    page.control("nf", []);
    page.text([roman(text.trim_end())]);
    page.control("fi", []);
}

fn variables(title: &str) -> String {
    let own = VARIABLES.iter().find(|(command, _)| *command == title);
    let lines = own.into_iter().flat_map(|(_, variables)| variables.iter());
    let lines = lines.map(|(name, what)| format!("{name}\n    {what}\n"));
    let common = "CANOPY_INDEX, CANOPY_THREADS and others\n    see canopy-help(1), or 'canopy help \
                  environment'\n";
    lines.chain([common.to_owned()]).collect()
}

fn files() -> String {
    format!(
        "{SITE_FILE}\n    configuration of the site\n\
         ~/.config/canopy/config.toml\n    configuration of the user\n\
         /var/lib/canopy/index\n    index of the site\n\
         ~/.local/share/canopy/index\n    index of the user\n"
    )
}

fn see_also(command: &Command, above: &str) -> String {
    let title = title(command);
    let mut pages: Vec<String> = Vec::new();
    if title != "canopy" {
        pages.push(format!("{above}(1)"));
        if above != "canopy" {
            pages.push("canopy(1)".to_owned());
        }
    }
    // It is one of the commands below 'canopy'.
    if title != "canopy-help" && title != "canopy" {
        pages.push("canopy-help(1)".to_owned());
    }
    pages.extend(below(command).map(|below| format!("{}(1)", self::title(below))));
    let model = MODELS.iter().find(|(known, _)| *known == title);
    pages.extend(model.map(|(_, pages)| (*pages).to_owned()));
    pages.dedup();
    pages.join(", ")
}
