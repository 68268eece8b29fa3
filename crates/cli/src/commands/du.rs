//! `canopy du`

use super::report::parse_user;
use crate::invocation::Invocation;
use crate::outcome::{Outcome, message};
use crate::read_options::ReadOptions;
use crate::switches::Effect::{Flag, Optional, Value};
use crate::switches::{
    Argument, LEFT_OUT, Switch, Switches, Tool, Wrong, both, long, of, own, quoted, refused, short,
    word, words_of,
};
use crate::terminal::stdout_for_json;
use crate::terminal::width;
use anyhow::{Context, anyhow, bail};
use canopy_text::locale::is_utf8;
use canopy_text::{Quoting, SizeForm, TimeStyle, parse_size, whole_number};
use canopy_tools::du::{self, By, DuOptions, Exclude, Measure, Order, TimeKind};
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;

/// Add up the space that directories take, as du(1) does, answered from the index
///
/// Example: canopy du -sh /home/*
///
/// Example: canopy du --by user --top 10 -h /data
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    #[command(flatten)]
    switches: Switches<Du>,
    /// What to add up [default: the working directory]
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Settings from the options so far.
pub(crate) struct Du {
    options: DuOptions,
    form: Option<SizeForm>,
    tree: bool,
    mine: bool,
    /// The file that names what to add up.
    files: Option<OsString>,
    summarize: bool,
    inodes: bool,
    time: Option<TimeKind>,
    time_style: Option<String>,
}

impl Tool for Du {
    const NAME: &'static str = "du";
    const REFUSED: u8 = 1;
    const MISSING: &'static [(&'static str, Option<char>)] = &[];
    const SWITCHES: &'static [Switch<Du>] = &[
        both('0', "null", Flag(|du| du.options.null = true), "End lines with NUL"),
        both('a', "all", Flag(|du| du.options.all = true), "Print a line for every file too"),
        long(
            "apparent-size",
            Flag(|du| du.options.measure = Measure::Apparent),
            "Add up sizes instead of the space taken on disk",
        ),
        both(
            'B',
            "block-size",
            Value("SIZE", Du::take_block_size),
            "Print units of SIZE, such as M or 10K",
        ),
        both(
            'b',
            "bytes",
            Flag(|du| {
                (du.options.measure, du.form) = (Measure::Apparent, Some(SizeForm::BYTES));
            }),
            "The same as --apparent-size --block-size=1",
        ),
        both('c', "total", Flag(|du| du.options.total = true), "Print a grand total"),
        both(
            'D',
            "dereference-args",
            Flag(Du::take_arguments),
            "Follow symbolic links that are PATHs",
        ),
        short('H', "dereference-args-too", Du::take_arguments, "The same as -D"),
        both('L', "dereference", Flag(|du| du.options.logical = true), "Follow all symbolic links"),
        both(
            'd',
            "max-depth",
            Value("N", |du, depth| {
                let number = depth.value.to_str().and_then(whole_number);
                let invalid =
                    || Wrong::Usage(format!("invalid maximum depth {}", quoted(depth.value)));
                let depth = number.ok_or_else(invalid)?;
                du.options.depth_max = Some(u32::try_from(depth).unwrap_or(u32::MAX));
                Ok(())
            }),
            "Print lines for what is at most N levels below a PATH",
        ),
        long(
            "files0-from",
            Value("FILE", |du, file| {
                du.files = Some(file.value.to_owned());
                Ok(())
            }),
            "Add up what FILE names, each with NUL behind it; - is standard input",
        ),
        both(
            'h',
            "human-readable",
            Flag(|du| du.form = Some(SizeForm::HUMAN)),
            "Print sizes for people, such as 4.0K or 12M",
        ),
        long(
            "inodes",
            Flag(|du| du.inodes = true),
            "Count files and directories instead of their space",
        ),
        short(
            'k',
            "kibibytes",
            |du| du.form = Some(SizeForm::KIBIBYTES),
            "The same as --block-size=1K",
        ),
        both(
            'l',
            "count-links",
            Flag(|du| du.options.count_links = true),
            "Count every name of a hard link",
        ),
        short(
            'm',
            "mebibytes",
            |du| du.form = Some(SizeForm::blocks(1 << 20)),
            "The same as --block-size=1M",
        ),
        both(
            'P',
            "no-dereference",
            Flag(|du| (du.options.dereference, du.options.logical) = (false, false)),
            "Follow no symbolic links, which is the default",
        ),
        both(
            'S',
            "separate-dirs",
            Flag(|du| du.options.separate = true),
            "Leave subdirectories out of the lines of directories",
        ),
        long("si", Flag(|du| du.form = Some(SizeForm::SI)), "As -h, with powers of 1000"),
        both('s', "summarize", Flag(|du| du.summarize = true), "Print one line for each PATH"),
        both(
            't',
            "threshold",
            Value("SIZE", |du, size| {
                du.options.threshold = threshold(size)?;
                Ok(())
            }),
            "Leave lines of less than SIZE out, or of more if it is negative",
        ),
        of(
            || words_of(&TIMES),
            long(
                "time",
                Optional("WORD", |du, time| {
                    du.time = Some(time.word(&TIMES)?);
                    Ok(())
                }),
                "Print the latest time of all that a line stands for: that of modification, or \
                 atime, access, use, ctime, status",
            ),
        ),
        of(
            || words_of(&TIME_STYLES),
            long(
                "time-style",
                Value("STYLE", |du, style| {
                    du.time_style = Some(style.text()?.to_owned());
                    Ok(())
                }),
                "Print times as full-iso, long-iso, iso or +FORMAT",
            ),
        ),
        both(
            'X',
            "exclude-from",
            Value("FILE", |du, file| exclude_from(file.value, &mut du.options.exclude)),
            "Leave out what matches a pattern in FILE",
        ),
        long(
            "exclude",
            Value("PATTERN", |du, pattern| {
                du.options.exclude.push(exclude(pattern.value.as_bytes())?);
                Ok(())
            }),
            "Leave out what matches PATTERN",
        ),
        both(
            'x',
            "one-file-system",
            Flag(|du| du.options.one_file_system = true),
            "Leave directories on other file systems out",
        ),
        of(
            || words_of(&PARTS),
            own(
                "by",
                Value("WHAT", |du, what| {
                    du.options.by = Some(what.word(&PARTS)?);
                    Ok(())
                }),
                "Print sums by user, group, extension or age instead of directories: of all that \
                 is no directory, every name of a hard link counted. Sums by extension and age are \
                 of sizes",
            ),
        ),
        own(
            "user",
            Value("NAME|UID", |du, user| {
                let known = parse_user(user.text()?);
                let error = |error| anyhow!("{error}: {}", quoted(user.value));
                du.options.owner = Some(known.map_err(error)?);
                Ok(())
            }),
            "Count only entries of this user, by name or id",
        ),
        own("mine", Flag(|du| du.mine = true), "Count only your own entries"),
        of(
            || words_of(&ORDERS),
            own(
                "sort",
                Value("ORDER", |du, order| {
                    du.options.order = Some(order.word(&ORDERS)?);
                    Ok(())
                }),
                "Print lines by size, largest first, or by name",
            ),
        ),
        own(
            "top",
            Value("N", |du, count| {
                let invalid = |_| anyhow!("invalid number of lines {:?}", count.value);
                du.options.top = Some(count.text()?.parse().map_err(invalid)?);
                Ok(())
            }),
            "Print the N largest lines",
        ),
        own("json", Flag(|du| du.options.json = true), "Print JSON"),
        own(
            "tree",
            Flag(|du| du.tree = true),
            "Print a tree with bars, the largest first: two levels and ten lines of each \
             directory, unless -d and --top say otherwise",
        ),
    ];
}

const TIMES: [(&str, TimeKind); 8] = [
    (LEFT_OUT, TimeKind::Modification),
    ("atime", TimeKind::Access),
    ("access", TimeKind::Access),
    ("use", TimeKind::Access),
    ("ctime", TimeKind::Change),
    ("status", TimeKind::Change),
    ("mtime", TimeKind::Modification),
    ("modification", TimeKind::Modification),
];

const ORDERS: [(&str, Order); 2] = [("size", Order::Size), ("name", Order::Name)];

const PARTS: [(&str, By); 4] =
    [("user", By::User), ("group", By::Group), ("extension", By::Extension), ("age", By::Age)];

/// Carries the command out.
pub fn run(invocation: &Invocation, mut arguments: Arguments) -> anyhow::Result<Outcome> {
    let mut asked = Du::new(arguments.read.threads(invocation));
    arguments.switches.apply(&mut asked)?;
    let mut unnamed = 0;
    let files = asked.files.take();
    asked.options.once = files.is_some();
    let options = asked.options().map_err(|error| refused::<Du>(&error))?;
    if let Some(file) = files {
        let named = files_from(&file, arguments.paths.first());
        (arguments.paths, unnamed) = named.map_err(|error| refused::<Du>(&error))?;
    } else if arguments.paths.is_empty() {
        arguments.paths.push(".".into());
    }
    let index = arguments.read.open_to_answer(invocation, &arguments.paths)?;
    let mut output = match options.json {
        true => stdout_for_json(),
        false => BufWriter::with_capacity(1 << 16, Box::new(std::io::stdout()) as _),
    };
    let failed = du::run(&index, &arguments.paths, &options, &mut output)?;
    failed.iter().for_each(message);
    Ok(if unnamed > 0 { Outcome::Partial } else { Outcome::of_errors(&failed) })
}

/// Reads the names of what is to be added up, beside which there may be no operand. Returns how
/// many of them name nothing, which messages have told.
fn files_from(file: &OsStr, operand: Option<&OsString>) -> anyhow::Result<(Vec<OsString>, usize)> {
    if let Some(operand) = operand {
        let told = "file operands cannot be combined with --files0-from";
        bail!(Wrong::Usage(format!("extra operand {}\n{told}", quoted(operand))));
    }
    let shown = file.display();
    let mut text = Vec::new();
    if file == "-" {
        std::io::stdin().read_to_end(&mut text).context("cannot read names")?;
    } else {
        let mut opened = std::fs::File::open(file)
            .with_context(|| format!("cannot open '{shown}' for reading"))?;
        opened.read_to_end(&mut text).with_context(|| format!("{shown}: read error"))?;
    }
    let (mut names, mut unnamed) = (Vec::new(), 0);
    if text.is_empty() {
        return Ok((names, unnamed));
    }
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    for (number, name) in text.split(|byte| *byte == 0).enumerate() {
        if name.is_empty() {
            message(format_args!("{shown}:{}: invalid zero-length file name", number + 1));
            unnamed += 1;
        } else if name == b"-" && file == "-" {
            message("when reading file names from stdin, no file name of '-' allowed");
            unnamed += 1;
        } else {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok((names, unnamed))
}

impl Du {
    fn new(threads: usize) -> Self {
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

    fn take_arguments(&mut self) {
        (self.options.dereference, self.options.logical) = (true, false);
    }

    fn take_block_size(&mut self, size: Argument<'_>) -> anyhow::Result<()> {
        self.form = Some(block_size(size)?);
        Ok(())
    }

    /// Returns what comes of all options and the environment.
    fn options(self) -> anyhow::Result<DuOptions> {
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

/// Reads the argument of `--block-size`, here and in ls.
pub fn block_size(size: Argument<'_>) -> anyhow::Result<SizeForm> {
    SizeForm::parse(size.text()?).map_err(|error| size.wrong_size(&error))
}

/// Returns the style that the environment asks for, unless it is one for ls alone.
fn time_style() -> Option<String> {
    let asked = std::env::var("TIME_STYLE").ok().filter(|style| style != "locale")?;
    let asked = match asked.strip_prefix('+') {
        // du takes the first of two lines for ls.
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

const TIME_STYLES: [(&str, &str); 3] =
    [("full-iso", "full-iso"), ("long-iso", "long-iso"), ("iso", "iso")];

/// Returns whether the environment says in which units sizes are.
fn asks_for_size() -> bool {
    ["DU_BLOCK_SIZE", "BLOCK_SIZE", "BLOCKSIZE"].iter().any(|name| std::env::var_os(name).is_some())
}

fn threshold(size: Argument<'_>) -> anyhow::Result<i64> {
    let text = size.text()?;
    let digits = text.strip_prefix('-');
    let number = parse_size(digits.unwrap_or(text)).and_then(|number| {
        i64::try_from(number).map_err(|_| canopy_text::Error::LargeSize(text.to_owned()))
    });
    let number = number.map_err(|error| size.wrong_size(&error))?;
    if digits.is_some() && number == 0 {
        bail!("invalid --threshold argument '{text}'");
    }
    Ok(if digits.is_some() { -number } else { number })
}

fn exclude(pattern: &[u8]) -> anyhow::Result<Exclude> {
    Ok(Exclude::new(pattern)?)
}

/// Adds the patterns of a file, one a line, without white space at their ends.
fn exclude_from(file: &OsStr, patterns: &mut Vec<Exclude>) -> anyhow::Result<()> {
    let mut text = Vec::new();
    if file == "-" {
        std::io::stdin().read_to_end(&mut text).context("cannot read patterns")?;
    } else {
        let quoting = Quoting::terminal(is_utf8());
        let shown = quoting.quote(file.as_bytes());
        text = std::fs::read(file).map_err(|error| {
            Wrong::Usage(format!("{}: {error}", String::from_utf8_lossy(&shown)))
        })?;
    }
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii_end();
        if !line.is_empty() {
            patterns.push(exclude(line)?);
        }
    }
    Ok(())
}
