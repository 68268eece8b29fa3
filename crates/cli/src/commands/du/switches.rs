//! Options of `canopy du`: a row has the names, the effect and the help of one.

use crate::commands::report::parse_user;
use crate::outcome::Wrong;
use crate::switches::Effect::{Flag, Optional, Value};
use crate::switches::{
    Argument, LEFT_OUT, Switch, Tool, both, long, of, own, quoted, short, words_of,
};
use anyhow::{Context, anyhow, bail};
use canopy_text::locale::is_utf8;
use canopy_text::{Quoting, SizeForm, parse_size, whole_number};
use canopy_tools::du::{By, DuOptions, Exclude, Measure, Order, TimeKind};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

/// Requests of the options so far.
pub(crate) struct Du {
    pub(super) options: DuOptions,
    pub(super) form: Option<SizeForm>,
    pub(super) tree: bool,
    pub(super) mine: bool,
    /// The file with the names to add up.
    pub(super) files: Option<OsString>,
    pub(super) summarize: bool,
    pub(super) inodes: bool,
    pub(super) time: Option<TimeKind>,
    pub(super) time_style: Option<String>,
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
            "Print lines only for directories at most N levels below a PATH",
        ),
        long(
            "files0-from",
            Value("FILE", |du, file| {
                du.files = Some(file.value.to_owned());
                Ok(())
            }),
            "Add up the names in FILE, each with NUL behind it; - is standard input",
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
            "Leave out names that match a pattern in FILE",
        ),
        long(
            "exclude",
            Value("PATTERN", |du, pattern| {
                du.options.exclude.push(exclude(pattern.value.as_bytes())?);
                Ok(())
            }),
            "Leave out names that match PATTERN",
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
                "Print sums by user, group, extension or age instead of directories: of everything \
                 but directories, every name of a hard link counted. Sums by extension and age \
                 are of sizes",
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

pub(super) const TIME_STYLES: [(&str, &str); 3] =
    [("full-iso", "full-iso"), ("long-iso", "long-iso"), ("iso", "iso")];

impl Du {
    fn take_arguments(&mut self) {
        (self.options.dereference, self.options.logical) = (true, false);
    }

    fn take_block_size(&mut self, size: Argument<'_>) -> anyhow::Result<()> {
        self.form = Some(size.block_size()?);
        Ok(())
    }
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
