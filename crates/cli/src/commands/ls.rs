//! `canopy ls`

use super::report::speaks_utf8;
use super::switches::{Switch, Switches, Tool, Value, both, long, short, text, word};
use crate::options::{ReadOptions, now_ns};
use crate::outcome::{Outcome, message};
use anyhow::anyhow;
use canopy_text::{Quoting, SizeForm, Style, TimeStyle, whole_number};
use canopy_tools::ls::{self, Colors, Hidden, Indicator, Layout, LsOptions, LsTime, SortBy};
use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

const SWITCHES: &[Switch] = &[
    both('a', "all", Value::None, "Show names that begin with a dot"),
    both('A', "almost-all", Value::None, "The same, without . and .."),
    both('b', "escape", Value::None, "Print what cannot be printed as backslash escapes"),
    long("block-size", Value::Needed("SIZE"), "Print sizes in units of SIZE, such as M or 10K"),
    short('C', "columns", "Print names in columns"),
    short('c', "ctime", "Show and sort by the time of the last change of the inode"),
    long(
        "color",
        Value::Optional("WHEN"),
        "Print names in colours, as LS_COLORS says: always, auto or never",
    ),
    both('d', "directory", Value::None, "Show directories themselves instead of what is in them"),
    both('F', "classify", Value::Optional("WHEN"), "Print one of */=@| behind names by type"),
    long("file-type", Value::None, "As -F, without *"),
    long(
        "format",
        Value::Needed("WORD"),
        "across -x, commas -m, horizontal -x, long -l, single-column -1, verbose -l, vertical -C",
    ),
    long("full-time", Value::None, "The same as -l --time-style=full-iso"),
    short('g', "no-owner", "As -l, without owners"),
    long("group-directories-first", Value::None, "Show directories before all else"),
    both('G', "no-group", Value::None, "Leave groups out of -l"),
    both('h', "human-readable", Value::None, "Print sizes for people, such as 4.0K or 12M"),
    long("indicator-style", Value::Needed("WORD"), "none, slash -p, file-type, classify -F"),
    both('i', "inode", Value::None, "Print inode numbers"),
    both('k', "kibibytes", Value::None, "Print space in units of 1024 bytes"),
    short('l', "long", "Print attributes"),
    short('m', "commas", "Print names one after the other, with commas"),
    both('N', "literal", Value::None, "Print names as they are"),
    both('n', "numeric-uid-gid", Value::None, "As -l, with numbers of owners and groups"),
    short('o', "long-without-group", "As -l, without groups"),
    short('p', "slash", "Print / behind directories"),
    both('Q', "quote-name", Value::None, "Print names in double quotes"),
    both('q', "hide-control-chars", Value::None, "Print ? for what cannot be printed"),
    long(
        "quoting-style",
        Value::Needed("WORD"),
        "literal, shell, shell-always, shell-escape, shell-escape-always, c, c-maybe, escape, locale, clocale",
    ),
    both('R', "recursive", Value::None, "List directories in directories too"),
    both('r', "reverse", Value::None, "Turn the order around"),
    both('S', "by-size", Value::None, "Sort by size, largest first"),
    both('s', "size", Value::None, "Print the space that entries take"),
    long("show-control-chars", Value::None, "Print what cannot be printed as it is"),
    long("si", Value::None, "As -h, with powers of 1000"),
    long("sort", Value::Needed("WORD"), "none -U, size -S, time -t, extension -X"),
    short('t', "by-time", "Sort by time, newest first"),
    long(
        "time",
        Value::Needed("WORD"),
        "Show and sort by this time: atime, access, use; ctime, status; mtime, modification; birth, creation",
    ),
    long(
        "time-style",
        Value::Needed("STYLE"),
        "Print times as full-iso, long-iso, iso, locale or +FORMAT",
    ),
    both(
        'T',
        "tabsize",
        Value::Needed("COLS"),
        "Assume tabulators at every COLS columns instead of 8",
    ),
    short('U', "unsorted", "Show entries in the order of the index"),
    short('u', "atime", "Show and sort by the time of the last access"),
    both('w', "width", Value::Needed("COLS"), "Print lines of COLS columns; 0 for no limit"),
    short('X', "by-extension", "Sort by what follows the last dot"),
    short('x', "across", "Print names in columns, line by line"),
    short('1', "lines", "Print one name a line"),
    long("zero", Value::None, "End lines with NUL, and print names as they are"),
];

/// List directories, as ls(1) does, answered from the index
///
/// After the mode, '+' says that an entry has an ACL, '@' that it has other extended attributes. On
/// a terminal names are in columns and colours, and quoted where they would disturb it; NO_COLOR
/// keeps colours away.
///
/// Example: canopy ls -l /data
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    #[command(flatten)]
    switches: Switches<Ls>,
    /// What to list [default: the working directory]
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

struct Ls;

impl Tool for Ls {
    const SWITCHES: &'static [Switch] = SWITCHES;
}

/// Carries the command out.
pub fn run(index: Option<PathBuf>, mut arguments: Arguments) -> anyhow::Result<Outcome> {
    if arguments.paths.is_empty() {
        arguments.paths.push(".".into());
    }
    let stdout = std::io::stdout();
    let mut asked = Asked::new(stdout.is_terminal());
    for (id, value) in &arguments.switches.given {
        asked.take(id, value)?;
    }
    let options = asked.options()?;
    let index = arguments.read.open(index)?;
    let mut output = BufWriter::with_capacity(1 << 16, stdout);
    let failed = ls::ls(&index, &arguments.paths, &options, &mut output)?;
    failed.errors.iter().for_each(message);
    Ok(match failed.arguments {
        true => Outcome::Serious,
        false => Outcome::of_errors(&failed.errors),
    })
}

/// When something is done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    Auto,
    Never,
}

const WHEN: [(&str, When); 9] = [
    ("", When::Always),
    ("always", When::Always),
    ("yes", When::Always),
    ("force", When::Always),
    ("never", When::Never),
    ("no", When::Never),
    ("none", When::Never),
    ("auto", When::Auto),
    ("tty", When::Auto),
];

/// What the options have asked for so far.
struct Asked {
    terminal: bool,
    layout: Option<Layout>,
    style: Option<Style>,
    hide: Option<bool>,
    sort: Option<SortBy>,
    time: Option<LsTime>,
    time_style: Option<String>,
    form: Option<SizeForm>,
    kibibytes: bool,
    color: When,
    width: Option<usize>,
    tab: Option<usize>,
    options: LsOptions,
}

impl Asked {
    fn new(terminal: bool) -> Self {
        let options = LsOptions {
            layout: Layout::Lines,
            hidden: Hidden::No,
            directory: false,
            recursive: false,
            inode: false,
            blocks: false,
            owner: true,
            group: true,
            numeric: false,
            sort: SortBy::Name,
            reverse: false,
            directories_first: false,
            time: LsTime::Modification,
            time_style: TimeStyle::locale(),
            block_form: SizeForm::KIBIBYTES,
            size_form: SizeForm::BYTES,
            quoting: Quoting::default(),
            indicator: Indicator::None,
            colors: None,
            width: 80,
            tab: 8,
            null: false,
            now_ns: now_ns(),
        };
        Asked {
            terminal,
            layout: None,
            style: None,
            hide: None,
            sort: None,
            time: None,
            time_style: None,
            form: None,
            kibibytes: false,
            color: if no_color() { When::Never } else { When::Auto },
            width: None,
            tab: None,
            options,
        }
    }

    /// Takes an option in; later ones take back what earlier ones said.
    fn take(&mut self, id: &str, value: &OsString) -> anyhow::Result<()> {
        let options = &mut self.options;
        match id {
            "all" => options.hidden = Hidden::All,
            "almost-all" => options.hidden = Hidden::Almost,
            "directory" => options.directory = true,
            "recursive" => options.recursive = true,
            "inode" => options.inode = true,
            "size" => options.blocks = true,
            "no-group" => options.group = false,
            "reverse" => options.reverse = true,
            "group-directories-first" => options.directories_first = true,
            "long" | "columns" | "across" | "commas" | "lines" | "format" | "no-owner"
            | "long-without-group" | "numeric-uid-gid" | "full-time" => {
                self.take_layout(id, value)?
            }
            "escape" => self.style = Some(Style::Escape),
            "literal" => self.style = Some(Style::Literal),
            "quote-name" => self.style = Some(Style::C),
            "quoting-style" => self.style = Some(word(id, value, &Style::NAMES)?),
            "hide-control-chars" => self.hide = Some(true),
            "show-control-chars" => self.hide = Some(false),
            "human-readable" => self.form = Some(SizeForm::HUMAN),
            "si" => self.form = Some(SizeForm::SI),
            "block-size" => {
                self.form =
                    Some(SizeForm::parse(text(id, value)?).map_err(|e| anyhow!("--{id}: {e}"))?);
            }
            "kibibytes" => self.kibibytes = true,
            "slash" => options.indicator = Indicator::Slash,
            "file-type" => options.indicator = Indicator::FileType,
            "classify" => {
                let when = word(id, value, &WHEN)?;
                let set = when == When::Always || (when == When::Auto && self.terminal);
                if set {
                    options.indicator = Indicator::Classify;
                }
            }
            "indicator-style" => {
                let words = [
                    ("none", Indicator::None),
                    ("slash", Indicator::Slash),
                    ("file-type", Indicator::FileType),
                    ("classify", Indicator::Classify),
                ];
                options.indicator = word(id, value, &words)?;
            }
            "by-size" => self.sort = Some(SortBy::Size),
            "by-time" => self.sort = Some(SortBy::Time),
            "by-extension" => self.sort = Some(SortBy::Extension),
            "unsorted" => self.sort = Some(SortBy::None),
            "sort" => self.sort = Some(word(id, value, &SORTS)?),
            "atime" => self.time = Some(LsTime::Access),
            "ctime" => self.time = Some(LsTime::Change),
            "time" => self.time = Some(word(id, value, &TIMES)?),
            "time-style" => self.time_style = Some(text(id, value)?.to_owned()),
            "color" => self.color = word(id, value, &WHEN)?,
            "width" => self.width = Some(columns(id, value)?),
            "tabsize" => self.tab = Some(columns(id, value)?),
            "zero" => {
                options.null = true;
                self.hide = Some(false);
                self.style = Some(Style::Literal);
                self.color = When::Never;
                if self.layout != Some(Layout::Long) {
                    self.layout = Some(Layout::Lines);
                }
            }
            other => unreachable!("{other} is no option of ls"),
        }
        Ok(())
    }

    fn take_layout(&mut self, id: &str, value: &OsString) -> anyhow::Result<()> {
        self.layout = Some(match id {
            "columns" => Layout::Columns,
            "across" => Layout::Across,
            "commas" => Layout::Commas,
            // One a line are long lines too.
            "lines" if self.layout == Some(Layout::Long) => Layout::Long,
            "lines" => Layout::Lines,
            "format" => word(id, value, &LAYOUTS)?,
            _ => Layout::Long,
        });
        match id {
            "no-owner" => self.options.owner = false,
            "long-without-group" => self.options.group = false,
            "numeric-uid-gid" => self.options.numeric = true,
            "full-time" => self.time_style = Some("full-iso".to_owned()),
            _ => {}
        }
        Ok(())
    }

    /// What comes of all options, the terminal and the environment.
    fn options(self) -> anyhow::Result<LsOptions> {
        let mut options = self.options;
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        options.layout =
            self.layout.unwrap_or(if self.terminal { Layout::Columns } else { Layout::Lines });
        options.time = self.time.unwrap_or(LsTime::Modification);
        let by_time = self.time.is_some() && options.layout != Layout::Long;
        options.sort = self.sort.unwrap_or(if by_time { SortBy::Time } else { SortBy::Name });
        let style = self.style.or_else(Style::from_environment);
        let default = if self.terminal { Style::ShellEscape } else { Style::Literal };
        let style = style.unwrap_or(default);
        let hide = self.hide.unwrap_or(self.terminal);
        options.quoting = Quoting { style, hide, also: Vec::new(), utf8: speaks_utf8() };
        if let Some(form) = self.form {
            (options.block_form, options.size_form) = (form, form);
        } else {
            options.block_form = SizeForm::from_environment("LS_BLOCK_SIZE");
            if ["LS_BLOCK_SIZE", "BLOCK_SIZE"].iter().any(|name| std::env::var_os(name).is_some()) {
                options.size_form = options.block_form;
            }
            if self.kibibytes {
                options.block_form = SizeForm::KIBIBYTES;
            }
        }
        let environment =
            || variable("TIME_STYLE").and_then(|style| TimeStyle::parse_for_ls(&style).ok());
        // Where no times are shown, nobody minds a wrong style.
        let asked = self.time_style.filter(|_| options.layout == Layout::Long);
        let asked = asked
            .map(|style| TimeStyle::parse_for_ls(&style))
            .transpose()
            .map_err(anyhow::Error::msg)?;
        options.time_style = asked.or_else(environment).unwrap_or_else(TimeStyle::locale);
        options.width = self.width.unwrap_or_else(|| width(self.terminal));
        options.tab = self.tab.or_else(|| whole_number(&variable("TABSIZE")?)).unwrap_or(8);
        let colored = self.color == When::Always || (self.color == When::Auto && self.terminal);
        options.colors = if colored { colors() } else { None };
        Ok(options)
    }
}

const SORTS: [(&str, SortBy); 5] = [
    ("none", SortBy::None),
    ("name", SortBy::Name),
    ("size", SortBy::Size),
    ("time", SortBy::Time),
    ("extension", SortBy::Extension),
];

const TIMES: [(&str, LsTime); 9] = [
    ("atime", LsTime::Access),
    ("access", LsTime::Access),
    ("use", LsTime::Access),
    ("ctime", LsTime::Change),
    ("status", LsTime::Change),
    ("mtime", LsTime::Modification),
    ("modification", LsTime::Modification),
    ("birth", LsTime::Birth),
    ("creation", LsTime::Birth),
];

const LAYOUTS: [(&str, Layout); 7] = [
    ("verbose", Layout::Long),
    ("long", Layout::Long),
    ("commas", Layout::Commas),
    ("horizontal", Layout::Across),
    ("across", Layout::Across),
    ("vertical", Layout::Columns),
    ("single-column", Layout::Lines),
];

fn columns(id: &str, value: &OsString) -> anyhow::Result<usize> {
    whole_number(text(id, value)?).ok_or_else(|| anyhow!("invalid argument {value:?} of --{id}"))
}

/// How wide lines are: as the terminal, else as `COLUMNS` says.
fn width(terminal: bool) -> usize {
    let size = terminal.then(|| rustix::termios::tcgetwinsize(std::io::stdout()).ok()).flatten();
    let known = size.map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0);
    known.or_else(|| whole_number(&std::env::var("COLUMNS").ok()?)).unwrap_or(80)
}

/// Whether the user wants no colours of any program (see no-color.org).
fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// The colours of the environment; none if what it says makes no sense or the terminal knows none.
fn colors() -> Option<Colors> {
    let value = std::env::var_os("LS_COLORS").filter(|value| !value.is_empty());
    if let Some(value) = value {
        let colors = Colors::parse(&value.into_vec());
        if colors.is_none() {
            message("the value of LS_COLORS makes no sense");
        }
        return colors;
    }
    let set = std::env::var_os("COLORTERM").is_some_and(|value| !value.is_empty());
    let terminal = std::env::var("TERM").unwrap_or_default();
    (set || knows_colors(&terminal)).then(|| Colors::parse(b"")).flatten()
}

/// Whether a terminal of that name has colours, as the database of dircolors(1) says.
fn knows_colors(terminal: &str) -> bool {
    const NAMES: [&str; 17] = [
        "ansi",
        "cons25",
        "console",
        "cygwin",
        "dtterm",
        "gnome",
        "hurd",
        "jfbterm",
        "konsole",
        "kterm",
        "linux",
        "linux-c",
        "mlterm",
        "putty",
        "st",
        "terminator",
        "vt100",
    ];
    const BEGINNINGS: [&str; 5] = ["Eterm", "rxvt", "screen", "tmux", "xterm"];
    NAMES.contains(&terminal)
        || BEGINNINGS.iter().any(|name| terminal.starts_with(name))
        || terminal.contains("color")
        || terminal.contains("direct")
        || (terminal.starts_with("con") && terminal.contains('x'))
}
