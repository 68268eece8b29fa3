//! `canopy du`

use super::switches::{Given, Switch, Switches, Tool, Value, both, long, short, text, word};
use crate::options::ReadOptions;
use crate::outcome::{Outcome, message};
use anyhow::{Context, anyhow, bail};
use canopy_text::{Number, SizeForm, TimeStyle};
use canopy_tools::du::{self, By, DuOptions, Exclude, Measure, Order, TimeKind};
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const SWITCHES: &[Switch] = &[
    both('0', "null", Value::None, "End lines with NUL"),
    both('a', "all", Value::None, "Print a line for every file too"),
    long("apparent-size", Value::None, "Add up sizes instead of the space taken on disk"),
    both('B', "block-size", Value::Needed("SIZE"), "Print units of SIZE, such as M or 10K"),
    both('b', "bytes", Value::None, "The same as --apparent-size --block-size=1"),
    both('c', "total", Value::None, "Print a grand total"),
    both('D', "dereference-args", Value::None, "Follow symbolic links that are PATHs"),
    short('H', "dereference-args-too", "The same as -D"),
    both(
        'd',
        "max-depth",
        Value::Needed("N"),
        "Print lines for what is at most N levels below a PATH",
    ),
    both('h', "human-readable", Value::None, "Print sizes for people, such as 4.0K or 12M"),
    long("inodes", Value::None, "Count files and directories instead of their space"),
    short('k', "kibibytes", "The same as --block-size=1K"),
    both('l', "count-links", Value::None, "Count every name of a hard link"),
    short('m', "mebibytes", "The same as --block-size=1M"),
    both('P', "no-dereference", Value::None, "Follow no symbolic links, which is the default"),
    both('S', "separate-dirs", Value::None, "Leave subdirectories out of the lines of directories"),
    long("si", Value::None, "As -h, with powers of 1000"),
    both('s', "summarize", Value::None, "Print one line for each PATH"),
    both(
        't',
        "threshold",
        Value::Needed("SIZE"),
        "Leave lines of less than SIZE out, or of more if it is negative",
    ),
    long(
        "time",
        Value::Optional("WORD"),
        "Print the latest time of all that a line stands for: that of modification, or atime, access, use, ctime, status",
    ),
    long("time-style", Value::Needed("STYLE"), "Print times as full-iso, long-iso, iso or +FORMAT"),
    both('X', "exclude-from", Value::Needed("FILE"), "Leave out what matches a pattern in FILE"),
    long("exclude", Value::Needed("PATTERN"), "Leave out what matches PATTERN"),
    both('x', "one-file-system", Value::None, "Leave directories on other file systems out"),
    long(
        "by",
        Value::Needed("WHAT"),
        "Print sums by user, group, extension or age instead of directories: of all that is no directory, every name of a hard link counted. Sums by extension and age are of sizes",
    ),
    long("sort", Value::Needed("ORDER"), "Print lines by size, largest first, or by name"),
    long("top", Value::Needed("N"), "Print the N largest lines"),
    long("json", Value::None, "Print JSON"),
];

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

struct Du;

impl Tool for Du {
    const SWITCHES: &'static [Switch] = SWITCHES;
}

/// Carries the command out.
pub fn run(index: Option<PathBuf>, mut arguments: Arguments) -> anyhow::Result<Outcome> {
    if arguments.paths.is_empty() {
        arguments.paths.push(".".into());
    }
    let options = options(&arguments.switches.given, arguments.read.threads())?;
    let index = arguments.read.open(index)?;
    let mut output = BufWriter::with_capacity(1 << 16, std::io::stdout());
    let failed = du::run(&index, &arguments.paths, &options, &mut output)?;
    failed.iter().for_each(message);
    Ok(Outcome::of_errors(&failed))
}

/// What the options ask for, later ones before earlier ones.
fn options(given: &[Given], threads: usize) -> anyhow::Result<DuOptions> {
    let mut options = DuOptions {
        measure: Measure::Disk,
        form: SizeForm::from_environment("DU_BLOCK_SIZE"),
        all: false,
        depth_max: None,
        total: false,
        null: false,
        count_links: false,
        separate: false,
        dereference: false,
        one_file_system: false,
        exclude: Vec::new(),
        time: None,
        threshold: 0,
        by: None,
        order: None,
        top: None,
        json: false,
        terminal: std::io::stdout().is_terminal(),
        threads,
    };
    let (mut summarize, mut inodes, mut time, mut style) = (false, false, None, None);
    for (id, value) in given {
        match *id {
            "null" => options.null = true,
            "all" => options.all = true,
            "apparent-size" => options.measure = Measure::Apparent,
            "block-size" => {
                options.form =
                    SizeForm::parse(text(id, value)?).map_err(|e| anyhow!("--{id}: {e}"))?
            }
            "bytes" => (options.measure, options.form) = (Measure::Apparent, SizeForm::BYTES),
            "total" => options.total = true,
            "dereference-args" | "dereference-args-too" => options.dereference = true,
            "no-dereference" => options.dereference = false,
            "max-depth" => {
                let depth = text(id, value)?.parse();
                options.depth_max =
                    Some(depth.map_err(|_| anyhow!("invalid maximum depth {value:?}"))?);
            }
            "human-readable" => options.form = SizeForm::HUMAN,
            "si" => options.form = SizeForm::SI,
            "kibibytes" => options.form = SizeForm::KIBIBYTES,
            "mebibytes" => options.form = SizeForm::blocks(1 << 20),
            "inodes" => inodes = true,
            "count-links" => options.count_links = true,
            "separate-dirs" => options.separate = true,
            "summarize" => summarize = true,
            "threshold" => options.threshold = threshold(text(id, value)?)?,
            "time" => time = Some(time_kind(value)?),
            "time-style" => style = Some(text(id, value)?),
            "exclude" => options.exclude.push(exclude(value.as_bytes())?),
            "exclude-from" => exclude_from(value, &mut options.exclude)?,
            "one-file-system" => options.one_file_system = true,
            "by" => {
                options.by = Some(word(
                    id,
                    value,
                    &[
                        ("user", By::User),
                        ("group", By::Group),
                        ("extension", By::Extension),
                        ("age", By::Age),
                    ],
                )?)
            }
            "sort" => {
                options.order =
                    Some(word(id, value, &[("size", Order::Size), ("name", Order::Name)])?)
            }
            "top" => {
                let top = text(id, value)?.parse();
                options.top = Some(top.map_err(|_| anyhow!("invalid number of lines {value:?}"))?);
            }
            "json" => options.json = true,
            other => unreachable!("{other} is no option of du"),
        }
    }
    if inodes {
        options.measure = Measure::Inodes;
    }
    if let Some(kind) = time {
        let style = style.map(|style| TimeStyle::parse_for_du(style).map_err(anyhow::Error::msg));
        options.time = Some((kind, style.transpose()?.unwrap_or_else(time_style)));
    }
    if options.top.is_some() {
        options.order.get_or_insert(Order::Size);
    }
    if summarize {
        if options.all {
            bail!("cannot both summarize and show all entries");
        }
        if options.depth_max.is_some_and(|depth| depth > 0) {
            bail!("summarizing conflicts with --max-depth={}", options.depth_max.unwrap_or(0));
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

fn time_kind(value: &OsString) -> anyhow::Result<TimeKind> {
    if value.is_empty() {
        return Ok(TimeKind::Modification);
    }
    let words = [
        ("atime", TimeKind::Access),
        ("access", TimeKind::Access),
        ("use", TimeKind::Access),
        ("ctime", TimeKind::Change),
        ("status", TimeKind::Change),
        ("mtime", TimeKind::Modification),
        ("modification", TimeKind::Modification),
    ];
    word("time", value, &words)
}

/// The style that the environment asks for, unless it is one for ls alone.
fn time_style() -> TimeStyle {
    let asked = std::env::var("TIME_STYLE").ok().filter(|style| style != "locale");
    let asked = asked.as_deref().map(|style| style.strip_prefix("posix-").unwrap_or(style));
    // Of two lines for ls, du takes the first.
    let asked = asked.map(|style| style.split('\n').next().unwrap_or(style));
    asked.and_then(|style| TimeStyle::parse_for_du(style).ok()).unwrap_or_else(TimeStyle::long_iso)
}

fn threshold(text: &str) -> anyhow::Result<i64> {
    let invalid = || anyhow!("invalid --threshold argument '{text}'");
    let digits = text.strip_prefix('-');
    let number = Number::parse(digits.unwrap_or(text)).map_err(|_| invalid())?;
    let number = i64::try_from(number.value).map_err(|_| invalid())?;
    if digits.is_some() && number == 0 {
        return Err(invalid());
    }
    Ok(if digits.is_some() { -number } else { number })
}

fn exclude(pattern: &[u8]) -> anyhow::Result<Exclude> {
    Exclude::new(pattern).map_err(anyhow::Error::msg)
}

/// Adds the patterns of a file, one a line, without white space at their ends.
fn exclude_from(file: &OsStr, patterns: &mut Vec<Exclude>) -> anyhow::Result<()> {
    let mut text = Vec::new();
    if file == "-" {
        std::io::stdin().read_to_end(&mut text).context("cannot read patterns")?;
    } else {
        let shown = PathBuf::from(file);
        text = std::fs::read(file).with_context(|| format!("cannot read {}", shown.display()))?;
    }
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii_end();
        if !line.is_empty() {
            patterns.push(exclude(line)?);
        }
    }
    Ok(())
}
