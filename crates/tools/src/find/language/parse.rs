//! From find's arguments to start paths and an expression.
//!
//! Precedence, from strongest: parentheses; `!`; `-a`, also where nothing stands between two tests;
//! `-o`; `,`. An expression without an action is `( EXPRESSION ) -print`. Messages are those of
//! find(1).

use super::expr::Expr;
use super::globals::{ColorWhen, Globals};
use super::hints::{Misunderstood, with_hint};
use super::test::{Number, Test};
use crate::find::actions::{Action, Destination, EntryFormat};
use crate::find::messages::system_message;
use crate::ls::Colors;
use canopy_model::Device;
use canopy_query::Field;
use canopy_text::regular::Syntax;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A parsed command line of find.
#[derive(Debug)]
pub struct Find {
    /// Start paths, as they were given.
    pub starts: Vec<OsString>,
    /// Warnings of find(1).
    pub warnings: Vec<String>,
    /// Messages about single start paths, without which the search goes on: it is partial.
    pub wrong_starts: Vec<String>,
    pub(crate) expr: Expr,
    pub(crate) actions: Vec<Action>,
    /// Files that actions write to, by device and inode.
    pub(crate) files: Vec<((Device, u64), File)>,
    pub(crate) globals: Globals,
}

impl Find {
    /// Returns when names are to be shown in colours.
    pub fn color(&self) -> ColorWhen {
        self.globals.color
    }

    /// Has `-print` show names on standard output in these colours.
    pub fn set_colors(&mut self, colors: &Colors) {
        for action in &mut self.actions {
            if let Action::Write(format @ EntryFormat::Line, Destination::Stdout) = action {
                *format = EntryFormat::Colored(Box::new(colors.clone()));
            }
        }
    }

    /// Returns whether it searches the file system itself.
    pub fn is_live(&self) -> bool {
        self.globals.live
    }

    /// Returns whether it has such a test.
    pub(crate) fn has_test(&self, is: &dyn Fn(&Test) -> bool) -> bool {
        let mut found = false;
        self.expr.each_test(&mut |test| found |= is(test));
        found
    }

    /// Returns whether `-printf` and its like print this directive.
    pub(crate) fn prints(&self, letter: char) -> bool {
        self.actions.iter().filter_map(Action::printf).any(|format| format.has(letter))
    }
}

/// Parses the arguments of find: options, start paths, then an expression. `now_ns` is what ages
/// count from, in nanoseconds since 1970. Opens the files that actions write to.
pub fn parse(arguments: &[OsString], now_ns: i64) -> Result<Find, Misunderstood> {
    parse_for(arguments, now_ns, false)
}

/// Does the same for a search of records, which have no files that commands could be run on.
pub fn parse_for_records(arguments: &[OsString], now_ns: i64) -> Result<Find, Misunderstood> {
    parse_for(arguments, now_ns, true)
}

fn parse_for(arguments: &[OsString], now_ns: i64, of_records: bool) -> Result<Find, Misunderstood> {
    let mut parser = Parser {
        rest: arguments,
        starts: &[],
        of_records,
        now_ns,
        began_ns: now_ns,
        actions: Vec::new(),
        files: Vec::new(),
        warnings: Vec::new(),
        globals: Globals { depth_max: u32::MAX, ..Globals::default() },
        xattr_tests: 0,
        syntax: Syntax::EMACS,
        last_word: String::new(),
        warns: None,
    };
    parser.leading_options()?;
    let starts = parser.rest.iter().position(is_expression);
    (parser.starts, parser.rest) = parser.rest.split_at(starts.unwrap_or(parser.rest.len()));
    let mut starts = parser.starts.to_vec();
    let mut expr = if parser.rest.is_empty() { Expr::always(true) } else { parser.list()? };
    if parser.ahead() == Some(b")") {
        return Err("you have too many ')'".to_owned().into());
    }
    let mut wrong_starts = Vec::new();
    if let Some(file) = parser.globals.starts_from.take() {
        if let Some(start) = starts.first() {
            let start = start.to_string_lossy();
            return Err(with_hint(
                format!("extra operand ‘{start}’"),
                Some("file operands cannot be combined with -files0-from".to_owned()),
            ));
        }
        if parser.actions.iter().any(|action| matches!(action, Action::Exec(exec) if exec.asks())) {
            check_not_stdin(&file)?;
        }
        (starts, wrong_starts) = starts_from(&file)?;
    } else if starts.is_empty() {
        starts.push(".".into());
    }
    parser.check(&expr)?;
    if parser.globals.sum {
        check_apart(&starts)?;
    }
    if parser.globals.depth_first {
        expr.ignore_pruning();
    }
    expr.put_cheapest_first();
    if parser.only_quits() {
        parser.actions.push(parser.globals.implied_action());
        expr = expr.and(Expr::Action(parser.actions.len() - 1));
    }
    if let Some(owner) = parser.globals.owner {
        let is_own = Number::Exactly(owner.into()).of(Field::Uid, 1);
        expr.act_only_where(&Arc::new(is_own));
    }
    if parser.actions.len() > 64 {
        return Err("more than 64 actions in one expression".to_owned().into());
    }
    let Parser { actions, files, warnings, globals, .. } = parser;
    Ok(Find { starts, warnings, wrong_starts, expr, actions, files, globals })
}

/// Returns whether an argument ends the start paths.
fn is_expression(argument: &OsString) -> bool {
    let bytes = argument.as_bytes();
    (bytes.starts_with(b"-") && bytes.len() > 1) || matches!(bytes, b"(" | b"!")
}

/// Refuses to add up what is below several starts if one of them lies in another, or is the same
/// directory by a bind mount: its entries would count twice.
fn check_apart(starts: &[OsString]) -> Result<(), String> {
    let resolved = |start: &OsString| {
        let found = std::fs::canonicalize(start).or_else(|_| std::path::absolute(start));
        found.unwrap_or_else(|_| start.into())
    };
    let mut starts: Vec<(PathBuf, &OsString)> =
        starts.iter().map(|start| (resolved(start), start)).collect();
    if starts.len() < 2 {
        return Ok(());
    }
    // Paths below another one sort right behind it.
    starts.sort();
    let below = starts.windows(2).find(|two| two[1].0.starts_with(&two[0].0));
    let within = below.map(|two| (two[1].1, two[0].1)).or_else(|| mounted_within(&starts));
    match within {
        None => Ok(()),
        Some((inner, outer)) => Err(format!(
            "--sum: ‘{}’ lies in ‘{}’: name one of them",
            inner.to_string_lossy(),
            outer.to_string_lossy()
        )),
    }
}

/// Returns a start that is another one, or lies in it, by a bind mount, and that other one.
fn mounted_within<'a>(starts: &[(PathBuf, &'a OsString)]) -> Option<(&'a OsString, &'a OsString)> {
    let identity = |path: &Path| {
        // Hard links of a file are entries of their own.
        let metadata = path.symlink_metadata().ok().filter(std::fs::Metadata::is_dir)?;
        Some((Device(metadata.dev()), metadata.ino()))
    };
    let known: HashMap<(Device, u64), &OsString> =
        starts.iter().rev().filter_map(|(path, start)| Some((identity(path)?, *start))).collect();
    starts.iter().find_map(|(path, start)| {
        let mut above = path.ancestors().filter_map(identity).filter_map(|id| known.get(&id));
        above.find(|other| **other != *start).map(|other| (*start, *other))
    })
}

/// Refuses to read start paths from where answers of the user come from.
fn check_not_stdin(file: &OsStr) -> Result<(), String> {
    const COMBINED: &str = "combined with -ok, -okdir";
    if file == "-" {
        return Err(format!(
            "option -files0-from reading from standard input cannot be {COMBINED}"
        ));
    }
    let identity = |path: &OsStr| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    let stdin = identity("/dev/stdin".as_ref());
    if stdin.is_some() && identity(file) == stdin {
        let shown = file.to_string_lossy();
        return Err(format!(
            "option -files0-from: standard input must not refer to the same file when {COMBINED}: \
             ‘{shown}’"
        ));
    }
    Ok(())
}

/// Reads the start paths of `-files0-from`. Besides returns what is wrong with single ones.
fn starts_from(file: &OsStr) -> Result<(Vec<OsString>, Vec<String>), String> {
    let mut shown = file.to_string_lossy();
    let read = match file.as_bytes() {
        b"-" => {
            shown = "(standard input)".into();
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
        }
        _ => std::fs::read(file),
    };
    let bytes = read.map_err(|error| {
        format!("cannot open ‘{shown}’ for reading: {}", system_message(&error))
    })?;
    let (mut starts, mut wrong) = (Vec::new(), Vec::new());
    if bytes.is_empty() {
        return Ok((starts, wrong));
    }
    let paths = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|&byte| byte == 0);
    for (at, path) in paths.enumerate() {
        if path.is_empty() {
            wrong.push(format!("‘{shown}’:{}: invalid zero-length file name", at + 1));
        } else {
            starts.push(OsString::from_vec(path.to_vec()));
        }
    }
    Ok((starts, wrong))
}

pub(super) struct Parser<'a> {
    pub(super) rest: &'a [OsString],
    /// The start paths of the command line.
    pub(super) starts: &'a [OsString],
    /// Whether records are searched.
    of_records: bool,
    /// The time that ages count from; `-daystart` changes it.
    pub(super) now_ns: i64,
    /// The time at which find began.
    pub(super) began_ns: i64,
    pub(super) actions: Vec<Action>,
    pub(super) files: Vec<((Device, u64), File)>,
    pub(super) warnings: Vec<String>,
    pub(super) globals: Globals,
    pub(super) xattr_tests: usize,
    pub(super) syntax: Syntax,
    /// The name of the test, action or option that was read last.
    pub(super) last_word: String,
    /// Whether `-warn` or `-nowarn` was given.
    pub(super) warns: Option<bool>,
}

impl<'a> Parser<'a> {
    pub(super) fn peek(&self) -> Option<&'a [u8]> {
        self.rest.first().map(|argument| argument.as_bytes())
    }

    /// Returns the next word where an operator may stand: find(1) takes those of punctuation with a
    /// hyphen, too.
    fn ahead(&self) -> Option<&'a [u8]> {
        let word = self.peek()?;
        Some(match word {
            b"-(" | b"-)" | b"-!" | b"-," => &word[1..],
            word => word,
        })
    }

    pub(super) fn next(&mut self) -> Option<&'a OsStr> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// Takes the argument of `name`.
    pub(super) fn argument(&mut self, name: &str) -> Result<&'a OsStr, String> {
        self.next().ok_or_else(|| format!("missing argument to `{name}'"))
    }

    /// Takes the argument of `name` as text.
    pub(super) fn text(&mut self, name: &str) -> Result<Cow<'a, str>, String> {
        Ok(self.argument(name)?.to_string_lossy())
    }

    fn list(&mut self) -> Result<Expr, Misunderstood> {
        let mut expr = self.alternatives()?;
        while self.ahead() == Some(b",") {
            self.operator()?;
            expr = expr.comma(self.alternatives()?);
        }
        Ok(expr)
    }

    fn alternatives(&mut self) -> Result<Expr, Misunderstood> {
        let mut expr = self.conjunction()?;
        while let Some(b"-o" | b"-or") = self.ahead() {
            self.operator()?;
            expr = expr.or(self.conjunction()?);
        }
        Ok(expr)
    }

    fn conjunction(&mut self) -> Result<Expr, Misunderstood> {
        let mut expr = self.negation()?;
        loop {
            match self.ahead() {
                None | Some(b")" | b"-o" | b"-or" | b",") => return Ok(expr),
                Some(b"-a" | b"-and") => self.operator()?,
                Some(_) => {}
            }
            expr = expr.and(self.negation()?);
        }
    }

    /// Takes an operator; fails where nothing follows.
    fn operator(&mut self) -> Result<(), String> {
        let name = self.next().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        match self.ahead() {
            None => Err(format!("expected an expression after '{name}'")),
            Some(b")") => Err(format!("expected an expression between '{name}' and ')'")),
            Some(_) => Ok(()),
        }
    }

    fn negation(&mut self) -> Result<Expr, Misunderstood> {
        match self.ahead() {
            Some(b"!" | b"-not") => {
                self.operator()?;
                Ok(Expr::Not(Box::new(self.negation()?)))
            }
            Some(b"(") => {
                self.next();
                match self.ahead() {
                    Some(b")") => {
                        return Err("invalid expression; empty parentheses are not allowed."
                            .to_owned()
                            .into());
                    }
                    None => return Err(UNFINISHED.to_owned().into()),
                    Some(_) => {}
                }
                let expr = self.list()?;
                match self.ahead() {
                    Some(b")") => {
                        self.next();
                        Ok(expr)
                    }
                    _ => Err(UNCLOSED.to_owned().into()),
                }
            }
            Some(name @ (b"-o" | b"-or" | b"-a" | b"-and" | b",")) => Err(format!(
                "invalid expression; you have used a binary operator '{}' with nothing before it.",
                String::from_utf8_lossy(name)
            )
            .into()),
            Some(b")") => Err("you have too many ')'".to_owned().into()),
            _ => self.primary(),
        }
    }

    /// Returns whether the implied action is wanted: `-quit` does not replace it.
    fn only_quits(&self) -> bool {
        self.actions.iter().all(|action| matches!(action, Action::Quit))
    }

    /// Checks what only the whole expression tells.
    fn check(&self, expr: &Expr) -> Result<(), String> {
        let globals = &self.globals;
        let Globals { count, sum, json, ndjson, zero, .. } = *globals;
        if [json, ndjson, zero].iter().filter(|given| **given).count() > 1 {
            return Err("--json, --ndjson and --0 are different outputs: give one".to_owned());
        }
        if (count || sum || json || ndjson || zero) && !self.only_quits() {
            return Err("--count, --sum, --json, --ndjson and --0 stand in for -print: leave \
                actions out"
                .to_owned());
        }
        if sum && (count || ndjson || zero) {
            return Err("--sum prints one sum: leave --count, --ndjson and --0 out".to_owned());
        }
        if sum && (globals.follow_starts || globals.follow_all) {
            return Err(
                "--sum adds up what is deleted, which no link leads to: leave -L and -H out"
                    .to_owned(),
            );
        }
        if self.of_records {
            self.check_of_records()?;
        }
        if globals.jobs.is_some() {
            self.check_jobs()?;
        }
        if self.actions.iter().any(|action| matches!(action, Action::Delete)) {
            if !globals.live {
                return Err(
                    "-delete changes the file system, which a search of an index does not: \
                    add --live"
                        .to_owned(),
                );
            }
            if expr.prunes() && !globals.depth_asked {
                return Err("The -delete action automatically turns on -depth, but -prune does \
                    nothing when -depth is in effect.  If you want to carry on anyway, just \
                    explicitly use the -depth option."
                    .to_owned());
            }
        }
        if (!globals.live || globals.holds())
            && !globals.depth_first
            && expr.prunes_by_outcome(&self.actions)
        {
            return Err("-prune cannot hang on the outcome of a command where entries are chosen \
                before any command runs, as in an index or with --sort"
                .to_owned());
        }
        Ok(())
    }

    /// Checks what makes no sense where commands run in any order.
    fn check_jobs(&self) -> Result<(), String> {
        let asks = |action: &Action| matches!(action, Action::Exec(exec) if exec.asks());
        let quits = |action: &Action| matches!(action, Action::Quit);
        if self.actions.iter().any(asks) {
            return Err("-ok and -okdir ask for one command at a time: leave -j out".to_owned());
        }
        if self.globals.limit.is_some() || self.actions.iter().any(quits) {
            return Err("with -j, what comes before --limit or -quit is not known: leave one out"
                .to_owned());
        }
        if self.globals.depth_first {
            return Err("-depth and -delete ask for an order that -j does not keep: leave one out"
                .to_owned());
        }
        Ok(())
    }

    /// Checks what makes no sense where there are records and no files.
    fn check_of_records(&self) -> Result<(), String> {
        if self.globals.live {
            return Err(
                "--live is for where it is mounted: canopy find --live DIRECTORY".to_owned()
            );
        }
        let needs_files = |action: &Action| matches!(action, Action::Exec(_) | Action::Delete);
        if self.actions.iter().any(needs_files) {
            return Err(
                "-exec, -execdir, -ok, -okdir and -delete need files, which there are only \
                where it is mounted: canopy find --live DIRECTORY"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Takes the file that an action writes to. Actions on one file share what writes to it, by
    /// whatever names they know it.
    pub(super) fn destination(&mut self, name: &str) -> Result<Destination, String> {
        let path = self.argument(name)?;
        match path.as_bytes() {
            b"/dev/stdout" => return Ok(Destination::Stdout),
            b"/dev/stderr" => return Ok(Destination::Stderr),
            _ => {}
        }
        let opened = File::create(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened
            .map_err(|error| format!("‘{}’: {}", path.to_string_lossy(), system_message(&error)))?;
        let identity = (Device(metadata.dev()), metadata.ino());
        if let Some(at) = self.files.iter().position(|(known, _)| *known == identity) {
            return Ok(Destination::File(at));
        }
        self.files.push((identity, file));
        Ok(Destination::File(self.files.len() - 1))
    }

    pub(super) fn write(&mut self, format: EntryFormat, to: Destination) -> Expr {
        self.act(Action::Write(format, to))
    }

    pub(super) fn act(&mut self, action: Action) -> Expr {
        self.actions.push(action);
        Expr::Action(self.actions.len() - 1)
    }
}

const UNCLOSED: &str =
    "invalid expression; I was expecting to find a ')' somewhere but did not see one.";

/// The message about a '(' with nothing behind it.
const UNFINISHED: &str = "invalid expression; expected to find a ')' but didn't see one. Perhaps \
    you need an extra predicate after '('";

#[cfg(test)]
mod tests {
    use super::super::moment::SECOND_NS;
    use super::*;

    fn parsed(line: &str) -> Result<Find, Misunderstood> {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse(&arguments, 1_000_000 * SECOND_NS)
    }

    #[test]
    fn precedence_is_that_of_find() {
        let shape = |line: &str| format!("{:?}", parsed(line).unwrap().expr);
        assert_eq!(
            shape("-uid 1 -o -uid 2 -a ! -uid 3"),
            shape("( -uid 1 ) -o ( -uid 2 ( ! -uid 3 ) )")
        );
        assert_eq!(shape("-uid 1 -print -o -uid 2"), shape("( -uid 1 -a -print ) -o -uid 2"));
        assert_ne!(shape("-uid 1 -o -uid 2 -uid 3"), shape("( -uid 1 -o -uid 2 ) -uid 3"));
        assert_eq!(shape("-uid 1 , -uid 2 -o -uid 3"), shape("( -uid 1 ) , ( -uid 2 -o -uid 3 )"));
    }

    #[test]
    fn wrong_expressions_are_one_clear_error() {
        for (line, words) in [
            ("-delete", "changes"),
            ("-exec true ; -prune", "-prune cannot hang"),
            ("--count -print", "leave actions out"),
            ("--sort colour", "--sort needs"),
            ("--json --0", "give one"),
            ("-regex \\1", "Invalid back reference"),
            ("-prune --limit x", "--limit needs"),
        ] {
            let error = parsed(line).unwrap_err().to_string();
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn options_stand_before_paths_or_in_the_expression() {
        let find = parsed("--sort size --reverse -H a b -name x --limit 3").unwrap();
        assert_eq!(find.starts, ["a", "b"]);
        assert_eq!(find.globals.limit, Some(3));
        assert!(find.globals.reverse && find.globals.sort.is_some() && find.globals.follow_starts);
    }
}
