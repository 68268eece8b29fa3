//! `canopy locate`

use super::report::parse_user;
use crate::environment::{knows_colors, no_color};
use crate::invocation::Invocation;
use crate::outcome::{Outcome, SeveralLines, message};
use crate::read_options::ReadOptions;
use crate::terminal::stdout_for_json;
use canopy_ingest::now_ns;
use canopy_text::safe::{message_line, terminal_name};
use canopy_tools::find::{self, RunOptions};
use canopy_tools::ls::hyperlink;
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, IsTerminal, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Search all sources for names with a word in them, the best matches first
///
/// The word itself comes before names that begin with it, and these before names that have it
/// elsewhere; short names come before long ones. Capital letters match themselves, small ones both.
/// If there are several words, all must be in the path and the last one in the name. A word may name
/// a directory before a slash: names/run finds names that begin with run, in directories whose names
/// end in names. A word with *, ? or [ is a pattern of the whole name, as of 'canopy find -name'. If
/// it also has a slash, it is a pattern of the whole path, as of -path. Exit code 1 means no match.
///
/// Example: canopy locate results.h5
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    /// Paths to show
    #[arg(
        short = 'n', long, value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    count: u32,
    /// Ignore case, also of words with capital letters
    #[arg(short, long)]
    ignore_case: bool,
    /// Show only entries of this user, by name or id
    #[arg(long, value_name = "NAME|UID", value_parser = parse_user, conflicts_with = "mine")]
    user: Option<u32>,
    /// Show only your own entries
    #[arg(long)]
    mine: bool,
    /// End each path with a zero byte, for 'xargs -0'
    #[arg(short = '0', long)]
    null: bool,
    /// Print JSON, as 'canopy find --json' does
    #[arg(long, conflicts_with = "null")]
    json: bool,
    /// Words of the path, of which the name has the last
    #[arg(required = true, value_name = "WORD")]
    words: Vec<OsString>,
}

/// Carries the command out.
///
/// # Errors
///
/// If no index answers, or output cannot be written.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let Some((word, others)) = arguments.words.split_last() else { return Ok(Outcome::Partial) };
    let index = arguments.read.open_to_answer(invocation, &[])?;
    let most = arguments.count as usize;
    let now_ns = now_ns();
    // One more shows whether there are more.
    let most_asked = most.saturating_add(usize::from(!arguments.json));
    let mut words = expression(word, others, most_asked, arguments.ignore_case);
    words.extend(arguments.mine.then(|| "--mine".into()));
    words.extend(arguments.user.map(|uid| format!("--user={uid}").into()));
    words.push(if arguments.json { "--json" } else { "-print0" }.into());
    let find = find::parse(&words, now_ns).map_err(|error| SeveralLines(error.to_string()))?;
    let options = RunOptions {
        threads: arguments.read.threads(invocation),
        terminal: false,
        now_ns,
        reports_unlisted: false,
        diagnostic: |text| message(message_line(text)),
    };
    let mut found = Vec::new();
    let ended = find::run(&index, &find, options, &mut found)?;
    ended.failed.iter().for_each(message);
    if arguments.json {
        let mut output = stdout_for_json();
        output.write_all(&found)?;
        output.flush()?;
        let whole = ended.failed.is_empty() && !ended.partial && found != b"[]\n";
        return Ok(if whole { Outcome::Complete } else { Outcome::Partial });
    }
    let paths: Vec<&[u8]> =
        found.split(|byte| *byte == 0).filter(|path| !path.is_empty()).collect();

    let stdout = std::io::stdout();
    let style = Style::of_terminal(stdout.is_terminal() && !arguments.null, word);
    let mut output = BufWriter::new(stdout.lock());
    for path in paths.iter().take(most) {
        output.write_all(&style.shown(path))?;
        output.write_all(if arguments.null { b"\0" } else { b"\n" })?;
    }
    output.flush()?;
    if paths.is_empty() {
        let given: Vec<_> = arguments.words.iter().map(|word| word.to_string_lossy()).collect();
        message(message_line(&format!("the index has nothing for '{}'", given.join(" "))));
    }
    if paths.len() > most {
        message(format_args!("these are the best {most}; there are more (-n {})", most * 10));
    }
    let whole = ended.failed.is_empty() && !ended.partial && !paths.is_empty();
    Ok(if whole { Outcome::Complete } else { Outcome::Partial })
}

/// Returns the expression for find.
fn expression(word: &OsStr, others: &[OsString], most: usize, ignore_case: bool) -> Vec<OsString> {
    // That means all sources.
    let mut words: Vec<OsString> = vec!["/".into()];
    let bytes = word.as_bytes();
    let name = bytes.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let plain: Vec<u8> = name.iter().copied().filter(|byte| !is_of_pattern(*byte)).collect();
    words.extend(["--sort".into(), joined(&[b"match=", &plain])]);
    words.extend(["--limit".into(), most.to_string().into()]);
    let mut test = |[exact, folded]: [&str; 2], word: &OsStr, pattern: OsString| {
        let has_capital = word.to_string_lossy().contains(char::is_uppercase);
        words.push(if has_capital && !ignore_case { exact } else { folded }.into());
        words.push(pattern);
    };
    for other in others {
        test(PATH, other, pattern(other));
    }
    if !bytes.contains(&b'/') {
        test(NAME, word, pattern(word));
        return words;
    }
    test(PATH, word, pattern(word));
    if !is_pattern(bytes) && !name.is_empty() {
        // Not all that lies below a directory of that name.
        test(NAME, word, joined(&[&escaped(name), b"*"]));
    }
    words
}

/// The tests of find, by whether case matters.
const NAME: [&str; 2] = ["-name", "-iname"];
const PATH: [&str; 2] = ["-path", "-ipath"];

fn is_of_pattern(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b']')
}

/// Returns whether a word is a pattern.
fn is_pattern(word: &[u8]) -> bool {
    word.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// Returns the pattern of texts that have a word; one that is a pattern stays.
fn pattern(word: &OsStr) -> OsString {
    match is_pattern(word.as_bytes()) {
        true => word.to_owned(),
        false => joined(&[b"*", &escaped(word.as_bytes()), b"*"]),
    }
}

/// Returns the pattern of a text itself.
fn escaped(text: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b'\\' | b']' => vec![b'\\', *byte],
        byte => vec![*byte],
    };
    text.iter().flat_map(escape).collect()
}

fn joined(parts: &[&[u8]]) -> OsString {
    OsString::from_vec(parts.concat())
}

/// How paths are shown on a terminal.
struct Style {
    is_terminal: bool,
    /// Beginning of hyperlinks; `None` if there are none.
    scheme: Option<Vec<u8>>,
    /// Text that is shown bold, in lower case; nothing if it is empty.
    marked: String,
}

impl Style {
    fn of_terminal(is_terminal: bool, word: &OsStr) -> Self {
        let terminal = std::env::var("TERM").unwrap_or_default();
        let has_colors = is_terminal && !no_color() && knows_colors(&terminal);
        let word = word.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let is_plain = !word.iter().any(|byte| is_of_pattern(*byte));
        Style {
            is_terminal,
            scheme: has_colors.then(hyperlink::scheme),
            marked: match has_colors && is_plain && word.is_ascii() {
                true => String::from_utf8_lossy(word).to_ascii_lowercase(),
                false => String::new(),
            },
        }
    }

    fn shown(&self, path: &[u8]) -> Vec<u8> {
        let shown = terminal_name(path, self.is_terminal);
        let Some(scheme) = &self.scheme else { return shown.into_owned() };
        let mut line = Vec::with_capacity(shown.len() * 3);
        hyperlink::begin(scheme, path, &mut line);
        let name = shown.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let found = shown[name..]
            .windows(self.marked.len().max(1))
            .position(|window| window.eq_ignore_ascii_case(self.marked.as_bytes()));
        match found {
            Some(at) => {
                let (from, to) = (name + at, name + at + self.marked.len());
                line.extend_from_slice(&shown[..from]);
                line.extend_from_slice(b"\x1b[1;31m");
                line.extend_from_slice(&shown[from..to]);
                line.extend_from_slice(b"\x1b[0m");
                line.extend_from_slice(&shown[to..]);
            }
            None => line.extend_from_slice(&shown),
        }
        line.extend_from_slice(hyperlink::END);
        line
    }
}
