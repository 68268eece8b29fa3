//! From find's arguments to start paths and an expression.
//!
//! Precedence, from strongest: parentheses; `!`; `-a`, also where nothing stands between two tests; `-o`. An
//! expression without an action is `( EXPRESSION ) -print`.

use super::action::{Action, Printf};
use super::expr::Expr;
use super::format::Format;
use super::pattern::{Glob, emacs_regex};
use super::test::{Number, PermMatch, Test, XattrTest};
use crate::names::{group_id, user_id};
use canopy_model::FileType;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

/// What a find looks for and where.
#[derive(Debug)]
pub struct Find {
    /// Start paths, as they were given.
    pub starts: Vec<OsString>,
    pub(crate) expr: Expr,
    pub(crate) actions: Vec<Action>,
    /// Smallest distance from the start.
    pub(crate) depth_min: u32,
    /// Largest distance from the start.
    pub(crate) depth_max: u32,
}

const DAY_NS: i64 = 86_400 * SECOND_NS;
const MINUTE_NS: i64 = 60 * SECOND_NS;
const SECOND_NS: i64 = 1_000_000_000;

/// Parses the arguments of find: start paths, then an expression. `now_ns` is what ages count from, in
/// nanoseconds since 1970.
pub fn parse(arguments: &[OsString], now_ns: i64) -> Result<Find, String> {
    let is_expression = |argument: &OsString| {
        let bytes = argument.as_bytes();
        (bytes.starts_with(b"-") && bytes.len() > 1) || matches!(bytes, b"(" | b"!" | b")" | b",")
    };
    let split = arguments.iter().position(is_expression).unwrap_or(arguments.len());
    let mut starts = arguments[..split].to_vec();
    if starts.is_empty() {
        starts.push(".".into());
    }
    let mut parser = Parser {
        rest: &arguments[split..],
        now_ns,
        actions: Vec::new(),
        depth_min: 0,
        depth_max: u32::MAX,
        xattr_tests: 0,
    };
    let mut expr = if parser.rest.is_empty() { always() } else { parser.alternatives()? };
    if let Some(argument) = parser.rest.first() {
        return Err(match argument.as_bytes() {
            b")" => "there is a ')' without a '(' before it".to_owned(),
            _ => format!("paths must come before the expression: '{}'", argument.to_string_lossy()),
        });
    }
    if !expr.acts() {
        parser.actions.push(Action::Print);
        expr = expr.and(Expr::Action(parser.actions.len() - 1));
    }
    let Parser { actions, depth_min, depth_max, .. } = parser;
    Ok(Find { starts, expr, actions, depth_min, depth_max })
}

fn always() -> Expr {
    Expr::Test(Test::Always(true))
}

struct Parser<'a> {
    rest: &'a [OsString],
    now_ns: i64,
    actions: Vec<Action>,
    depth_min: u32,
    depth_max: u32,
    xattr_tests: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a [u8]> {
        self.rest.first().map(|argument| argument.as_bytes())
    }

    fn next(&mut self) -> Option<&'a OsStr> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn alternatives(&mut self) -> Result<Expr, String> {
        let mut expr = self.conjunction()?;
        while let Some(b"-o" | b"-or") = self.peek() {
            self.next();
            expr = expr.or(self.conjunction()?);
        }
        Ok(expr)
    }

    fn conjunction(&mut self) -> Result<Expr, String> {
        let mut expr = self.negation()?;
        loop {
            match self.peek() {
                None | Some(b")" | b"-o" | b"-or") => return Ok(expr),
                Some(b"-a" | b"-and") => {
                    self.next();
                }
                Some(_) => {}
            }
            expr = expr.and(self.negation()?);
        }
    }

    fn negation(&mut self) -> Result<Expr, String> {
        match self.peek() {
            Some(b"!" | b"-not") => {
                self.next();
                Ok(Expr::Not(Box::new(self.negation()?)))
            }
            Some(b"(") => {
                self.next();
                if self.peek() == Some(b")") {
                    return Err("there is nothing between '(' and ')'".to_owned());
                }
                let expr = self.alternatives()?;
                match self.next() {
                    Some(close) if close == ")" => Ok(expr),
                    _ => Err("there is a '(' without a ')' after it".to_owned()),
                }
            }
            _ => self.primary(),
        }
    }

    fn primary(&mut self) -> Result<Expr, String> {
        let Some(word) = self.next() else {
            return Err("the expression ends where a test is expected".to_owned());
        };
        let name = word.to_string_lossy();
        if let Some(expr) = self.action_or_option(&name)? {
            return Ok(expr);
        }
        let test = match &*name {
            "-true" => Test::Always(true),
            "-false" => Test::Always(false),
            "-empty" => Test::Empty,
            "-acl" => self.xattr_test(b"system.posix_acl_*")?,
            "-xattr" => {
                let argument = self.next().ok_or("-xattr needs NAME or NAME=VALUE, each a pattern")?;
                self.xattr_test(argument.as_bytes())?
            }
            _ if name.starts_with('-') && name.len() > 1 => {
                let argument = || -> Result<&OsStr, String> {
                    self.rest
                        .first()
                        .map(|a| a.as_os_str())
                        .ok_or_else(|| format!("{name} needs an argument"))
                };
                let test = self.test(&name, argument)?;
                self.next();
                test
            }
            "," => return Err("the operator ',' is not supported".to_owned()),
            ")" => return Err("there is a ')' where a test is expected".to_owned()),
            _ => return Err(format!("paths must come before the expression: '{name}'")),
        };
        Ok(Expr::Test(test))
    }

    fn action_or_option(&mut self, name: &str) -> Result<Option<Expr>, String> {
        let action = match name {
            "-print" => Action::Print,
            "-print0" => Action::Print0,
            "-ls" => Action::List,
            "-printf" => {
                let format = self.next().ok_or("-printf needs a format")?;
                Action::Printf(Printf(Format::new(format.as_bytes())?))
            }
            "-prune" => return Ok(Some(Expr::Prune)),
            "-maxdepth" => {
                self.depth_max = self.levels(name)?;
                return Ok(Some(always()));
            }
            "-mindepth" => {
                self.depth_min = self.levels(name)?;
                return Ok(Some(always()));
            }
            _ => return Ok(None),
        };
        self.actions.push(action);
        Ok(Some(Expr::Action(self.actions.len() - 1)))
    }

    fn xattr_test(&mut self, argument: &[u8]) -> Result<Test, String> {
        let (key, value) = match argument.iter().position(|&byte| byte == b'=') {
            Some(at) => (&argument[..at], Some(Glob::new(&argument[at + 1..], false)?)),
            None => (argument, None),
        };
        let wildcard = key.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(key.len());
        let key_start = String::from_utf8_lossy(&key[..wildcard]).into_owned();
        self.xattr_tests += 1;
        let number = self.xattr_tests - 1;
        Ok(Test::Xattr(XattrTest { number, key: Glob::new(key, false)?, key_start, value }))
    }

    fn levels(&mut self, name: &str) -> Result<u32, String> {
        let argument = self.next().and_then(OsStr::to_str).unwrap_or_default();
        argument.parse().map_err(|_| format!("{name} needs a number of levels, not '{argument}'"))
    }

    /// A test with one argument.
    fn test<'b>(&self, name: &str, argument: impl Fn() -> Result<&'b OsStr, String>) -> Result<Test, String> {
        let text = || -> Result<String, String> { Ok(argument()?.to_string_lossy().into_owned()) };
        let number = || parse_number(name, &text()?);
        Ok(match name {
            "-name" => Test::Name(Glob::new(argument()?.as_bytes(), false)?),
            "-iname" => Test::Name(Glob::new(argument()?.as_bytes(), true)?),
            "-path" | "-wholename" => Test::Path(Glob::new(argument()?.as_bytes(), false)?),
            "-ipath" | "-iwholename" => Test::Path(Glob::new(argument()?.as_bytes(), true)?),
            "-regex" => Test::Regex(emacs_regex(argument()?.as_bytes())?),
            "-type" => Test::Type(parse_types(&text()?)?),
            "-size" => parse_size(&text()?)?,
            "-uid" => Test::Id("uid", number()?),
            "-gid" => Test::Id("gid", number()?),
            "-links" => Test::Id("nlink", number()?),
            "-inum" => Test::Inode(number()?),
            "-user" => {
                let user = text()?;
                let uid =
                    user_id(&user).ok_or_else(|| format!("'{user}' is not the name of a known user"))?;
                Test::Id("uid", Number::Exactly(i64::from(uid)))
            }
            "-group" => {
                let group = text()?;
                let gid =
                    group_id(&group).ok_or_else(|| format!("'{group}' is not the name of a known group"))?;
                Test::Id("gid", Number::Exactly(i64::from(gid)))
            }
            "-perm" => parse_perm(&text()?)?,
            "-newer" | "-anewer" | "-cnewer" => {
                let file = argument()?;
                let metadata = std::fs::symlink_metadata(file)
                    .map_err(|error| format!("cannot look at '{}': {error}", file.to_string_lossy()))?;
                let reference =
                    metadata.mtime().saturating_mul(SECOND_NS).saturating_add(metadata.mtime_nsec());
                Test::Time(time_column(&name[..2]), reference, i64::MAX)
            }
            "-amin" | "-cmin" | "-mmin" => {
                minutes_test(time_column(&name[..2]), self.now_ns, name, &text()?)?
            }
            "-atime" | "-ctime" | "-mtime" => {
                days_test(time_column(&name[..2]), self.now_ns, name, &text()?)?
            }
            _ => return Err(format!("unknown test or action '{name}'; 'canopy find --help' lists them")),
        })
    }
}

fn time_column(prefix: &str) -> &'static str {
    match prefix {
        "-a" => "atime",
        "-c" => "ctime",
        _ => "mtime",
    }
}

fn parse_number(name: &str, text: &str) -> Result<Number, String> {
    let (make, digits): (fn(i64) -> Number, &str) = match text.split_at_checked(1) {
        Some(("+", digits)) => (Number::More, digits),
        Some(("-", digits)) => (Number::Less, digits),
        _ => (Number::Exactly, text),
    };
    let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let value = valid.then(|| digits.parse().ok()).flatten();
    value.map(make).ok_or_else(|| format!("{name} needs a number such as 5, +5 or -5, not '{text}'"))
}

fn parse_types(text: &str) -> Result<Vec<FileType>, String> {
    let one = |word: &str| {
        Ok(match word {
            "f" => FileType::Regular,
            "d" => FileType::Directory,
            "l" => FileType::Symlink,
            "p" => FileType::Fifo,
            "s" => FileType::Socket,
            "b" => FileType::Block,
            "c" => FileType::Character,
            _ => {
                return Err(format!(
                    "-type needs letters of f, d, l, p, s, b and c with commas between, not '{text}'"
                ));
            }
        })
    };
    text.split(',').map(one).collect()
}

fn parse_size(text: &str) -> Result<Test, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 'b')) => (&text[..at], 512),
        Some((at, 'c')) => (&text[..at], 1),
        Some((at, 'w')) => (&text[..at], 2),
        Some((at, 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M')) => (&text[..at], 1 << 20),
        Some((at, 'G')) => (&text[..at], 1 << 30),
        _ => (text, 512),
    };
    let number = parse_number("-size", number).map_err(|_| {
        format!(
            "-size needs a number with an optional unit of b, c, w, k, M or G, such as +10M, not '{text}'"
        )
    })?;
    Ok(Test::Size(number, unit))
}

/// `-mtime` and its like: `n` means from n to n + 1 days ago. The second by which `-n` reaches further is GNU
/// find's.
fn days_test(column: &'static str, now_ns: i64, name: &str, text: &str) -> Result<Test, String> {
    age_test(
        column,
        name,
        text,
        |number, ago| match number {
            Number::More(_) => (i64::MIN, now_ns.saturating_sub(DAY_NS).saturating_sub(ago) - 1),
            Number::Less(_) => (now_ns.saturating_sub(SECOND_NS).saturating_sub(ago), i64::MAX),
            Number::Exactly(_) => {
                let until = now_ns.saturating_sub(ago);
                (until.saturating_sub(DAY_NS), until)
            }
        },
        DAY_NS,
    )
}

/// `-mmin` and its like: `n` means from n - 1 to n minutes ago.
fn minutes_test(column: &'static str, now_ns: i64, name: &str, text: &str) -> Result<Test, String> {
    age_test(
        column,
        name,
        text,
        |number, ago| {
            let from = now_ns.saturating_sub(ago);
            match number {
                Number::More(_) => (i64::MIN, from.saturating_sub(1)),
                Number::Less(_) => (from, i64::MAX),
                Number::Exactly(_) => (from, from.saturating_add(MINUTE_NS)),
            }
        },
        MINUTE_NS,
    )
}

fn age_test(
    column: &'static str,
    name: &str,
    text: &str,
    window: impl Fn(Number, i64) -> (i64, i64),
    unit_ns: i64,
) -> Result<Test, String> {
    let digits = text.trim_start_matches(['+', '-']);
    let amount: f64 = digits
        .parse()
        .ok()
        .filter(|amount: &f64| amount.is_finite() && text.len() <= digits.len() + 1)
        .ok_or_else(|| format!("{name} needs a number such as 5, +5 or -5, not '{text}'"))?;
    let kind = match text.as_bytes()[0] {
        b'+' => Number::More(0),
        b'-' => Number::Less(0),
        _ => Number::Exactly(0),
    };
    let (after, until) = window(kind, (amount * unit_ns as f64) as i64);
    Ok(Test::Time(column, after, until))
}

fn parse_perm(text: &str) -> Result<Test, String> {
    let (kind, mode) = match text.split_at_checked(1) {
        Some(("-", mode)) => (PermMatch::All, mode),
        Some(("/", mode)) => (PermMatch::Any, mode),
        _ => (PermMatch::Exactly, text),
    };
    let octal = u32::from_str_radix(mode, 8).ok().filter(|bits| *bits <= 0o7777);
    let bits = octal.or_else(|| symbolic_mode(mode));
    let bits =
        bits.ok_or_else(|| format!("-perm needs a mode such as 644, -u+w or /g=w,o=w, not '{text}'"))?;
    Ok(Test::Perm(bits, kind))
}

/// The bits that a symbolic mode such as `u=rw,g+x` makes of none.
fn symbolic_mode(text: &str) -> Option<u32> {
    let mut mode = 0_u32;
    for clause in text.split(',') {
        let operators = clause.find(['+', '-', '='])?;
        let mut who = 0;
        for class in clause[..operators].chars() {
            who |= match class {
                'u' => 0o4700,
                'g' => 0o2070,
                'o' => 0o1007,
                'a' => 0o7777,
                _ => return None,
            };
        }
        if who == 0 {
            who = 0o7777;
        }
        let mut rest = &clause[operators..];
        while let Some(operator) = rest.chars().next() {
            let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
            let bits = permission_bits(&rest[1..end], mode)? & who;
            match operator {
                '+' => mode |= bits,
                '-' => mode &= !bits,
                _ => mode = (mode & !who) | bits,
            }
            rest = &rest[end..];
        }
    }
    Some(mode)
}

fn permission_bits(letters: &str, mode: u32) -> Option<u32> {
    let copied = |shift: u32| (mode >> shift & 7) * 0o111;
    letters.chars().try_fold(0, |bits, letter| {
        Some(
            bits | match letter {
                'r' => 0o444,
                'w' => 0o222,
                'x' => 0o111,
                // Of no bits at all, only a directory would get x.
                'X' => {
                    if mode & 0o111 != 0 {
                        0o111
                    } else {
                        0
                    }
                }
                's' => 0o6000,
                't' => 0o1000,
                'u' => copied(6),
                'g' => copied(3),
                'o' => copied(0),
                _ => return None,
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Find, String> {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse(&arguments, 1_000_000 * SECOND_NS)
    }

    #[test]
    fn precedence_is_that_of_find() {
        let shape = |line: &str| format!("{:?}", parsed(line).unwrap().expr);
        assert_eq!(shape("-uid 1 -o -uid 2 -a ! -uid 3"), shape("( -uid 1 ) -o ( -uid 2 ( ! -uid 3 ) )"));
        assert_eq!(shape("-uid 1 -print -o -uid 2"), shape("( -uid 1 -a -print ) -o -uid 2"));
        assert_ne!(shape("-uid 1 -o -uid 2 -uid 3"), shape("( -uid 1 -o -uid 2 ) -uid 3"));
        assert!(parsed("-prune").unwrap().expr.acts());
    }

    #[test]
    fn wrong_expressions_are_one_clear_error() {
        for (line, words) in [
            ("-nam x", "unknown test"),
            ("-name", "needs an argument"),
            ("( -uid 1", "without a ')'"),
            ("-uid 1 )", "without a '('"),
            ("-uid x", "needs a number"),
            ("-type q", "letters"),
            ("-size 1x", "unit"),
            ("-uid 1 x", "paths must come before"),
            ("-uid 1 -o", "expected"),
            ("( )", "nothing between"),
            ("-perm 8", "-perm needs"),
            ("-printf %Q", "unknown directive"),
            ("-maxdepth x", "levels"),
            ("-user no-such-user", "not the name"),
            ("-mtime +-1", "needs a number"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn symbolic_modes_become_bits() {
        for (text, bits) in [
            ("u=rwx,g=rx", 0o750),
            ("a+r", 0o444),
            ("+w", 0o222),
            ("u+s", 0o4000),
            ("o=t", 0o1000),
            ("ug+rw,g-w", 0o640),
        ] {
            assert_eq!(symbolic_mode(text), Some(bits), "{text}");
        }
        assert_eq!(symbolic_mode("q+r"), None);
    }
}
