//! Options of `canopy ls` as all of them, the terminal and the environment settle them.

use super::switches::Ls;
use super::words::{TIME_STYLES, When};
use crate::environment::{colors, from_environment, no_color, quoting_style};
use crate::outcome::Wrong;
use crate::switches::quoted;
use crate::terminal::terminal_width;
use anyhow::{anyhow, bail};
use canopy_ingest::now_ns;
use canopy_text::locale::is_utf8;
use canopy_text::{Quoting, SizeForm, Style, TimeStyle, line_width, whole_number};
use canopy_tools::ls::{Dereference, Indicator, Layout, LsOptions, LsTime, NamePattern, SortBy};

impl Ls {
    pub(super) fn new(terminal: bool) -> Self {
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

    /// Returns the options as all of them, the terminal and the environment settle them.
    pub(super) fn options(self) -> anyhow::Result<LsOptions> {
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
        // A wrong style does not matter if no times are shown.
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
