//! `canopy help`

use crate::offered::Offered;
use crate::outcome::Outcome;
use anyhow::bail;
use canopy_site::{KEYS, SITE_FILE};
use clap::CommandFactory;
use clap::builder::TypedValueParser;
use std::io::Write;

/// Explain a command or a topic
///
/// Topics: at, config, environment, exit-codes, prompt.
///
/// Example: canopy help table add
#[derive(clap::Args)]
pub struct Arguments {
    /// A command, with the one below it if there is one, or a topic
    #[arg(
        value_name = "TOPIC", hide_possible_values = true,
        value_parser = Offered(topics).map(|topic| topic.to_string_lossy().into_owned())
    )]
    topic: Vec<String>,
}

/// Topics that are not commands, with their texts.
pub const TOPICS: [(&str, fn() -> String); 5] = [
    ("at", || AT.to_owned()),
    ("config", config),
    ("environment", environment),
    ("exit-codes", || EXIT_CODES.to_owned()),
    ("prompt", prompt),
];

/// Returns the names of commands and topics.
fn topics() -> Vec<&'static str> {
    let command = crate::command_line::Cli::command();
    // The caller prints them and ends, and clap wants names that stay.
    let commands = command.get_subcommands().map(|below| &*below.get_name().to_owned().leak());
    commands.chain(TOPICS.map(|(name, _)| name)).collect()
}

/// Carries the command out.
///
/// # Errors
///
/// If there is no such topic, or output cannot be written.
pub fn run(arguments: Arguments, mut command: clap::Command) -> anyhow::Result<Outcome> {
    command.build();
    let text = match &arguments.topic[..] {
        [] => command.render_help().to_string(),
        [topic] if TOPICS.iter().any(|(name, _)| name == topic) => TOPICS
            .iter()
            .find(|(name, _)| name == topic)
            .map(|(_, text)| text())
            .unwrap_or_default(),
        words => {
            let mut found = &mut command;
            for word in words {
                let Some(below) = found.find_subcommand_mut(word) else {
                    let topics = TOPICS.map(|(name, _)| name).join(", ");
                    bail!(
                        "no command or topic '{word}'; 'canopy help' lists the commands, topics \
                         are {topics}"
                    );
                };
                found = below;
            }
            found.render_long_help().to_string()
        }
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(Outcome::Complete)
}

fn config() -> String {
    let keys: String = KEYS.iter().map(|(key, _, what)| format!("  {key:14}{what}\n")).collect();
    format!(
        "Two files in TOML, the second over the first:\n\
         \n  {SITE_FILE}\n  $XDG_CONFIG_HOME/canopy/config.toml (else \
         ~/.config/canopy/config.toml)\n\
         \nThe second counts only if it belongs to root or to the user who runs canopy. The\n\
         environment overrides the files, and options override both. A key replaces that\n\
         of an earlier place as a whole; unknown keys are errors.\n\
         Lists in the environment are separated by blanks; a backslash keeps a blank.\n\
         \nKeys:\n{keys}\
         \nExample:\n\
         \n  index = \"/srv/canopy/index\"\n  sources = [\"/home\", \"/proj\"]\n  threads = \
         8\n  prune_names = [\".git\", \".snapshot\"]\n  \
         prune_paths = [\"/tmp\", \"/var/spool\"]\n  prune_fs = [\"proc\", \"sysfs\", \"tmpfs\"]\n\
         \nSources with options of their own ('name' and 'no_xattrs' are others):\n\
         \n  [[sources]]\n  path = \"/scratch\"\n  exclude = [\"*.tmp\"]\n  one_file_system = \
         true\n\
         \nLimits for queries of some users, in the site's file:\n\
         \n  [[limits]]\n  groups = [\"students\"]\n  threads = 2\n  sql_timeout = \"5m\"\n  \
         sql_memory = \"2G\"\n"
    )
}

fn environment() -> String {
    let variables: String =
        KEYS.iter().map(|(_, name, what)| format!("  {name:20}{what}\n")).collect();
    format!(
        "{variables}  {:20}another file in place of {SITE_FILE}\n  {:20}directory of the user's own \
         config file\n  \
         {:20}directory of the prompt's history (else ~/.local/state)\n\
         \nLists are separated by blanks. Empty variables count as unset.\n",
        "CANOPY_SITE_CONFIG", "XDG_CONFIG_HOME", "XDG_STATE_HOME"
    )
}

/// How `--at` chooses a generation of an index.
const AT: &str = "\
--at, --since and 'canopy diff' take the number of a generation, or a time.
Times mean the last generation that was published by then:

  41                       the generation with this number
  7d, 36h, 90m             this long ago: s, m, h, d or w
  2026-06-01, 20260601,    a time as date(1) takes it; eight digits are a date
  '2026-06-01 12:00', '3 days ago', yesterday
  now                      the current one

'canopy index --keep 24h,14d,8w PATH' sets the generations to keep from now on,
at first none; 'canopy info' lists those that exist. Only the owner of an index
sees its past.

  canopy find --at 7d /proj -size +1G
  canopy diff yesterday now /proj
  canopy history /proj
  canopy top growth --since 7d /proj
";

/// Meanings of exit codes.
pub const EXIT_CODES: &str = "  0  complete
  1  partial: messages on standard error name the missing parts; also a wrong
     expression of find or command line of du or stat, as in GNU's tools,
     damage that 'canopy check' and 'canopy store verify' found, an index
     older than 'canopy info --max-age', and work that is done although
     standard output cannot be written
  2  failed: nothing was changed; also a PATH of ls that is missing, as in ls(1)
";

fn prompt() -> String {
    let commands = super::sql::PROMPT_COMMANDS.iter();
    let commands: String = commands
        .map(|(name, argument, what)| {
            format!("  {:17}{what}\n", format!("{name} {argument}").trim_end())
        })
        .collect();
    format!(
        "'canopy sql' without a query asks for statements. Each ends with ';' and may\n\
         have several lines.\n\
         \n{commands}\
         \nTab completes tables, columns, functions and commands. Ctrl-R searches earlier\n\
         statements, Ctrl-C clears the line or stops the running query, Ctrl-D ends the\n\
         prompt. 'EXPLAIN SELECT ...' prints how many shards and row groups are read, of\n\
         how many.\n\
         \nScripts ('canopy sql -f FILE', or standard input) consist of such statements\n\
         and commands.\n"
    )
}
