//! `canopy stat`

use crate::environment::quoting_style;
use crate::invocation::Invocation;
use crate::outcome::{Outcome, Wrong, message};
use crate::read_options::ReadOptions;
use crate::switches::Effect::{Flag, Value};
use crate::switches::{
    Argument, Switch, Switches, Tool, both, long, of, own, quoted, refused, words_of,
};
use crate::terminal::stdout_for_json;
use anyhow::anyhow;
use canopy_text::locale::is_utf8;
use canopy_text::{Quoting, Style};
use canopy_tools::ls::{StatFormat, StatOptions, stat};
use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal};
use std::os::unix::ffi::OsStrExt;

/// Print all that is known of entries, as stat(1) does, answered from the index
///
/// Directives of FORMAT: %a %A permissions, %b %B blocks and their size, %d %D %Hd %Ld device, %f
/// mode, %F type, %g %G group, %h links, %i inode, %n %N name, %o size for I/O, %r %R %Hr %Lr %t %T
/// device type, %s size, %u %U owner, %w %W birth, %x %X access, %y %Y modification, %z %Z change.
/// change, %m mount point, of which the index knows devices alone, %C security context.
///
/// Example: canopy stat -c '%U %s %n' /data/run.h5
#[derive(clap::Args)]
#[command(override_usage = "canopy stat [OPTIONS] <PATH>...")]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    #[command(flatten)]
    switches: Switches<Stat>,
    /// Files and directories to print
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Settings from the options so far.
pub(crate) struct Stat(StatOptions);

impl Tool for Stat {
    const NAME: &'static str = "stat";
    const REFUSED: u8 = 1;
    const MISSING: &'static [(&'static str, Option<char>)] = &[("file-system", Some('f'))];
    const SWITCHES: &'static [Switch<Stat>] = &[
        both('L', "dereference", Flag(|stat| stat.0.dereference = true), "Follow symbolic links"),
        both(
            'c',
            "format",
            Value("FORMAT", |stat, format| stat.take(StatFormat::Line, format)),
            "Print FORMAT, with an end of line after each PATH",
        ),
        of(
            || words_of(&CACHES),
            long(
                "cached",
                Value("MODE", |_, mode| mode.word(&CACHES).map(|_| ())),
                "Taken as stat(1) takes it, without effect: always, never or default",
            ),
        ),
        long(
            "printf",
            Value("FORMAT", |stat, format| stat.take(StatFormat::Escaped, format)),
            "Print FORMAT, with backslash escapes and no end of line",
        ),
        own("json", Flag(|stat| stat.0.format = StatFormat::Json), "Print JSON"),
        both('t', "terse", Flag(Stat::take_terse), "Print all in one line"),
    ];
}

/// Modes in which stat(1) may use cached attributes of a network file system.
const CACHES: [(&str, u8); 3] = [("default", 0), ("never", 1), ("always", 2)];

impl Stat {
    fn take(
        &mut self,
        form: fn(Vec<u8>) -> StatFormat,
        format: Argument<'_>,
    ) -> anyhow::Result<()> {
        self.0.format = form(format.value.as_bytes().to_vec());
        Ok(())
    }

    /// Takes `--terse`; a format counts before it, wherever they stand.
    fn take_terse(&mut self) {
        if matches!(self.0.format, StatFormat::Full) {
            self.0.format = StatFormat::Terse;
        }
    }
}

/// Carries the command out.
///
/// # Errors
///
/// If options are refused, no index answers, or output cannot be written.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let stdout = std::io::stdout();
    let mut asked = Stat(StatOptions {
        format: StatFormat::Full,
        dereference: false,
        quoting: Quoting { utf8: is_utf8(), ..Quoting::default() },
        terminal: stdout.is_terminal(),
    });
    arguments.switches.apply(&mut asked)?;
    if arguments.paths.is_empty() {
        let missing = Wrong::Usage("missing operand".to_owned());
        return Err(refused::<Stat>(&missing.into()).into());
    }
    if asked.0.format.asks_how_to_quote() {
        asked.0.quoting.style = quoting_style().unwrap_or(Style::ShellEscapeAlways);
    }
    let index = arguments.read.open_to_answer(invocation, &arguments.paths)?;
    let mut output = match asked.0.format {
        StatFormat::Json => stdout_for_json(),
        _ => BufWriter::new(Box::new(stdout) as _),
    };
    let stated = stat(&index, &arguments.paths, &asked.0, &mut output)?;
    for warning in &stated.warnings {
        message(format_args!("warning: {warning}"));
    }
    stated.failed.iter().for_each(message);
    if let Some(directive) = stated.refused {
        return Err(refused::<Stat>(&anyhow!("{}: invalid directive", quoted(directive))).into());
    }
    Ok(Outcome::of_errors(&stated.failed))
}
