//! The words of find's language: tests, actions and options.

use super::arguments::{
    days_test, invalid, is_digits, minutes_test, parse_number, parse_owner, parse_perm, parse_size,
    parse_types, time_field, time_test, used_test,
};
use super::expr::Expr;
use super::globals::ColorWhen;
use super::hints::{Misunderstood, of_user, of_word, with_hint};
use super::moment::{end_of_day, parse_moment};
use super::parse::Parser;
use super::storage::StorageTest;
use super::test::{AskedXattr, NamedFile, Number, Test, XattrTest};
use crate::find::actions::{Action, Destination, EntryFormat, Exec, PrintfFormat, SortField};
use crate::find::messages::system_message;
use canopy_index::column::{GID, UID};
use canopy_model::{Attributes, Device, Wanted, escape};
use canopy_query::{AttributeTest, Field, PermissionMatch, Types};
use canopy_text::clock::time_of;
use canopy_text::regular::{PathRegex, Syntax};
use canopy_text::{Characters, Glob, group_id, group_name, user_id, user_name};
use rustix::fs::CWD;
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Most commands that run at once.
const JOBS_MAX: usize = 1024;

/// Returns how many commands are to run at once, if not one.
fn jobs(number: &str) -> Result<Option<usize>, String> {
    let jobs = number.parse().ok().filter(|jobs| (1..=JOBS_MAX).contains(jobs));
    let jobs =
        jobs.ok_or_else(|| format!("-j needs a number from 1 to {JOBS_MAX}, not '{number}'"))?;
    Ok(Some(jobs).filter(|jobs| *jobs > 1))
}

/// Returns the number of `--limit`.
fn limit(number: &str) -> Result<u64, String> {
    number.parse().map_err(|_| format!("--limit needs a number, not '{number}'"))
}

/// Returns the user of `--user`, given by name or id.
fn owner(user: &str) -> Result<u32, Misunderstood> {
    let unknown = || format!("--user: there is no user '{user}'");
    user_id(user).ok_or_else(|| with_hint(unknown(), of_user(user)))
}

impl Parser<'_> {
    /// Takes the options that stand before the start paths.
    pub(super) fn leading_options(&mut self) -> Result<(), Misunderstood> {
        while let Some(word) = self.peek() {
            match word {
                b"-P" | b"-H" | b"-L" => {
                    self.globals.follow_starts = word != b"-P";
                    self.globals.follow_all = word == b"-L";
                }
                b"-D" => {
                    self.next();
                    self.argument("-D")?;
                    continue;
                }
                [b'-', b'O', rest @ ..]
                    if rest.iter().all(u8::is_ascii_digit) && !rest.is_empty() => {}
                b"--" => {
                    self.next();
                    return Ok(());
                }
                [b'-', b'-' | b'j', ..] => {
                    let name = String::from_utf8_lossy(word).into_owned();
                    self.next();
                    if !self.extra(&name)? {
                        return Err(unknown(&name));
                    }
                    continue;
                }
                _ => return Ok(()),
            }
            self.next();
        }
        Ok(())
    }

    /// Has entries of one owner alone acted on.
    fn only(&mut self, owner: u32) -> Result<(), Misunderstood> {
        match self.globals.owner.replace(owner) {
            Some(other) if other != owner => {
                Err("--mine and --user name two owners: give one".to_owned().into())
            }
            _ => Ok(()),
        }
    }

    /// Takes an option that find(1) does not have. Returns whether it was one.
    fn extra(&mut self, name: &str) -> Result<bool, Misunderstood> {
        match name {
            "--live" => self.globals.live = true,
            "--reverse" => self.globals.reverse = true,
            "--count" => self.globals.count = true,
            "--sum" => self.globals.sum = true,
            "--mine" => self.only(rustix::process::geteuid().as_raw())?,
            "--user" => {
                let user = self.text(name)?;
                self.only(owner(&user)?)?;
            }
            "--json" => self.globals.json = true,
            "--ndjson" => self.globals.ndjson = true,
            "--0" => self.globals.zero = true,
            "--sort" => self.globals.sort = Some(SortField::named(&self.text(name)?)?),
            "--limit" => {
                let number = self.text(name)?;
                self.globals.limit = Some(limit(&number)?);
            }
            "--color" | "--color=always" => self.globals.color = ColorWhen::Always,
            "--color=auto" => self.globals.color = ColorWhen::Auto,
            "--color=never" => self.globals.color = ColorWhen::Never,
            _ => match name.split_once('=') {
                Some(("--color", _)) => {
                    return Err(format!("{name}: give always, auto or never").into());
                }
                Some(("--sort", field)) => self.globals.sort = Some(SortField::named(field)?),
                Some(("--limit", number)) => self.globals.limit = Some(limit(number)?),
                Some(("--user", user)) => self.globals.owner = Some(owner(user)?),
                _ => return self.jobs_option(name).map_err(Misunderstood::from),
            },
        }
        Ok(true)
    }

    /// Takes `-j`. Returns whether it was that.
    fn jobs_option(&mut self, name: &str) -> Result<bool, String> {
        match name {
            "-j" => self.globals.jobs = jobs(&self.text(name)?)?,
            _ if name.starts_with("-j") && is_digits(&name[2..]) => {
                self.globals.jobs = jobs(&name[2..])?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn primary(&mut self) -> Result<Expr, Misunderstood> {
        let word = self.next().unwrap_or_default();
        let name = word.to_string_lossy();
        if !name.starts_with('-') || name.len() < 2 {
            return Err(self.misplaced_path(word));
        }
        self.last_word = name.clone().into_owned();
        if self.extra(&name)? || self.option(&name)? {
            return Ok(Expr::always(true));
        }
        if let Some(expr) = self.action(&name)? {
            return Ok(expr);
        }
        if name == "-perm" {
            return Ok(self.permissions()?);
        }
        self.test(&name)?.map(|test| Expr::Test(Arc::new(test))).ok_or_else(|| unknown(&name))
    }

    /// Says that a path stands behind a test; if it is there, a shell may have made it of a pattern.
    fn misplaced_path(&self, path: &OsStr) -> Misunderstood {
        let said = format!("paths must precede expression: `{}'", path.to_string_lossy());
        let last = &self.last_word;
        let is_of_shell = !last.is_empty() && std::fs::metadata(path).is_ok();
        let hint = || format!("possible unquoted pattern after predicate `{last}'?");
        with_hint(said, is_of_shell.then(hint))
    }

    /// Takes an option of find(1). Returns whether it was one.
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
            "-regextype" => {
                let syntax = Syntax::named(&self.text(name)?);
                self.syntax = syntax.map_err(|error| error.to_string())?;
            }
            "-ignore_readdir_race" => self.globals.ignores_races = true,
            "-noignore_readdir_race" => self.globals.ignores_races = false,
            "-warn" | "-nowarn" => self.warns = Some(name == "-warn"),
            "-noleaf" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn levels(&mut self, name: &str) -> Result<u32, String> {
        let argument = self.text(name)?;
        if !is_digits(&argument) {
            return Err(format!(
                "Expected a positive decimal integer argument to {name}, but got ‘{argument}’"
            ));
        }
        let levels = argument.parse().ok().filter(|levels| *levels <= i32::MAX as u32);
        levels.ok_or_else(|| format!("{argument}: Numerical result out of range"))
    }

    fn action(&mut self, name: &str) -> Result<Option<Expr>, String> {
        Ok(Some(match name {
            "-print" => self.write(EntryFormat::Line, Destination::Stdout),
            "-print0" => self.write(EntryFormat::Zero, Destination::Stdout),
            "-ls" => self.write(EntryFormat::List, Destination::Stdout),
            "-printf" => {
                let format = self.printf(name)?;
                self.write(format, Destination::Stdout)
            }
            "-fprint" | "-fprint0" | "-fls" => {
                let to = self.destination(name)?;
                let format = match name {
                    "-fprint" => EntryFormat::Line,
                    "-fprint0" => EntryFormat::Zero,
                    _ => EntryFormat::List,
                };
                self.write(format, to)
            }
            "-fprintf" => {
                if let [file] = self.rest {
                    return Err(invalid(name, &file.to_string_lossy()));
                }
                let to = self.destination(name)?;
                let format = self.printf(name)?;
                self.write(format, to)
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

    fn printf(&mut self, name: &str) -> Result<EntryFormat, String> {
        let format = self.argument(name)?.as_bytes();
        Ok(EntryFormat::Printf(PrintfFormat::new(format, &mut self.warnings)?))
    }

    #[expect(clippy::too_many_lines, reason = "a list of words")]
    fn test(&mut self, name: &str) -> Result<Option<Test>, Misunderstood> {
        let field = time_field(char::from(name.as_bytes()[1])).unwrap_or(Field::Mtime);
        Ok(Some(match name {
            "-true" => Test::Always(true),
            "-false" => Test::Always(false),
            "-empty" => Test::Empty,
            "-nouser" => Test::NoName(UID, user_name),
            "-nogroup" => Test::NoName(GID, group_name),
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
            "-ost" | "-mdt-index" | "-pool" | "-stripe-count" | "-stripe-size"
            | "-component-count" | "-hsm-state" | "-projid" => {
                let test = StorageTest::parse(name, &self.text(name)?)?;
                self.asks_xattr(AskedXattr::Storage(test))
            }
            "-name" | "-iname" => {
                self.warn_of_slash(name);
                Test::Name(self.glob(name)?)
            }
            "-path" | "-wholename" | "-ipath" | "-iwholename" => {
                self.warn_of_end(name);
                Test::Path(self.glob(name)?)
            }
            "-lname" | "-ilname" => Test::Target(self.glob(name)?),
            "-regex" | "-iregex" => {
                let pattern = self.argument(name)?.as_bytes();
                let ignore_case = name == "-iregex";
                let regex =
                    PathRegex::new(pattern, self.syntax, ignore_case, Characters::of_locale());
                Test::Regex(regex.map_err(|error| error.to_string())?)
            }
            "-newer" | "-anewer" | "-cnewer" => {
                let letter = if name == "-newer" { 'm' } else { char::from(name.as_bytes()[1]) };
                self.newer(letter, 'm', name)?
            }
            "-samefile" => {
                let path = self.peek().unwrap_or_default().to_vec();
                let follows = self.globals.follow_starts;
                let (file, dev) = self.look_at(name)?;
                Test::SameFile(NamedFile { path, follows, dev, ino: file.ino })
            }
            "-type" => {
                let types = parse_types(name, &self.text(name)?)?;
                let types = types.into_iter().filter_map(|one| Types::of(one.letter()));
                Test::Condition(AttributeTest::Type(types.fold(Types::default(), Types::union)))
            }
            "-xtype" => Test::TargetType(parse_types(name, &self.text(name)?)?),
            "-size" => parse_size(&self.text(name)?)?,
            "-uid" => self.number(name)?.of(Field::Uid, 1),
            "-gid" => self.number(name)?.of(Field::Gid, 1),
            "-links" => self.number(name)?.of(Field::Links, 1),
            "-inum" => self.number(name)?.of(Field::Inode, 1),
            "-mine" => {
                Number::Exactly(rustix::process::geteuid().as_raw().into()).of(Field::Uid, 1)
            }
            "-user" => parse_owner(&self.text(name)?, user_id, true)?.of(Field::Uid, 1),
            "-group" => parse_owner(&self.text(name)?, group_id, false)?.of(Field::Gid, 1),
            "-used" => used_test(&self.text(name)?)?,
            "-fstype" => Test::FileSystem(self.text(name)?.into_owned()),
            "-amin" | "-cmin" | "-mmin" => {
                minutes_test(field, self.now_ns, name, &self.text(name)?)?
            }
            "-atime" | "-ctime" | "-mtime" => {
                days_test(field, self.now_ns, name, &self.text(name)?)?
            }
            _ => match name.strip_prefix("-newer") {
                Some(letters) => self.newer_xy(letters, name)?,
                None => return Ok(None),
            },
        }))
    }

    /// Takes the argument of `-perm`.
    fn permissions(&mut self) -> Result<Expr, String> {
        let text = self.text("-perm")?;
        let (bits, kind) = parse_perm(&text)?;
        if kind == PermissionMatch::Any && (bits.dirs, bits.others) == (0, 0) {
            self.warnings.push(format!(
                "warning: you have specified a mode pattern {text} (which is equivalent to \
                 /000). The meaning of -perm /000 has now been changed to be consistent \
                 with -perm -000; that is, while it used to match no files, it now matches \
                 all files."
            ));
        }
        // Any of no bits is none that is missing.
        let of = |bits: u32| match kind {
            PermissionMatch::Any if bits == 0 => {
                AttributeTest::Permissions(PermissionMatch::All, 0)
            }
            kind => AttributeTest::Permissions(kind, bits),
        };
        let condition = |test| Expr::Test(Arc::new(Test::Condition(test)));
        let others = condition(of(bits.others));
        if bits.dirs == bits.others {
            return Ok(others);
        }
        let directory = AttributeTest::Type(Types::of('d').unwrap_or_default());
        let dirs = condition(directory).and(condition(of(bits.dirs)));
        Ok(dirs.or(Expr::Not(Box::new(condition(directory))).and(others)))
    }

    /// Takes a number; as find(1), which takes the name itself for one that is missing.
    fn number(&mut self, name: &str) -> Result<Number, String> {
        if self.peek().is_none() {
            return Err(invalid(name, name));
        }
        parse_number(name, &self.text(name)?)
    }

    /// Takes a test of `-newerXY`.
    fn newer_xy(&mut self, letters: &str, name: &str) -> Result<Test, String> {
        let letters: Vec<char> = letters.chars().collect();
        let invalid_name = || Err(format!("invalid predicate `{name}'"));
        let [of, than] = letters[..] else { return invalid_name() };
        if time_field(of).is_none() || (than != 't' && time_field(than).is_none()) {
            return invalid_name();
        }
        if self.peek().is_none() {
            return Err(format!("The ‘{name}’ test needs an argument"));
        }
        self.newer(of, than, name)
    }

    /// Takes the argument of a test for entries of which one time is later than a time of a file,
    /// or than a given one (`t`).
    fn newer(&mut self, of: char, than: char, name: &str) -> Result<Test, String> {
        let reference = match than {
            't' => {
                let text = self.text(name)?;
                parse_moment(&text, self.began_ns).ok_or_else(|| {
                    format!("I cannot figure out how to interpret ‘{text}’ as a date or time")
                })?
            }
            letter => {
                let (file, _) = self.look_at(name)?;
                if letter == 'B' && file.btime_ns == 0 {
                    return Err(format!("the birth time that {name} asks for is not known here"));
                }
                time_of(letter, &file)
            }
        };
        let field = time_field(of).unwrap_or(Field::Mtime);
        Ok(time_test(field, reference, i64::MAX))
    }

    /// Asks the live file system about the file that is the argument of `name`.
    fn look_at(&mut self, name: &str) -> Result<(Attributes, Device), String> {
        let file = self.argument(name)?;
        let look = |follow| {
            let path = CString::new(file.as_bytes()).map_err(|_| Errno::INVAL)?;
            canopy_scan::look_at(CWD, &path, follow)
        };
        look(self.globals.follow_starts).or_else(|_| look(false)).map_err(|errno| {
            format!("‘{}’: {}", file.to_string_lossy(), system_message(&errno.into()))
        })
    }

    /// Warns of a pattern of names that no name matches, where somebody sits at a terminal.
    fn warn_of_slash(&mut self, name: &str) {
        let pattern = self.peek().unwrap_or_default();
        let is_wanted = self.warns.unwrap_or_else(|| std::io::stdin().is_terminal());
        if is_wanted && pattern.contains(&b'/') {
            let whole = if name == "-name" { "-wholename" } else { "-iwholename" };
            self.warnings.push(format!(
                "warning: ‘{name}’ matches against basenames only, but the given pattern contains \
                 a directory separator (‘/’), thus the expression will evaluate to false all the \
                 time.  Did you mean ‘{whole}’?"
            ));
        }
    }

    /// Warns of a pattern of paths that no path matches: start paths alone may end so.
    fn warn_of_end(&mut self, name: &str) {
        if let Some(pattern) = self.peek().filter(|pattern| pattern.ends_with(b"/"))
            && let Ok(glob) = compiled(pattern, name.starts_with("-i"))
            && !self.starts.iter().any(|start| glob.matches(&escape(start.as_bytes())))
        {
            let pattern = String::from_utf8_lossy(pattern);
            self.warnings.push(format!(
                "warning: {name} {pattern} will not match anything because it ends with /."
            ));
        }
    }

    fn glob(&mut self, name: &str) -> Result<Glob, String> {
        let pattern: &OsStr = self.argument(name)?;
        compiled(pattern.as_bytes(), name.starts_with("-i"))
    }

    fn xattr_test(&mut self, argument: &[u8]) -> Result<Test, String> {
        let (key, value) = match argument.iter().position(|&byte| byte == b'=') {
            Some(at) => (&argument[..at], Some(compiled(&argument[at + 1..], false)?)),
            None => (argument, None),
        };
        let wildcard = key.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(key.len());
        let key_start = String::from_utf8_lossy(&key[..wildcard]).into_owned();
        Ok(self.asks_xattr(AskedXattr::Named(compiled(key, false)?, key_start, value)))
    }

    fn asks_xattr(&mut self, asked: AskedXattr) -> Test {
        self.xattr_tests += 1;
        Test::Xattr(XattrTest { number: self.xattr_tests - 1, asked })
    }
}

/// Says that there is no such word. Options of canopy that are none of find's have their place.
fn unknown(name: &str) -> Misunderstood {
    let option = name.split('=').next().unwrap_or(name);
    match option {
        "--threads" | "--index" | "--verbose" => {
            format!("{option} goes before the first PATH, test or option of find").into()
        }
        _ => with_hint(format!("unknown predicate `{name}'"), of_word(name)),
    }
}

fn compiled(pattern: &[u8], ignore_case: bool) -> Result<Glob, String> {
    Glob::new(pattern, ignore_case, Characters::of_locale()).map_err(|error| error.to_string())
}
