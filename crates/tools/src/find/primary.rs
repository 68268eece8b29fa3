//! The words of find's language: tests, actions and options.

use super::action::{Action, Form, Printf, Sink};
use super::arguments::{
    days_test, invalid, minutes_test, parse_number, parse_perm, parse_size, parse_types,
    time_column, used_test,
};
use super::exec::{Exec, message};
use super::expr::Expr;
use super::format::Format;
use super::moment::{SECOND_NS, end_of_day, parse_moment};
use super::order::Field;
use super::parse::{Parser, always};
use super::test::{Number, Test, XattrTest};
use canopy_model::Wanted;
use canopy_text::Glob;
use canopy_text::regular::{Syntax, compile};
use canopy_text::{group_id, user_id};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// Options, which hold for the whole search wherever they stand.
#[derive(Debug)]
pub(crate) struct Globals {
    /// Smallest and largest distance from the start.
    pub(crate) depth_min: u32,
    pub(crate) depth_max: u32,
    /// `-depth`, also where `-delete` asks for it
    pub(crate) depth_first: bool,
    /// `-depth` itself
    pub(crate) depth_asked: bool,
    /// `-xdev`, `-mount`
    pub(crate) one_file_system: bool,
    /// `-H`, `-L`
    pub(crate) follow_starts: bool,
    /// `-L`, `-follow`
    pub(crate) follow_all: bool,
    /// `-ignore_readdir_race`
    pub(crate) ignores_races: bool,
    /// `--live`
    pub(crate) live: bool,
    /// `-files0-from`
    pub(crate) starts_from: Option<OsString>,
    /// `--sort`
    pub(crate) sort: Option<Field>,
    /// `--reverse`
    pub(crate) reverse: bool,
    /// `--limit`
    pub(crate) limit: Option<u64>,
    /// `--count`
    pub(crate) count: bool,
    /// `--json`, `--ndjson`, `--0`
    pub(crate) json: bool,
    pub(crate) ndjson: bool,
    pub(crate) zero: bool,
}

impl Default for Globals {
    fn default() -> Self {
        Globals {
            depth_min: 0,
            depth_max: u32::MAX,
            depth_first: false,
            depth_asked: false,
            one_file_system: false,
            follow_starts: false,
            follow_all: false,
            ignores_races: false,
            live: false,
            starts_from: None,
            sort: None,
            reverse: false,
            limit: None,
            count: false,
            json: false,
            ndjson: false,
            zero: false,
        }
    }
}

impl Globals {
    /// Whether entries are held until all are there, to be put in order. A live search goes depth
    /// first by itself.
    pub(super) fn holds(&self) -> bool {
        let ordered = self.sort.is_some() || self.reverse || (self.depth_first && !self.live);
        ordered && !self.count
    }

    /// Whether what is so far below a start is looked at through symbolic links.
    pub(super) fn follows(&self, depth: u32) -> bool {
        self.follow_all || (self.follow_starts && depth == 0)
    }

    /// The action of an expression that has none.
    pub(super) fn implied_action(&self) -> Action {
        let form = match () {
            () if self.count => return Action::Count,
            () if self.json || self.ndjson => Form::Json,
            () if self.zero => Form::Zero,
            () => Form::Line,
        };
        Action::Write(form, Sink::Stdout)
    }
}

impl Parser<'_> {
    /// Options that stand before the start paths.
    pub(super) fn leading_options(&mut self) -> Result<(), String> {
        while let Some(word) = self.peek() {
            match word {
                b"-P" | b"-H" | b"-L" => {
                    self.globals.follow_starts = word != b"-P";
                    self.globals.follow_all = word == b"-L";
                }
                b"-D" => {
                    self.next();
                    self.argument_is_there("-D")?;
                }
                [b'-', b'O', rest @ ..]
                    if rest.iter().all(u8::is_ascii_digit) && !rest.is_empty() => {}
                b"--" => {
                    self.next();
                    return Ok(());
                }
                [b'-', b'-', ..] => {
                    let name = String::from_utf8_lossy(word).into_owned();
                    self.next();
                    if !self.extra(&name)? {
                        return Err(format!("unknown predicate `{name}'"));
                    }
                    continue;
                }
                _ => return Ok(()),
            }
            self.next();
        }
        Ok(())
    }

    fn argument_is_there(&self, name: &str) -> Result<(), String> {
        self.peek().map(|_| ()).ok_or_else(|| format!("missing argument to `{name}'"))
    }

    /// Options that find(1) does not have. Whether it was one.
    fn extra(&mut self, name: &str) -> Result<bool, String> {
        match name {
            "--live" => self.globals.live = true,
            "--reverse" => self.globals.reverse = true,
            "--count" => self.globals.count = true,
            "--json" => self.globals.json = true,
            "--ndjson" => self.globals.ndjson = true,
            "--0" => self.globals.zero = true,
            "--sort" => {
                let field = self.argument(name)?.to_string_lossy();
                self.globals.sort = Some(Field::named(&field)?);
            }
            "--limit" => {
                let number = self.argument(name)?.to_string_lossy();
                let limit = number
                    .parse()
                    .map_err(|_| format!("--limit needs a number, not '{number}'"))?;
                self.globals.limit = Some(limit);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn primary(&mut self) -> Result<Expr, String> {
        let word = self.next().unwrap_or_default();
        let name = word.to_string_lossy();
        if !name.starts_with('-') || name.len() < 2 {
            return Err(format!("paths must precede expression: `{name}'"));
        }
        if self.extra(&name)? || self.option(&name)? {
            return Ok(always());
        }
        if let Some(expr) = self.action(&name)? {
            return Ok(expr);
        }
        self.test(&name)?
            .map(|test| Expr::Test(Arc::new(test)))
            .ok_or_else(|| format!("unknown predicate `{name}'"))
    }

    /// Options of find(1). Whether it was one.
    fn option(&mut self, name: &str) -> Result<bool, String> {
        match name {
            "-maxdepth" => self.globals.depth_max = self.levels(name)?,
            "-mindepth" => self.globals.depth_min = self.levels(name)?,
            "-depth" | "-d" => {
                self.globals.depth_first = true;
                self.globals.depth_asked = true;
            }
            "-xdev" | "-mount" | "-x" => self.globals.one_file_system = true,
            "-daystart" => self.now_ns = end_of_day(self.began_ns),
            "-follow" => {
                self.globals.follow_starts = true;
                self.globals.follow_all = true;
            }
            "-files0-from" => self.globals.starts_from = Some(self.argument(name)?.to_owned()),
            "-regextype" => self.syntax = Syntax::named(&self.argument(name)?.to_string_lossy())?,
            "-ignore_readdir_race" => self.globals.ignores_races = true,
            "-noignore_readdir_race" => self.globals.ignores_races = false,
            "-noleaf" | "-warn" | "-nowarn" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn levels(&mut self, name: &str) -> Result<u32, String> {
        let argument = self.argument(name)?.to_string_lossy();
        let digits = !argument.is_empty() && argument.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| argument.parse().ok()).flatten().ok_or_else(|| {
            format!("Expected a positive decimal integer argument to {name}, but got ‘{argument}’")
        })
    }

    fn action(&mut self, name: &str) -> Result<Option<Expr>, String> {
        Ok(Some(match name {
            "-print" => self.write(Form::Line, Sink::Stdout),
            "-print0" => self.write(Form::Zero, Sink::Stdout),
            "-ls" => self.write(Form::List, Sink::Stdout),
            "-printf" => {
                let form = self.format(name)?;
                self.write(form, Sink::Stdout)
            }
            "-fprint" | "-fprint0" | "-fls" => {
                let sink = self.sink(name)?;
                let form = match name {
                    "-fprint" => Form::Line,
                    "-fprint0" => Form::Zero,
                    _ => Form::List,
                };
                self.write(form, sink)
            }
            "-fprintf" => {
                if let [file] = self.rest {
                    return Err(invalid(name, &file.to_string_lossy()));
                }
                let sink = self.sink(name)?;
                let form = self.format(name)?;
                self.write(form, sink)
            }
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                let exec = Exec::parse(name, &mut self.rest)?;
                self.act(Action::Exec(exec))
            }
            "-quit" => self.act(Action::Quit),
            "-prune" => Expr::Prune,
            "-delete" => {
                self.globals.depth_first = true;
                self.act(Action::Delete)
            }
            _ => return Ok(None),
        }))
    }

    fn format(&mut self, name: &str) -> Result<Form, String> {
        let format = self.argument(name)?.as_bytes();
        Ok(Form::Printf(Printf(Format::new(format, &mut self.warnings)?)))
    }

    fn test(&mut self, name: &str) -> Result<Option<Test>, String> {
        Ok(Some(match name {
            "-true" => Test::Always(true),
            "-false" => Test::Always(false),
            "-empty" => Test::Empty,
            "-nouser" => Test::NoUser,
            "-nogroup" => Test::NoGroup,
            "-readable" => Test::Access(Wanted::READ),
            "-writable" => Test::Access(Wanted::WRITE),
            "-executable" => Test::Access(Wanted::EXECUTE),
            "-acl" => self.xattr_test(b"system.posix_acl_*")?,
            "-xattr" => {
                let argument = self.argument(name)?;
                self.xattr_test(argument.as_bytes())?
            }
            "-context" => {
                let argument = self.argument(name)?;
                self.xattr_test(&[b"security.selinux=", argument.as_bytes()].concat())?
            }
            "-name" | "-iname" => Test::Name(self.glob(name)?),
            "-path" | "-wholename" | "-ipath" | "-iwholename" => Test::Path(self.glob(name)?),
            "-lname" | "-ilname" => Test::Target(self.glob(name)?),
            "-regex" | "-iregex" => Test::Regex(compile(
                self.argument(name)?.as_bytes(),
                self.syntax,
                name == "-iregex",
            )?),
            "-newer" | "-anewer" | "-cnewer" => {
                let letter = if name == "-newer" { 'm' } else { char::from(name.as_bytes()[1]) };
                self.newer(letter, 'm', name)?
            }
            "-samefile" => {
                let file = self.metadata(name)?;
                Test::SameFile(file.dev(), file.ino())
            }
            _ => return self.text_test(name),
        }))
    }

    /// Tests with an argument that is text.
    fn text_test(&mut self, name: &str) -> Result<Option<Test>, String> {
        if let Some(test) = self.newer_xy(name)? {
            return Ok(Some(test));
        }
        const NAMES: [&str; 17] = [
            "-type", "-xtype", "-size", "-uid", "-gid", "-links", "-inum", "-user", "-group",
            "-perm", "-used", "-fstype", "-amin", "-cmin", "-mmin", "-atime", "-ctime",
        ];
        if !NAMES.contains(&name) && name != "-mtime" {
            return Ok(None);
        }
        // As find(1), which takes the name itself for the number.
        let takes_number = matches!(name, "-uid" | "-gid" | "-links" | "-inum");
        if takes_number && self.peek().is_none() {
            return Err(invalid(name, name));
        }
        let text = self.argument(name)?.to_string_lossy();
        let id = |column, id: Option<u32>, unknown: String| {
            id.map(|id| Test::Id(column, Number::Exactly(i64::from(id)))).ok_or(unknown)
        };
        let column = time_column(char::from(name.as_bytes()[1])).unwrap_or("mtime");
        Ok(Some(match name {
            "-type" => Test::Type(parse_types(name, &text)?),
            "-xtype" => Test::TargetType(parse_types(name, &text)?),
            "-size" => parse_size(&text)?,
            "-uid" => Test::Id("uid", parse_number(name, &text)?),
            "-gid" => Test::Id("gid", parse_number(name, &text)?),
            "-links" => Test::Id("nlink", parse_number(name, &text)?),
            "-inum" => Test::Inode(parse_number(name, &text)?),
            "-user" => {
                id("uid", user_id(&text), format!("‘{text}’ is not the name of a known user"))?
            }
            "-group" => id(
                "gid",
                group_id(&text),
                format!("‘{text}’ is not the name of an existing group"),
            )?,
            "-perm" => parse_perm(&text)?,
            "-used" => used_test(&text)?,
            "-fstype" => Test::FileSystem(text.into_owned()),
            "-amin" | "-cmin" | "-mmin" => minutes_test(column, self.now_ns, name, &text)?,
            _ => days_test(column, self.now_ns, name, &text)?,
        }))
    }

    /// `-newerXY`
    fn newer_xy(&mut self, name: &str) -> Result<Option<Test>, String> {
        let Some(letters) = name.strip_prefix("-newer") else { return Ok(None) };
        let letters: Vec<char> = letters.chars().collect();
        let invalid_name = || Err(format!("invalid predicate `{name}'"));
        let [of, than] = letters[..] else { return invalid_name() };
        if time_column(of).is_none() || (than != 't' && time_column(than).is_none()) {
            return invalid_name();
        }
        if self.peek().is_none() {
            return Err(format!("The ‘{name}’ test needs an argument"));
        }
        self.newer(of, than, name).map(Some)
    }

    /// Entries of which one time is later than a time of a file, or a given one (`t`).
    fn newer(&mut self, of: char, than: char, name: &str) -> Result<Test, String> {
        let reference = match than {
            't' => {
                let text = self.argument(name)?.to_string_lossy();
                parse_moment(&text, self.began_ns).ok_or_else(|| {
                    format!("I cannot figure out how to interpret ‘{text}’ as a date or time")
                })?
            }
            letter => {
                let file = self.metadata(name)?;
                let (seconds, rest) = match letter {
                    'a' => (file.atime(), file.atime_nsec()),
                    'c' => (file.ctime(), file.ctime_nsec()),
                    'B' => born(&file, name)?,
                    _ => (file.mtime(), file.mtime_nsec()),
                };
                seconds.saturating_mul(SECOND_NS).saturating_add(rest)
            }
        };
        let column = time_column(of).unwrap_or("mtime");
        Ok(Test::Time(column, reference, i64::MAX))
    }

    /// What the live file system says of the file that is the argument of `name`.
    fn metadata(&mut self, name: &str) -> Result<std::fs::Metadata, String> {
        let file = self.argument(name)?;
        let follow = self.globals.follow_starts;
        let metadata = match follow {
            true => std::fs::metadata(file).or_else(|_| std::fs::symlink_metadata(file)),
            false => std::fs::symlink_metadata(file),
        };
        metadata.map_err(|error| format!("‘{}’: {}", file.to_string_lossy(), message(&error)))
    }

    fn glob(&mut self, name: &str) -> Result<Glob, String> {
        let pattern: &OsStr = self.argument(name)?;
        Glob::new(pattern.as_bytes(), name.starts_with("-i"))
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
}

fn born(file: &std::fs::Metadata, name: &str) -> Result<(i64, i64), String> {
    let unknown = || format!("the birth time that {name} asks for is not known here");
    let since = file.created().map_err(|_| unknown())?.duration_since(std::time::UNIX_EPOCH);
    let since = since.map_err(|_| unknown())?;
    Ok((since.as_secs() as i64, i64::from(since.subsec_nanos())))
}
