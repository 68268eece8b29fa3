//! `canopy ls`

use super::du::block_size;
use crate::invocation::Invocation;
use crate::outcome::{Outcome, message};
use crate::read_options::ReadOptions;
use crate::switches::Effect::{Flag, Optional, Value};
use crate::switches::{
    Argument, LEFT_OUT, Switch, Switches, Tool, Wrong, both, long, of, own, quoted, refused, short,
    word, words_of,
};
use crate::terminal::stdout_for_json;
use crate::terminal::terminal_width;
use anyhow::{anyhow, bail};
use canopy_ingest::now_ns;
use canopy_text::locale::is_utf8;
use canopy_text::{Quoting, SizeForm, Style, TimeStyle, line_width, whole_number};
use canopy_tools::ls::{
    self, Colors, Dereference, Hidden, Indicator, Layout, LsOptions, LsTime, NamePattern, SortBy,
};
use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

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

/// Settings from the options so far.
#[derive(Default)]
pub(crate) struct Ls {
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
    dereference: Option<Dereference>,
    backups: bool,
    width: Option<usize>,
    tab: Option<usize>,
    options: LsOptions,
}

impl Tool for Ls {
    const NAME: &'static str = "ls";
    const REFUSED: u8 = 2;
    const MISSING: &'static [(&'static str, Option<char>)] = &[];
    const SWITCHES: &'static [Switch<Ls>] = &[
        both(
            'a',
            "all",
            Flag(|ls| ls.options.hidden = Hidden::All),
            "Show names that begin with a dot",
        ),
        both(
            'A',
            "almost-all",
            Flag(|ls| ls.options.hidden = Hidden::Almost),
            "The same, without . and ..",
        ),
        long("author", Flag(|ls| ls.options.author = true), "Print owners as authors too with -l"),
        both(
            'b',
            "escape",
            Flag(|ls| ls.style = Some(Style::Escape)),
            "Print what cannot be printed as backslash escapes",
        ),
        long(
            "block-size",
            Value("SIZE", |ls, size| {
                ls.form = Some(block_size(size)?);
                Ok(())
            }),
            "Print sizes in units of SIZE, such as M or 10K",
        ),
        short('C', "columns", |ls| ls.layout = Some(Layout::Columns), "Print names in columns"),
        short(
            'c',
            "ctime",
            |ls| ls.time = Some(LsTime::Change),
            "Show and sort by the time of the last change of the inode",
        ),
        both(
            'Z',
            "context",
            Flag(|ls| ls.options.context = true),
            "Print the security contexts of SELinux",
        ),
        of(
            || words_of(&WHEN),
            long(
                "color",
                Optional("WHEN", |ls, when| {
                    ls.color = when.word(&WHEN)?;
                    Ok(())
                }),
                "Print names in colours, as LS_COLORS says: always, auto or never",
            ),
        ),
        both(
            'L',
            "dereference",
            Flag(|ls| ls.dereference = Some(Dereference::Always)),
            "Show what symbolic links lead to in place of them",
        ),
        both(
            'H',
            "dereference-command-line",
            Flag(|ls| ls.dereference = Some(Dereference::Arguments)),
            "The same of links that are PATHs",
        ),
        long(
            "dereference-command-line-symlink-to-dir",
            Flag(|ls| ls.dereference = Some(Dereference::ToDirectories)),
            "The same of links that are PATHs and lead to directories",
        ),
        both(
            'D',
            "dired",
            Flag(|ls| ls.options.dired = true),
            "Tell Emacs behind -l where names are",
        ),
        both(
            'd',
            "directory",
            Flag(|ls| ls.options.directory = true),
            "Show directories themselves instead of what is in them",
        ),
        of(
            || words_of(&WHEN),
            both(
                'F',
                "classify",
                Optional("WHEN", |ls, when| {
                    if when.word(&WHEN)?.is_now(ls.terminal) {
                        ls.options.indicator = Indicator::Classify;
                    }
                    Ok(())
                }),
                "Print one of */=@| behind names by type",
            ),
        ),
        short(
            'f',
            "unsorted-all",
            Ls::take_all_unsorted,
            "The same as -a -U, without -l, -s, colours and hyperlinks before it",
        ),
        long(
            "file-type",
            Flag(|ls| ls.options.indicator = Indicator::FileType),
            "As -F, without *",
        ),
        of(
            || words_of(&LAYOUTS),
            long(
                "format",
                Value("WORD", |ls, layout| {
                    ls.layout = Some(layout.word(&LAYOUTS)?);
                    Ok(())
                }),
                "across -x, commas -m, horizontal -x, long -l, single-column -1, verbose -l, \
                 vertical -C",
            ),
        ),
        long(
            "full-time",
            Flag(|ls| {
                ls.layout = Some(Layout::Long);
                ls.time_style = Some("full-iso".to_owned());
            }),
            "The same as -l --time-style=full-iso",
        ),
        short(
            'g',
            "no-owner",
            |ls| {
                ls.layout = Some(Layout::Long);
                ls.options.owner = false;
            },
            "As -l, without owners",
        ),
        long(
            "group-directories-first",
            Flag(|ls| ls.options.directories_first = true),
            "Show directories before all else",
        ),
        both('G', "no-group", Flag(|ls| ls.options.group = false), "Leave groups out of -l"),
        both(
            'h',
            "human-readable",
            Flag(|ls| ls.form = Some(SizeForm::HUMAN)),
            "Print sizes for people, such as 4.0K or 12M",
        ),
        long(
            "hide",
            Value("PATTERN", |ls, pattern| {
                ls.options.hide.push(name_pattern(pattern)?);
                Ok(())
            }),
            "Leave out what matches PATTERN, but for -a and -A",
        ),
        of(
            || words_of(&WHEN),
            long(
                "hyperlink",
                Optional("WHEN", |ls, when| {
                    ls.options.hyperlink = when.word(&WHEN)?.is_now(ls.terminal);
                    Ok(())
                }),
                "Print names as hyperlinks: always, auto or never",
            ),
        ),
        both(
            'I',
            "ignore",
            Value("PATTERN", |ls, pattern| {
                ls.options.ignore.push(name_pattern(pattern)?);
                Ok(())
            }),
            "Leave out what matches PATTERN",
        ),
        both('B', "ignore-backups", Flag(|ls| ls.backups = true), "Leave out what ends in ~"),
        of(
            || words_of(&INDICATORS),
            long(
                "indicator-style",
                Value("WORD", |ls, indicator| {
                    ls.options.indicator = indicator.word(&INDICATORS)?;
                    Ok(())
                }),
                "none, slash -p, file-type, classify -F",
            ),
        ),
        both('i', "inode", Flag(|ls| ls.options.inode = true), "Print inode numbers"),
        own("json", Flag(|ls| ls.options.json = true), "Print JSON"),
        both(
            'k',
            "kibibytes",
            Flag(|ls| ls.kibibytes = true),
            "Print space in units of 1024 bytes",
        ),
        short('l', "long", |ls| ls.layout = Some(Layout::Long), "Print attributes"),
        short(
            'm',
            "commas",
            |ls| ls.layout = Some(Layout::Commas),
            "Print names one after the other, with commas",
        ),
        both('N', "literal", Flag(|ls| ls.style = Some(Style::Literal)), "Print names as they are"),
        both(
            'n',
            "numeric-uid-gid",
            Flag(|ls| {
                ls.layout = Some(Layout::Long);
                ls.options.numeric = true;
            }),
            "As -l, with numbers of owners and groups",
        ),
        short(
            'o',
            "long-without-group",
            |ls| {
                ls.layout = Some(Layout::Long);
                ls.options.group = false;
            },
            "As -l, without groups",
        ),
        short(
            'p',
            "slash",
            |ls| ls.options.indicator = Indicator::Slash,
            "Print / behind directories",
        ),
        both(
            'Q',
            "quote-name",
            Flag(|ls| ls.style = Some(Style::C)),
            "Print names in double quotes",
        ),
        both(
            'q',
            "hide-control-chars",
            Flag(|ls| ls.hide = Some(true)),
            "Print ? for what cannot be printed",
        ),
        of(
            || words_of(&Style::NAMES),
            long(
                "quoting-style",
                Value("WORD", |ls, style| {
                    ls.style = Some(style.word(&Style::NAMES)?);
                    Ok(())
                }),
                "literal, shell, shell-always, shell-escape, shell-escape-always, c, c-maybe, \
                 escape, locale, clocale",
            ),
        ),
        both(
            'R',
            "recursive",
            Flag(|ls| ls.options.recursive = true),
            "List directories in directories too",
        ),
        both('r', "reverse", Flag(|ls| ls.options.reverse = true), "Turn the order around"),
        short('S', "by-size", |ls| ls.sort = Some(SortBy::Size), "Sort by size, largest first"),
        both('s', "size", Flag(|ls| ls.options.blocks = true), "Print the space that entries take"),
        long(
            "show-control-chars",
            Flag(|ls| ls.hide = Some(false)),
            "Print what cannot be printed as it is",
        ),
        long("si", Flag(|ls| ls.form = Some(SizeForm::SI)), "As -h, with powers of 1000"),
        of(
            || [&words_of(&SORTS)[..], &["name"]].concat(),
            long(
                "sort",
                Value("WORD", |ls, sort| {
                    // Beginnings of `name` mean what they mean to an ls without it.
                    let by_name = sort.value == "name";
                    ls.sort = Some(if by_name { SortBy::Name } else { sort.word(&SORTS)? });
                    Ok(())
                }),
                "none -U, size -S, time -t, extension -X, version -v, width",
            ),
        ),
        short('t', "by-time", |ls| ls.sort = Some(SortBy::Time), "Sort by time, newest first"),
        of(
            || words_of(&TIMES),
            long(
                "time",
                Value("WORD", |ls, time| {
                    ls.time = Some(time.word(&TIMES)?);
                    Ok(())
                }),
                "Show and sort by this time: atime, access, use; ctime, status; mtime, \
                 modification; birth, creation",
            ),
        ),
        of(
            || TIME_STYLES.to_vec(),
            long(
                "time-style",
                Value("STYLE", |ls, style| {
                    ls.time_style = Some(style.text()?.to_owned());
                    Ok(())
                }),
                "Print times as full-iso, long-iso, iso, locale or +FORMAT",
            ),
        ),
        both(
            'T',
            "tabsize",
            Value("COLS", |ls, count| {
                ls.tab = Some(columns(count)?);
                Ok(())
            }),
            "Assume tabulators at every COLS columns instead of 8",
        ),
        short(
            'U',
            "unsorted",
            |ls| ls.sort = Some(SortBy::None),
            "Show entries in the order of the index",
        ),
        short(
            'u',
            "atime",
            |ls| ls.time = Some(LsTime::Access),
            "Show and sort by the time of the last access",
        ),
        short(
            'v',
            "by-version",
            |ls| ls.sort = Some(SortBy::Version),
            "Sort by names, in which numbers count as such",
        ),
        both(
            'w',
            "width",
            Value("COLS", |ls, count| {
                let width = count.value.to_str().and_then(line_width);
                let invalid = || anyhow!("invalid line width: {}", quoted(count.value));
                ls.width = Some(width.ok_or_else(invalid)?);
                Ok(())
            }),
            "Print lines of COLS columns; 0 for no limit",
        ),
        short(
            'X',
            "by-extension",
            |ls| ls.sort = Some(SortBy::Extension),
            "Sort by what follows the last dot",
        ),
        short(
            'x',
            "across",
            |ls| ls.layout = Some(Layout::Across),
            "Print names in columns, line by line",
        ),
        // One a line are long lines too.
        short('1', "lines", Ls::take_lines, "Print one name a line"),
        long(
            "zero",
            Flag(|ls| {
                ls.options.null = true;
                ls.hide = Some(false);
                ls.style = Some(Style::Literal);
                ls.color = When::Never;
                ls.take_lines();
            }),
            "End lines with NUL, and print names as they are",
        ),
    ];
}

/// Carries the command out.
pub fn run(invocation: &Invocation, mut arguments: Arguments) -> anyhow::Result<Outcome> {
    if arguments.paths.is_empty() {
        arguments.paths.push(".".into());
    }
    let stdout = std::io::stdout();
    let mut asked = Ls::new(stdout.is_terminal());
    arguments.switches.apply(&mut asked)?;
    let options = asked.options().map_err(|error| refused::<Ls>(&error))?;
    let index = arguments.read.open_to_answer(invocation, &arguments.paths)?;
    let mut output = match options.json {
        true => stdout_for_json(),
        false => BufWriter::with_capacity(1 << 16, Box::new(stdout) as _),
    };
    let failed = ls::ls(&index, &arguments.paths, &options, &mut output)?;
    failed.errors.iter().for_each(message);
    Ok(match failed.arguments {
        true => Outcome::Serious,
        false => Outcome::of_errors(&failed.errors),
    })
}

/// When something is done.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum When {
    Always,
    #[default]
    Auto,
    Never,
}

impl When {
    /// Returns whether it is done, on a terminal or not.
    fn is_now(self, terminal: bool) -> bool {
        self == When::Always || (self == When::Auto && terminal)
    }
}

const WHEN: [(&str, When); 10] = [
    (LEFT_OUT, When::Always),
    ("always", When::Always),
    ("yes", When::Always),
    ("force", When::Always),
    ("never", When::Never),
    ("no", When::Never),
    ("none", When::Never),
    ("auto", When::Auto),
    ("tty", When::Auto),
    ("if-tty", When::Auto),
];

impl Ls {
    fn new(terminal: bool) -> Self {
        let options = LsOptions {
            owner: true,
            group: true,
            size_form: SizeForm::BYTES,
            now_ns: now_ns(),
            ..LsOptions::default()
        };
        let color = if no_color() { When::Never } else { When::Auto };
        Ls { terminal, color, options, ..Ls::default() }
    }

    fn take_lines(&mut self) {
        if self.layout != Some(Layout::Long) {
            self.layout = Some(Layout::Lines);
        }
    }

    /// Takes `-f`, which takes back what would look at more than names.
    fn take_all_unsorted(&mut self) {
        self.options.hidden = Hidden::All;
        self.sort = Some(SortBy::None);
        self.layout = self.layout.filter(|layout| *layout != Layout::Long);
        self.options.blocks = false;
        self.color = When::Never;
        self.options.hyperlink = false;
    }

    /// Returns what comes of all options, the terminal and the environment.
    fn options(self) -> anyhow::Result<LsOptions> {
        let mut options = self.options;
        if self.backups {
            for pattern in [&b"*~"[..], b".*~"] {
                options.ignore.push(NamePattern::new(pattern)?);
            }
        }
        options.layout =
            self.layout.unwrap_or(if self.terminal { Layout::Columns } else { Layout::Lines });
        options.time = self.time.unwrap_or(LsTime::Modification);
        let itself = options.directory
            || options.layout == Layout::Long
            || options.indicator == Indicator::Classify;
        let default = if itself { Dereference::Never } else { Dereference::ToDirectories };
        options.dereference = self.dereference.unwrap_or(default);
        if options.dired && options.null && options.layout == Layout::Long && !options.hyperlink {
            bail!("--dired and --zero are incompatible");
        }
        let by_time = self.time.is_some() && options.layout != Layout::Long;
        options.sort = self.sort.unwrap_or(if by_time { SortBy::Time } else { SortBy::Name });
        let style = self.style.or_else(quoting_style);
        let default = if self.terminal { Style::ShellEscape } else { Style::Literal };
        let style = style.unwrap_or(default);
        let hide = self.hide.unwrap_or(self.terminal);
        options.quoting = Quoting { style, hide, also: Vec::new(), utf8: is_utf8() };
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
        // Where no times are shown, nobody minds a wrong style.
        let style = self.time_style.or_else(|| std::env::var("TIME_STYLE").ok());
        let style = style.filter(|_| options.layout == Layout::Long);
        let style = style.map(|style| parse_time_style(&style)).transpose()?;
        options.time_style = style.unwrap_or_else(TimeStyle::locale);
        let colored = self.color.is_now(self.terminal);
        options.colors = if colored { colors() } else { None };
        let in_columns = !matches!(options.layout, Layout::Lines | Layout::Long);
        // Coloured lines that reach the end of the terminal's are cleared.
        if colored || in_columns {
            let columns = || from_environment("width in", "COLUMNS", false, line_width);
            let width = self.width.or_else(|| terminal_width(self.terminal)).or_else(columns);
            options.width = width.unwrap_or(80);
        }
        if in_columns {
            let tab = || from_environment("tab size in", "TABSIZE", true, whole_number);
            options.tab = self.tab.or_else(tab).unwrap_or(8);
        }
        Ok(options)
    }
}

const SORTS: [(&str, SortBy); 6] = [
    ("none", SortBy::None),
    ("time", SortBy::Time),
    ("size", SortBy::Size),
    ("extension", SortBy::Extension),
    ("version", SortBy::Version),
    ("width", SortBy::Width),
];

fn parse_time_style(style: &str) -> anyhow::Result<TimeStyle> {
    TimeStyle::parse_for_ls(style).map_err(|error| match error {
        canopy_text::Error::TimeStyle { .. } => {
            let name = style.trim_start_matches("posix-");
            let begun = TIME_STYLES.iter().any(|known| known.starts_with(name));
            let wrong = if begun { "ambiguous" } else { "invalid" };
            let (value, what) = (quoted(name), quoted("time style"));
            Wrong::Usage(format!(
                "{wrong} argument {value} for {what}\nValid arguments are:\n  \
                 - [posix-]full-iso\n  - [posix-]long-iso\n  - [posix-]iso\n  \
                 - [posix-]locale\n  - +FORMAT (e.g., +%H:%M) for a 'date'-style format"
            ))
            .into()
        }
        _ => {
            let format = style.strip_prefix('+').unwrap_or(style);
            anyhow!("invalid time style format {}", quoted(format))
        }
    })
}

const TIME_STYLES: [&str; 4] = ["full-iso", "long-iso", "iso", "locale"];

fn name_pattern(pattern: Argument<'_>) -> anyhow::Result<NamePattern> {
    Ok(NamePattern::new(pattern.value.as_bytes())?)
}

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

const INDICATORS: [(&str, Indicator); 4] = [
    ("none", Indicator::None),
    ("slash", Indicator::Slash),
    ("file-type", Indicator::FileType),
    ("classify", Indicator::Classify),
];

fn columns(count: Argument<'_>) -> anyhow::Result<usize> {
    let columns = count.value.to_str().and_then(whole_number);
    let digits = count.value.as_bytes();
    let is_number = !digits.starts_with(b"0") && digits.iter().all(u8::is_ascii_digit);
    let more = if is_number { ": Value too large for defined data type" } else { "" };
    columns.ok_or_else(|| anyhow!("invalid tab size: {}{more}", quoted(count.value)))
}

/// Returns the style of quoting that the environment asks for.
pub fn quoting_style() -> Option<Style> {
    // Empty, it makes no sense either.
    let style = |style: &str| word(style, "", &Style::NAMES).ok().filter(|_| !style.is_empty());
    from_environment("value of", "QUOTING_STYLE", true, style)
}

/// Returns what a variable says, and tells if that makes no sense, where `empty` also if it is set
/// to nothing.
fn from_environment<V>(
    what: &str,
    name: &str,
    empty: bool,
    read: impl FnOnce(&str) -> Option<V>,
) -> Option<V> {
    let said = std::env::var(name).ok().filter(|said| empty || !said.is_empty())?;
    let value = read(&said);
    if value.is_none() {
        let said = quoted(&said);
        message(format_args!("ignoring invalid {what} environment variable {name}: {said}"));
    }
    value
}

/// Returns whether the user wants no colours of any program (see no-color.org).
pub fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Returns the colours of the environment; none if what it says makes no sense or the terminal
/// knows none.
pub fn colors() -> Option<Colors> {
    let value = std::env::var_os("LS_COLORS").filter(|value| !value.is_empty());
    if let Some(value) = value {
        let colors = Colors::parse(&value.into_vec());
        if colors.is_none() {
            message("unparsable value for LS_COLORS environment variable");
        }
        return colors;
    }
    let set = std::env::var_os("COLORTERM").is_some_and(|value| !value.is_empty());
    let terminal = std::env::var("TERM").unwrap_or_default();
    (set || knows_colors(&terminal)).then(|| Colors::parse(b"")).flatten()
}

/// Returns whether a terminal of that name has colours, as the database of dircolors(1) says.
pub fn knows_colors(terminal: &str) -> bool {
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
