//! `canopy sql`: its arguments. `canopy-sql` carries it out.

use crate::invocation::Invocation;
use crate::output_name;
use crate::read_options::ReadOptions;
use anyhow::{bail, ensure};
use canopy_site::{MemoryLimit, TimeLimit, half_of_memory};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a statement may take where nobody says.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Ask the index in SQL
///
/// Tables: entries (all but directories), directories, summaries (statistics of each directory's
/// entries), trees (statistics of everything below each directory), both also as _by_user and
/// _by_group, usage (by directory, owner and group), xattrs (values of extended attributes), acls,
/// layouts, stripes, directory_layouts and hsm (where Lustre keeps files); 'DESCRIBE entries' lists
/// columns, 'canopy table list' the tables that were added. Functions: user_name(uid),
/// group_name(gid), human_size(bytes), extension(name), depth(path). Queries for GUFI work too: its
/// views (pentries, summary, vrpentries, vrsummary, treesummary, ...) and functions are there.
///
/// Without a query on a terminal there is a prompt ('canopy help prompt'); without one elsewhere,
/// statements are read from standard input.
///
/// Example: canopy sql "SELECT user_name(uid), human_size(sum(size)) FROM entries GROUP BY uid"
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub read: ReadOptions,
    /// Form of the answer. 'table', 'box', 'markdown' and 'line' are for people; on a terminal, the
    /// first three are cut to its width [default: the format of the name of -o, else table]
    #[arg(long, value_enum)]
    pub format: Option<FormatName>,
    /// Write the answer to FILE, in the format of its name: .csv, .json, .ndjson, .parquet, .md, .txt
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// In CSV, put an apostrophe before texts that a spreadsheet would compute, such as =1+1
    #[arg(long)]
    pub csv_safe: bool,
    /// Text that stands for NULL in the forms for people
    #[arg(long, value_name = "TEXT", default_value = "NULL")]
    pub null_value: String,
    /// Show N rows at most in the forms for people, and say how many there are [default: all]
    #[arg(long, value_name = "N")]
    pub max_rows: Option<u64>,
    /// Let 'entries' and 'xattrs' mean GUFI's tables of these names, and read the statement as
    /// GUFI does
    #[arg(long)]
    pub gufi: bool,
    /// Time that each statement may take, such as 90s, 15m, 2h or none [default: as configured, else
    /// 1h]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<TimeLimit>,
    /// Memory that a statement may use, such as 512M, 4G or none; larger operations use $TMPDIR if
    /// they can [default: as configured, else half of the machine's]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<MemoryLimit>,
    /// Print the number of rows, and how long they took, to standard error
    #[arg(long)]
    pub timer: bool,
    /// Run the statements of FILE, separated by ';' ('-' is standard input)
    #[arg(short, long, value_name = "FILE", conflicts_with = "query")]
    pub file: Option<PathBuf>,
    /// Statements, separated by ';'; those that would change anything are refused
    pub query: Option<String>,
}

impl Arguments {
    /// Returns the form of answers: the one that was asked for, or that the name of the file
    /// promises.
    ///
    /// # Errors
    ///
    /// If the name of the file promises a form that answers do not have, or `--csv-safe` is for another.
    pub fn form(&self) -> anyhow::Result<FormatName> {
        let promised = match (&self.output, self.format) {
            (None, _) => None,
            (Some(path), None) => FormatName::of_file(path, ", or set the form with --format")?,
            (Some(path), Some(_)) => output_name::ending(path).map(|_| None)?,
        };
        let form = self.format.or(promised).unwrap_or(FormatName::Table);
        ensure!(
            !self.csv_safe || form == FormatName::Csv || self.is_prompt(),
            "--csv-safe is for --format csv"
        );
        Ok(form)
    }

    /// Returns whether statements may be typed, each in another form.
    fn is_prompt(&self) -> bool {
        self.query.is_none() && self.file.is_none()
    }

    /// Returns how long a statement may take: as asked, else as configured, but not longer than the
    /// site allows.
    pub fn timeout(&self, invocation: &Invocation) -> Option<Duration> {
        let configured = invocation.site.settings.sql_timeout;
        let wanted = self.timeout.or(configured).unwrap_or(TimeLimit(Some(TIMEOUT)));
        let allowed = invocation.site.allowed().time;
        invocation.at_most("--timeout", self.timeout.is_some(), wanted.0, allowed)
    }

    /// Returns the bytes of memory that a statement may use. `None` means unlimited.
    pub fn memory_bytes(&self, invocation: &Invocation) -> Option<usize> {
        let wanted = self.memory.or(invocation.site.settings.sql_memory);
        let wanted = wanted.unwrap_or_else(|| MemoryLimit(half_of_memory()));
        let allowed = invocation.site.allowed().memory_bytes;
        invocation.at_most("--memory", self.memory.is_some(), wanted.0, allowed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FormatName {
    Table,
    Box,
    Markdown,
    Line,
    Csv,
    Json,
    Ndjson,
    Parquet,
}

impl FormatName {
    /// Returns the form that the name of a file promises, if any. Refuses names of forms that
    /// answers do not have; `otherwise` ends that error with the alternatives.
    ///
    /// # Errors
    ///
    /// If the name promises a form that answers do not have.
    pub fn of_file(path: &Path, otherwise: &str) -> anyhow::Result<Option<Self>> {
        let ending = output_name::ending(path)?;
        Ok(match ending.as_str() {
            "csv" => Some(FormatName::Csv),
            "json" => Some(FormatName::Json),
            "ndjson" | "jsonl" => Some(FormatName::Ndjson),
            "parquet" => Some(FormatName::Parquet),
            "md" => Some(FormatName::Markdown),
            other if output_name::OTHER_FORMS.contains(&other) => bail!(
                "answers have no form for .{ending}: name the file .csv, .json, .ndjson, .parquet, \
                 .md or .txt{otherwise}"
            ),
            _ => None,
        })
    }

    /// The forms that the prompt has.
    pub const OF_PROMPT: [FormatName; 7] = [
        FormatName::Box,
        FormatName::Csv,
        FormatName::Json,
        FormatName::Line,
        FormatName::Markdown,
        FormatName::Ndjson,
        FormatName::Table,
    ];

    /// Returns the word of the command line that stands for it.
    pub fn word(self) -> &'static str {
        match self {
            FormatName::Table => "table",
            FormatName::Box => "box",
            FormatName::Markdown => "markdown",
            FormatName::Line => "line",
            FormatName::Csv => "csv",
            FormatName::Json => "json",
            FormatName::Ndjson => "ndjson",
            FormatName::Parquet => "parquet",
        }
    }
}

/// The commands of the prompt: names, arguments, and descriptions.
pub const PROMPT_COMMANDS: [(&str, &str, &str); 12] = [
    (".exit", "", "end the prompt, as exit, quit and \\q do"),
    (".help", "", "show this, as help does"),
    (".maxrows", "N|all", "show N rows of a table at most"),
    (".mode", "MODE", "set the form: box, csv, json, line, markdown, ndjson, table"),
    (".nullvalue", "TEXT", "set the text for NULL in tables"),
    (".output", "[FILE]", "write answers to a new FILE, or to standard output again"),
    (".pager", "on|off", "show answers by $PAGER (less -SRFX), in full width"),
    (".quit", "", "end the prompt"),
    (".read", "FILE", "run the statements and commands of FILE"),
    (".schema", "[TABLE]", "list the columns of a table, or of all"),
    (".tables", "", "list the tables"),
    (".timer", "on|off", "print how long each statement took"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of other programs' forms got a table.
    #[test]
    fn names_of_files_promise_a_form_or_are_refused() {
        let of = |name: &str| FormatName::of_file(Path::new(name), ", or set it");
        for (name, form) in [
            ("x.csv", Some(FormatName::Csv)),
            ("x.JSON", Some(FormatName::Json)),
            ("x.jsonl", Some(FormatName::Ndjson)),
            ("x.parquet", Some(FormatName::Parquet)),
            ("x.md", Some(FormatName::Markdown)),
            ("x.txt", None),
            ("x", None),
            ("answer.2026", None),
        ] {
            assert_eq!(of(name).unwrap(), form, "{name}");
        }
        for name in ["x.tsv", "x.db", "x.sqlite", "x.SQLITE3", "x.xlsx", "x.html", "x.xml"] {
            let said = of(name).unwrap_err().to_string();
            assert!(said.starts_with("answers have no form for ."), "{said}");
            assert!(said.ends_with(".md or .txt, or set it"), "{said}");
        }
        assert!(of("x.csv.gz").unwrap_err().to_string().contains("would not be compressed"));
    }
}
