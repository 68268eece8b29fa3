//! Options of `canopy ls`: a row has the names, the effect and the help of one.

use super::words::{INDICATORS, LAYOUTS, SORTS, TIME_STYLES, TIMES, WHEN, When};
use crate::switches::Effect::{Flag, Optional, Value};
use crate::switches::{Argument, Switch, Tool, both, long, of, own, quoted, short, words_of};
use anyhow::anyhow;
use canopy_text::{SizeForm, Style, line_width, whole_number};
use canopy_tools::ls::{
    Dereference, Hidden, Indicator, Layout, LsOptions, LsTime, NamePattern, SortBy,
};
use std::os::unix::ffi::OsStrExt;

/// Requests of the options so far.
#[derive(Default)]
pub(crate) struct Ls {
    pub(super) terminal: bool,
    pub(super) layout: Option<Layout>,
    pub(super) style: Option<Style>,
    pub(super) hide: Option<bool>,
    pub(super) sort: Option<SortBy>,
    pub(super) time: Option<LsTime>,
    pub(super) time_style: Option<String>,
    pub(super) form: Option<SizeForm>,
    pub(super) kibibytes: bool,
    pub(super) color: When,
    pub(super) dereference: Option<Dereference>,
    pub(super) backups: bool,
    pub(super) width: Option<usize>,
    pub(super) tab: Option<usize>,
    pub(super) options: LsOptions,
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
            "Print unprintable characters as backslash escapes",
        ),
        long(
            "block-size",
            Value("SIZE", |ls, size| {
                ls.form = Some(size.block_size()?);
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
            "Show the targets of symbolic links in place of them",
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
            "Show directories themselves instead of their contents",
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
            "Leave out names that match PATTERN, except with -a and -A",
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
            "Leave out names that match PATTERN",
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
            "Print ? for unprintable characters",
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
            "Print unprintable characters as they are",
        ),
        long("si", Flag(|ls| ls.form = Some(SizeForm::SI)), "As -h, with powers of 1000"),
        of(
            || [&words_of(&SORTS)[..], &["name"]].concat(),
            long(
                "sort",
                Value("WORD", |ls, sort| {
                    // Older versions of GNU's ls lack this word: its beginnings keep their meanings.
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
            "Sort by the text behind the last dot",
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

impl Ls {
    fn take_lines(&mut self) {
        if self.layout != Some(Layout::Long) {
            self.layout = Some(Layout::Lines);
        }
    }

    /// Takes `-f`, which resets options that need more than names.
    fn take_all_unsorted(&mut self) {
        self.options.hidden = Hidden::All;
        self.sort = Some(SortBy::None);
        self.layout = self.layout.filter(|layout| *layout != Layout::Long);
        self.options.blocks = false;
        self.color = When::Never;
        self.options.hyperlink = false;
    }
}

fn name_pattern(pattern: Argument<'_>) -> anyhow::Result<NamePattern> {
    Ok(NamePattern::new(pattern.value.as_bytes())?)
}

fn columns(count: Argument<'_>) -> anyhow::Result<usize> {
    let columns = count.value.to_str().and_then(whole_number);
    let digits = count.value.as_bytes();
    let is_number = !digits.starts_with(b"0") && digits.iter().all(u8::is_ascii_digit);
    let more = if is_number { ": Value too large for defined data type" } else { "" };
    columns.ok_or_else(|| anyhow!("invalid tab size: {}{more}", quoted(count.value)))
}
