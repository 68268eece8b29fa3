//! Options of `canopy du` as all of them and the environment settle them.

use super::switches::{Du, TIME_STYLES};
use crate::outcome::{Wrong, message};
use crate::switches::word;
use crate::terminal::width;
use anyhow::bail;
use canopy_text::locale::is_utf8;
use canopy_text::{SizeForm, TimeStyle};
use canopy_tools::du::{DuOptions, Measure, Order};
use std::io::IsTerminal;

impl Du {
    pub(super) fn new(threads: usize) -> Self {
        let options = DuOptions {
            terminal: std::io::stdout().is_terminal(),
            threads,
            ..DuOptions::default()
        };
        Du {
            options,
            form: None,
            tree: false,
            mine: false,
            files: None,
            summarize: false,
            inodes: false,
            time: None,
            time_style: None,
        }
    }

    /// Returns the options as all of them and the environment settle them.
    pub(super) fn options(self) -> anyhow::Result<DuOptions> {
        let mut options = self.options;
        options.form = self.form.unwrap_or_else(|| match self.tree {
            true if !asks_for_size() => SizeForm::HUMAN,
            _ => SizeForm::from_environment("DU_BLOCK_SIZE"),
        });
        if self.inodes {
            if options.measure == Measure::Apparent {
                message("warning: options --apparent-size and -b are ineffective with --inodes");
            }
            options.measure = Measure::Inodes;
        }
        if let Some(kind) = self.time {
            let style = self.time_style.or_else(time_style).map(|style| parse_time_style(&style));
            options.time = Some((kind, style.transpose()?.unwrap_or_else(TimeStyle::long_iso)));
        }
        if self.mine {
            if options.owner.is_some() {
                bail!("--mine and --user name two owners: give one");
            }
            options.owner = Some(nix::unistd::geteuid().as_raw());
        }
        if self.tree {
            if options.by.is_some() || options.json || options.null || options.separate {
                bail!("--tree goes with neither --by, --json, -0 nor -S");
            }
            if options.time.is_some() {
                bail!("--tree shows no times");
            }
            options.tree = Some(if width(options.terminal) < 80 { 10 } else { 20 });
            options.ascii = !is_utf8();
            options.depth_max.get_or_insert(if self.summarize { 0 } else { 2 });
            options.top.get_or_insert(10);
        } else if options.top.is_some() {
            options.order.get_or_insert(Order::Size);
        }
        if self.summarize {
            if options.all {
                let told = "cannot both summarize and show all entries";
                bail!(Wrong::Usage(told.to_owned()));
            }
            match options.depth_max.filter(|_| !self.tree) {
                Some(0) => message("warning: summarizing is the same as using --max-depth=0"),
                Some(depth) => {
                    let told = format!("warning: summarizing conflicts with --max-depth={depth}");
                    bail!(Wrong::Usage(told));
                }
                None => {}
            }
            options.depth_max = Some(0);
        }
        if options.by.is_some() {
            let walks =
                options.one_file_system || !options.exclude.is_empty() || options.time.is_some();
            if walks || options.total || options.all {
                bail!("--by goes with neither -a, -c, -x, --exclude nor --time");
            }
            options.order.get_or_insert(Order::Size);
        }
        Ok(options)
    }
}

/// Returns the style that the environment asks for, unless it is one for ls alone.
fn time_style() -> Option<String> {
    let asked = std::env::var("TIME_STYLE").ok().filter(|style| style != "locale")?;
    let asked = match asked.strip_prefix('+') {
        // A value for ls may have two lines; du takes the first.
        Some(_) => asked.split('\n').next().unwrap_or_default(),
        None => asked.trim_start_matches("posix-"),
    };
    Some(asked.to_owned())
}

fn parse_time_style(style: &str) -> anyhow::Result<TimeStyle> {
    TimeStyle::parse_for_du(style).or_else(|_| {
        let named = word(style, "time style", &TIME_STYLES)?;
        Ok(TimeStyle::parse_for_du(named)?)
    })
}

/// Returns whether the environment says in which units sizes are.
fn asks_for_size() -> bool {
    ["DU_BLOCK_SIZE", "BLOCK_SIZE", "BLOCKSIZE"].iter().any(|name| std::env::var_os(name).is_some())
}
