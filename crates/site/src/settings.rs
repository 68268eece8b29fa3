//! The configuration: `/etc/canopy/config.toml`, then the user's own file, then the environment;
//! options of the command line come over all of it.
//!
//! A key of a later place replaces that of an earlier one as a whole. An unknown key is an error,
//! since a misspelt one would silently do nothing. An error in the site's file stops a user from
//! indexing who can mend it. Others get a warning, and the rest of the file counts.

use crate::Site;
use crate::indexes::is_own_or_roots;
use crate::limits::{MemoryLimit, StaleAfter, TimeLimit};
use crate::query_limits::QueryLimits;
use anyhow::{Context, bail, ensure};
use canopy_scan::{Excludes, Mount};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The site's file, unless `CANOPY_SITE_CONFIG` names another.
pub const SITE_FILE: &str = "/etc/canopy/config.toml";

/// Configured values. `None` means that a value is not configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The directory of the index, by the user's own file or the environment.
    pub index: Option<PathBuf>,
    /// The directory of the site's index, by the site's file.
    pub site_index: Option<PathBuf>,
    /// Trees that `canopy index` scans if none is named.
    pub sources: Option<Vec<Source>>,
    /// How many threads commands use.
    pub threads: Option<usize>,
    /// Names of entries that `canopy index` leaves out.
    pub prune_names: Option<Vec<String>>,
    /// Absolute paths that it leaves out.
    pub prune_paths: Option<Vec<String>>,
    /// Types of file systems whose mount points it leaves out.
    pub prune_fs: Option<Vec<String>>,
    /// Time limit of a statement of `canopy sql`.
    pub sql_timeout: Option<TimeLimit>,
    /// Memory limit of a statement.
    pub sql_memory: Option<MemoryLimit>,
    /// Limits for queries of some users, by the site's file.
    pub limits: Vec<QueryLimits>,
    /// Types of file systems whose modes and ACLs it trusts, besides those of local disks.
    pub trust_fs: Option<Vec<String>>,
    /// Bytes of the longest path below a source of a directory that it reads.
    pub path_max: Option<usize>,
    /// Age above which a terminal gets a warning that answers are old.
    pub stale_after: Option<StaleAfter>,
    /// The files that say all this.
    pub files: Vec<PathBuf>,
}

/// A tree that is configured as a source, and how it is scanned wherever it is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// Its name, as of `--name`.
    pub name: Option<String>,
    /// Patterns of what is left out, as of `--exclude`.
    pub exclude: Vec<String>,
    /// As `--one-file-system`.
    pub one_file_system: bool,
    /// As `--no-xattrs`.
    pub no_xattrs: bool,
}

/// The keys of a source that is not only a path.
const SOURCE_KEYS: [&str; 5] = ["path", "name", "exclude", "one_file_system", "no_xattrs"];

/// The keys of limits.
const LIMIT_KEYS: [&str; 5] = ["users", "groups", "threads", "sql_timeout", "sql_memory"];

/// The keys of a file, each with its variable of the environment and what it means.
pub const KEYS: [(&str, &str, &str); 11] = [
    ("index", "CANOPY_INDEX", "directory of the index, absolute"),
    ("sources", "CANOPY_SOURCES", "absolute paths that 'canopy index' scans if told none"),
    ("threads", "CANOPY_THREADS", "threads of each command"),
    ("prune_names", "CANOPY_PRUNE_NAMES", "names that 'canopy index' leaves out"),
    ("prune_paths", "CANOPY_PRUNE_PATHS", "absolute paths that it leaves out, with all below them"),
    ("prune_fs", "CANOPY_PRUNE_FS", "types of file systems whose mounts it does not enter"),
    (
        "sql_timeout",
        "CANOPY_SQL_TIMEOUT",
        "time of a statement of SQL: \"90s\", \"15m\", \"none\" [1h]",
    ),
    ("sql_memory", "CANOPY_SQL_MEMORY", "memory of one: \"4G\", \"none\" [half of the machine's]"),
    ("trust_fs", "CANOPY_TRUST_FS", "types whose modes and ACLs decide, as nfs4 [else: root]"),
    ("path_max", "CANOPY_PATH_MAX", "bytes of the longest path of a directory it reads [4096]"),
    ("stale_after", "CANOPY_STALE_AFTER", "warn on a terminal of older answers: \"none\" [1d]"),
];

impl Site {
    /// Reads files and environment. `named` is the directory of the index that the caller named.
    /// `scans` says whether a command scans sources: then a user who can mend the site's file gets an
    /// error where it is wrong. Otherwise `warn` gets what is wrong, and the rest of the file counts.
    ///
    /// # Errors
    ///
    /// If the user's own file or the environment is wrong, or with `scans` the site's file.
    pub fn load(
        named: Option<PathBuf>,
        scans: bool,
        warn: &dyn Fn(String),
    ) -> anyhow::Result<Self> {
        let mut settings = Settings::default();
        let site = variable("CANOPY_SITE_CONFIG").map_or_else(|| SITE_FILE.into(), PathBuf::from);
        if let Some(text) = read_site(&site).transpose() {
            let (right, mut wrong) = match text {
                Ok(text) => right_of_file(&site, &text),
                Err(error) => (Settings::default(), vec![error]),
            };
            if scans && can_mend(&site) && !wrong.is_empty() {
                return Err(wrong.swap_remove(0));
            }
            for error in wrong {
                warn(format!("warning: {error:#}; the site's configuration counts without it"));
            }
            settings = right;
            settings.site_index = settings.index.take();
            settings.files.push(site);
        }
        if let Some(own) = own_file()
            && let Some(text) = read_own(&own)?
        {
            let said = of_file(&own, &text)?;
            ensure!(said.limits.is_empty(), "{}: 'limits' are the site's to set", own.display());
            settings = settings.under(said);
            settings.files.push(own);
        }
        settings = settings.under(of_environment(variable)?);
        Ok(Site::new(settings, named))
    }
}

impl Settings {
    /// These with others over them.
    fn under(self, over: Settings) -> Self {
        Settings {
            index: over.index.or(self.index),
            site_index: over.site_index.or(self.site_index),
            sources: over.sources.or(self.sources),
            threads: over.threads.or(self.threads),
            prune_names: over.prune_names.or(self.prune_names),
            prune_paths: over.prune_paths.or(self.prune_paths),
            prune_fs: over.prune_fs.or(self.prune_fs),
            sql_timeout: over.sql_timeout.or(self.sql_timeout),
            sql_memory: over.sql_memory.or(self.sql_memory),
            limits: [self.limits, over.limits].concat(),
            trust_fs: over.trust_fs.or(self.trust_fs),
            path_max: over.path_max.or(self.path_max),
            stale_after: over.stale_after.or(self.stale_after),
            files: [self.files, over.files].concat(),
        }
    }

    /// Returns how a tree is configured, if it is a source, by its real path.
    pub fn source(&self, root: &Path) -> Option<&Source> {
        let is_root = |path: &Path| path.canonicalize().is_ok_and(|real| real == root);
        self.sources.iter().flatten().find(|source| source.path == root || is_root(&source.path))
    }

    /// Returns how a namespace is configured, if it is a source.
    pub fn namespace(&self, path: &Path) -> Option<&Source> {
        self.sources.iter().flatten().find(|source| namespace_of(&source.path) == Some(path))
    }

    /// Returns what is configured of scans, by key.
    pub fn of_scans(&self) -> Vec<(&'static str, Value)> {
        let source = |source: &Source| {
            json!({
                "path": source.path.to_string_lossy(),
                "name": source.name,
                "exclude": source.exclude,
                "one_file_system": source.one_file_system,
                "no_xattrs": source.no_xattrs,
            })
        };
        let sources = self.sources.as_ref().map(|all| all.iter().map(source).collect::<Vec<_>>());
        let keys = [
            ("sources", json!(sources)),
            ("prune_names", json!(self.prune_names)),
            ("prune_paths", json!(self.prune_paths)),
            ("prune_fs", json!(self.prune_fs)),
            ("trust_fs", json!(self.trust_fs)),
            ("path_max", json!(self.path_max)),
        ];
        keys.into_iter().filter(|(_, value)| !value.is_null()).collect()
    }

    /// Checks values that parse.
    fn checked(self) -> anyhow::Result<Self> {
        if let Some(index) = &self.index {
            ensure!(index.is_absolute(), "index: '{}' is not an absolute path", index.display());
        }
        for source in self.sources.iter().flatten() {
            let path = source.path.display();
            let named = namespace_of(&source.path).unwrap_or(&source.path);
            ensure!(named.is_absolute(), "sources: '{path}' is not an absolute path");
            ensure!(source.name.as_deref() != Some(""), "sources: the name of '{path}' is empty");
            Excludes::new(source.exclude.iter().map(String::as_str))
                .with_context(|| format!("sources: 'exclude' of '{path}'"))?;
        }
        let of_limits = self.limits.iter().filter_map(|limits| limits.threads);
        for threads in self.threads.into_iter().chain(of_limits) {
            ensure!((1..=1024).contains(&threads), "threads: {threads} is not between 1 and 1024");
        }
        if let Some(bytes) = self.path_max {
            ensure!(
                (4096..=1 << 20).contains(&bytes),
                "path_max: {bytes} is not between 4096 and 1048576"
            );
        }
        for name in self.prune_names.iter().flatten() {
            ensure!(
                !name.is_empty() && !name.contains('/'),
                "prune_names: '{name}' is not a name; paths belong in prune_paths"
            );
            ensure!(
                !looks_like_pattern(name),
                "prune_names: '{name}' looks like a pattern, but names are taken as they are; \
                 patterns are for 'exclude' of a source and --exclude"
            );
        }
        for path in self.prune_paths.iter().flatten() {
            ensure!(path.starts_with('/'), "prune_paths: '{path}' is not an absolute path");
        }
        Ok(self)
    }
}

impl Source {
    /// Returns whether it is to be scanned in a way of its own.
    pub fn has_options(&self) -> bool {
        !self.exclude.is_empty() || self.one_file_system || self.no_xattrs
    }
}

/// Returns the namespace that the path of a source names.
pub fn namespace_of(path: &Path) -> Option<&Path> {
    let bytes = path.as_os_str().as_bytes().strip_prefix(b"ns:")?;
    Some(Path::new(OsStr::from_bytes(bytes)))
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The user's own file: `$XDG_CONFIG_HOME/canopy/config.toml`, or below `~/.config`.
fn own_file() -> Option<PathBuf> {
    let config = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    match config {
        Some(config) => is_trusted(&config).then(|| config.join("canopy/config.toml")),
        None => {
            let home = PathBuf::from(variable("HOME")?);
            is_trusted(&home).then(|| home.join(".config/canopy/config.toml"))
        }
    }
}

/// Returns whether a directory is the asking user's, or root's: after sudo, the home may be of
/// somebody who has no say in what root does.
fn is_trusted(directory: &Path) -> bool {
    directory.metadata().is_ok_and(|about| is_own_or_roots(about.uid()))
}

/// The text of the site's file; `None` if there is none.
fn read_site(file: &Path) -> anyhow::Result<Option<String>> {
    let read = || -> anyhow::Result<Option<String>> {
        let mut opened = match open_at_once(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        // /dev/null means that there is no configuration.
        let is_null = file == Path::new("/dev/null");
        ensure!(is_null || opened.metadata()?.is_file(), "it is not a plain file");
        let mut text = String::new();
        opened.read_to_string(&mut text)?;
        Ok(Some(text))
    };
    read().with_context(|| format!("cannot read {}", file.display()))
}

/// Opens a file for reading, without waiting for a writer, should it be a pipe.
fn open_at_once(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)
}

/// The text of the user's file; `None` if there is none, or if it is another's.
fn read_own(path: &Path) -> anyhow::Result<Option<String>> {
    let Ok(mut file) = open_at_once(path) else { return Ok(None) };
    let at = || format!("cannot read {}", path.display());
    let about = file.metadata().with_context(at)?;
    if !about.is_file() || !is_own_or_roots(about.uid()) {
        return Ok(None);
    }
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(at)?;
    Ok(Some(text))
}

/// Returns whether the caller can mend a file.
fn can_mend(file: &Path) -> bool {
    let caller = nix::unistd::geteuid();
    caller.is_root() || file.metadata().is_ok_and(|about| about.uid() == caller.as_raw())
}

fn of_file(file: &Path, text: &str) -> anyhow::Result<Settings> {
    let (settings, wrong) = right_of_file(file, text);
    wrong.into_iter().next().map_or(Ok(settings), Err)
}

/// Returns what a file says as far as it is right, and what is wrong.
fn right_of_file(file: &Path, text: &str) -> (Settings, Vec<anyhow::Error>) {
    let place =
        |at: usize| format!("{}, line {}", file.display(), text[..at].matches('\n').count() + 1);
    let mut settings = Settings::default();
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            return (settings, vec![anyhow::anyhow!("{}: {}", place(at), error.message())]);
        }
    };
    let mut wrong = Vec::new();
    for (key, value) in table.get_ref().iter() {
        match settings.clone().with(key.get_ref(), value) {
            Ok(more) => settings = more,
            Err(error) => wrong.push(error.context(place(key.span().start))),
        }
    }
    (settings, wrong)
}

impl Settings {
    /// These with one key of a file.
    fn with(mut self, key: &str, value: &Spanned<DeValue<'_>>) -> anyhow::Result<Self> {
        match key {
            "index" => self.index = Some(string(value)?.into()),
            "sources" => self.sources = Some(sources(value)?),
            "threads" => self.threads = Some(number(value)?),
            "prune_names" => self.prune_names = Some(strings(value)?),
            "prune_paths" => self.prune_paths = Some(strings(value)?),
            "prune_fs" => self.prune_fs = Some(strings(value)?),
            "sql_timeout" => self.sql_timeout = Some(limit(key, &string(value)?)?),
            "sql_memory" => self.sql_memory = Some(limit(key, &string(value)?)?),
            "limits" => self.limits = limits(value)?,
            "trust_fs" => self.trust_fs = Some(strings(value)?),
            "path_max" => self.path_max = Some(number(value)?),
            "stale_after" => self.stale_after = Some(limit(key, &string(value)?)?),
            _ => {
                let known = KEYS.map(|(key, ..)| key).join(", ");
                bail!("unknown key '{key}'; known are {known}, limits");
            }
        }
        self.checked()
    }
}

/// Reads sources: each a path, or a table that says more.
fn sources(value: &Spanned<DeValue<'_>>) -> anyhow::Result<Vec<Source>> {
    let DeValue::Array(values) = value.get_ref() else {
        bail!("a list of paths or tables is wanted, not {}", kind(value.get_ref()));
    };
    let source = |value: &Spanned<DeValue<'_>>| {
        let DeValue::Table(table) = value.get_ref() else {
            return Ok(Source { path: string(value)?.into(), ..Source::default() });
        };
        let mut source = Source::default();
        for (key, value) in table.iter() {
            let of_key = || format!("sources: '{}'", key.get_ref());
            match key.get_ref().as_ref() {
                "path" => source.path = string(value).with_context(of_key)?.into(),
                "name" => source.name = Some(string(value).with_context(of_key)?),
                "exclude" => source.exclude = strings(value).with_context(of_key)?,
                "one_file_system" => source.one_file_system = flag(value).with_context(of_key)?,
                "no_xattrs" => source.no_xattrs = flag(value).with_context(of_key)?,
                other => bail!(
                    "sources: unknown key '{other}' of a source; known are {}",
                    SOURCE_KEYS.join(", ")
                ),
            }
        }
        ensure!(table.contains_key("path"), "sources: a source has no 'path'");
        Ok(source)
    };
    values.iter().map(source).collect()
}

/// Reads limits: tables of whom they are for, and what they are.
fn limits(value: &Spanned<DeValue<'_>>) -> anyhow::Result<Vec<QueryLimits>> {
    let DeValue::Array(values) = value.get_ref() else {
        bail!("limits: tables as [[limits]] are wanted, not {}", kind(value.get_ref()));
    };
    let read = |value: &Spanned<DeValue<'_>>| {
        let DeValue::Table(table) = value.get_ref() else {
            bail!("limits: tables as [[limits]] are wanted, not {}", kind(value.get_ref()));
        };
        let mut limits = QueryLimits::default();
        for (key, value) in table.iter() {
            let of_key = || format!("limits: '{}'", key.get_ref());
            match key.get_ref().as_ref() {
                "users" => limits.users = Some(strings(value).with_context(of_key)?),
                "groups" => limits.groups = Some(strings(value).with_context(of_key)?),
                "threads" => limits.threads = Some(number(value).with_context(of_key)?),
                "sql_timeout" => {
                    limits.sql_timeout = Some(limit("limits: sql_timeout", &string(value)?)?);
                }
                "sql_memory" => {
                    limits.sql_memory = Some(limit("limits: sql_memory", &string(value)?)?);
                }
                other => {
                    bail!("limits: unknown key '{other}'; known are {}", LIMIT_KEYS.join(", "))
                }
            }
        }
        Ok(limits)
    };
    values.iter().map(read).collect()
}

fn flag(value: &Spanned<DeValue<'_>>) -> anyhow::Result<bool> {
    match value.get_ref() {
        DeValue::Boolean(flag) => Ok(*flag),
        other => bail!("true or false is wanted, not {}", kind(other)),
    }
}

fn string(value: &Spanned<DeValue<'_>>) -> anyhow::Result<String> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.clone().into_owned()),
        other => bail!("a text in quotes is wanted, not {}", kind(other)),
    }
}

fn number(value: &Spanned<DeValue<'_>>) -> anyhow::Result<usize> {
    match value.get_ref() {
        DeValue::Integer(number) => usize::from_str_radix(number.as_str(), number.radix())
            .context("the number is too large"),
        other => bail!("a number is wanted, not {}", kind(other)),
    }
}

fn limit<T: FromStr<Err = String>>(name: &str, text: &str) -> anyhow::Result<T> {
    text.parse().map_err(|error| anyhow::anyhow!("{name}: {error}"))
}

fn strings(value: &Spanned<DeValue<'_>>) -> anyhow::Result<Vec<String>> {
    match value.get_ref() {
        DeValue::Array(values) => values.iter().map(string).collect(),
        other => bail!("a list of texts is wanted, not {}", kind(other)),
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Lists are separated by blanks, as in updatedb.conf; a backslash takes what is behind it as it is.
fn of_environment(variable: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<Settings> {
    let text = |name: &str| -> anyhow::Result<Option<String>> {
        let Some(value) = variable(name) else { return Ok(None) };
        value.into_string().ok().with_context(|| format!("{name} is not UTF-8")).map(Some)
    };
    let list = |name: &str| -> anyhow::Result<Option<Vec<String>>> {
        Ok(text(name)?.as_deref().map(words))
    };
    let number = |name: &str| -> anyhow::Result<Option<usize>> {
        let Some(value) = variable(name) else { return Ok(None) };
        let number = value.to_str().and_then(|text| text.parse().ok());
        Ok(Some(number.with_context(|| format!("{name}: '{}' is not a number", value.display()))?))
    };
    let settings = Settings {
        // Relative ones have always been taken.
        index: None,
        site_index: None,
        sources: list("CANOPY_SOURCES")?.map(|paths| {
            let source = |path: String| Source { path: path.into(), ..Source::default() };
            paths.into_iter().map(source).collect()
        }),
        threads: number("CANOPY_THREADS")?,
        prune_names: list("CANOPY_PRUNE_NAMES")?,
        prune_paths: list("CANOPY_PRUNE_PATHS")?,
        prune_fs: list("CANOPY_PRUNE_FS")?,
        sql_timeout: text("CANOPY_SQL_TIMEOUT")?
            .map(|time| limit("CANOPY_SQL_TIMEOUT", &time))
            .transpose()?,
        sql_memory: text("CANOPY_SQL_MEMORY")?
            .map(|size| limit("CANOPY_SQL_MEMORY", &size))
            .transpose()?,
        limits: Vec::new(),
        trust_fs: list("CANOPY_TRUST_FS")?,
        path_max: number("CANOPY_PATH_MAX")?,
        stale_after: text("CANOPY_STALE_AFTER")?
            .map(|age| limit("CANOPY_STALE_AFTER", &age))
            .transpose()?,
        files: Vec::new(),
    };
    let blank = || {
        let has_blanks = |name: &&str| {
            variable(name).is_some_and(|value| value.to_string_lossy().trim().contains(' '))
        };
        let list = ["CANOPY_SOURCES", "CANOPY_PRUNE_PATHS"].into_iter().find(has_blanks);
        list.map_or("environment".to_owned(), |name| {
            format!("environment (a blank in a path of {name} is written as '\\ ')")
        })
    };
    let settings = settings.checked().with_context(blank)?;
    Ok(Settings { index: variable("CANOPY_INDEX").map(PathBuf::from), ..settings })
}

/// Returns the words of a list.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![None];
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let taken = if c == '\\' { rest.next().unwrap_or(c) } else { c };
        match words.last_mut() {
            Some(word) if c == '\\' || !c.is_whitespace() => {
                word.get_or_insert_with(String::new).push(taken);
            }
            _ => words.push(None),
        }
    }
    words.into_iter().flatten().collect()
}

/// Entries of a source that the configuration leaves out.
#[derive(Debug, Default)]
pub struct Pruned {
    /// Patterns as of `canopy index --exclude`, each with the key that it comes from.
    pub patterns: Vec<(String, &'static str)>,
    /// Paths that are not UTF-8, for which there are no patterns: they are not left out.
    pub unusable: Vec<PathBuf>,
}

/// Returns what is configured to be left out of the source with this root.
///
/// # Errors
///
/// If the mounted file systems cannot be listed.
pub fn prune_reasons(settings: &Settings, root: &Path) -> anyhow::Result<Pruned> {
    let names = settings.prune_names.iter().flatten();
    let mut patterns: Vec<(String, &str)> =
        names.map(|name| (literal(name), "prune_names")).collect();
    let excluded = settings.source(root).map(|source| source.exclude.iter());
    patterns.extend(excluded.into_iter().flatten().map(|one| (one.clone(), "exclude")));
    let named = settings.prune_paths.iter().flatten().map(|path| (path.into(), "prune_paths"));
    let mounted = pruned_mounts(settings)?.into_iter().map(|path| (path, "prune_fs"));
    let mut unusable = Vec::new();
    for (path, why) in named.chain(mounted) {
        // A named source is scanned, whatever is configured.
        let path: PathBuf = path;
        let Ok(below) = path.strip_prefix(root) else { continue };
        match below.to_str() {
            Some("") => {}
            Some(below) => patterns.push((format!("/{}", literal(below)), why)),
            None => unusable.push(path),
        }
    }
    Ok(Pruned { patterns, unusable })
}

/// Returns the absolute paths that are left out of sources: those that are configured, and where
/// file systems of configured types are mounted.
///
/// # Errors
///
/// If mounts cannot be listed.
pub fn pruned_paths(settings: &Settings) -> anyhow::Result<Vec<PathBuf>> {
    let named = settings.prune_paths.iter().flatten().map(PathBuf::from);
    Ok(named.chain(pruned_mounts(settings)?).collect())
}

fn pruned_mounts(settings: &Settings) -> anyhow::Result<Vec<PathBuf>> {
    let Some(types) = settings.prune_fs.as_ref().filter(|types| !types.is_empty()) else {
        return Ok(Vec::new());
    };
    let mounts = canopy_scan::mounts().context("cannot list what is mounted")?;
    Ok(mount_points(mounts, types).collect())
}

fn looks_like_pattern(name: &str) -> bool {
    name.contains(['*', '?']) || name.split_once('[').is_some_and(|(_, rest)| rest.contains(']'))
}

/// A pattern that matches one text.
fn literal(text: &str) -> String {
    let special = |c: char| matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!');
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Returns where file systems of some types are mounted.
fn mount_points(mounts: Vec<Mount>, types: &[String]) -> impl Iterator<Item = PathBuf> {
    let pruned = mounts.into_iter().filter(|mount| types.contains(&mount.file_system));
    pruned.map(|mount| PathBuf::from(OsString::from_vec(mount.point)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn error_of(text: &str) -> String {
        format!("{:#}", of_file(Path::new("/c.toml"), text).unwrap_err())
    }

    #[test]
    fn files_say_what_is_meant_or_where_they_are_wrong() {
        let text = "# a comment\nindex = '/i'\nsources = ['/home']\nthreads = 3\nprune_names = ['.git', \"a b\"]\nprune_fs = []\nsql_timeout = '90'\nsql_memory = 'none'\nstale_after = '36h'\n";
        let expected = Settings {
            index: Some("/i".into()),
            site_index: None,
            sources: Some(vec![Source { path: "/home".into(), ..Source::default() }]),
            threads: Some(3),
            prune_names: Some(vec![".git".to_owned(), "a b".to_owned()]),
            prune_paths: None,
            prune_fs: Some(Vec::new()),
            sql_timeout: Some(TimeLimit(Some(Duration::from_secs(90)))),
            sql_memory: Some(MemoryLimit(None)),
            limits: Vec::new(),
            trust_fs: None,
            path_max: None,
            stale_after: Some(StaleAfter(Some(36 * 3600 * 1_000_000_000))),
            files: Vec::new(),
        };
        assert_eq!(of_file(Path::new("/c.toml"), text).unwrap(), expected);
        let unknown = error_of("threads = 1\n\nthread = 2\n");
        assert!(
            unknown.starts_with(
                "/c.toml, line 3: unknown key 'thread'; known are index, sources, threads,"
            ),
            "{unknown}"
        );
        for (text, line, words) in [
            ("threads = 'x'", 1, "a number is wanted, not a text"),
            ("\nthreads = 0", 2, "between 1 and 1024"),
            ("index = 'relative'", 1, "not an absolute path"),
            ("prune_names = ['a/b']", 1, "is not a name"),
            ("prune_names = ['*.tmp']", 1, "'*.tmp' looks like a pattern"),
            ("sources = [{ path = '/a', excludes = [] }]", 1, "unknown key 'excludes' of a source"),
            ("\n[[sources]]\nname = 'a'", 2, "a source has no 'path'"),
            ("sources = [{ path = '/a', exclude = ['[z-a]'] }]", 1, "'exclude' of '/a'"),
            ("sources = [{ path = '/a', no_xattrs = 1 }]", 1, "true or false is wanted"),
            ("sources = ['ns:a']", 1, "'ns:a' is not an absolute path"),
            ("prune_paths = ['tmp']", 1, "not an absolute path"),
            ("sql_timeout = '5 hours'", 1, "sql_timeout: give a time such as 90s"),
            ("sql_memory = '4'", 1, "sql_memory: give a size such as 512M"),
            ("stale_after = '1 day'", 1, "stale_after: give an age such as 26h or 7d"),
            ("stale_after = '0d'", 1, "stale_after: give an age such as 26h or 7d"),
            ("[limits]\nthreads = 1", 1, "tables as [[limits]] are wanted, not a table"),
            ("[[limits]]\nuser = ['a']", 1, "limits: unknown key 'user'; known are users, groups,"),
            ("[[limits]]\nusers = 'a'", 1, "limits: 'users': a list of texts is wanted"),
            ("[[limits]]\nsql_memory = 'x'", 1, "limits: sql_memory: give a size such as"),
            ("[[limits]]\nthreads = 0", 1, "threads: 0 is not between 1 and 1024"),
            ("prune_fs = 'nfs'", 1, "a list of texts is wanted"),
            ("\n\n[section]\nx = 1", 3, "unknown key 'section'"),
            ("threads = 1\nthreads = 2", 2, "duplicate"),
        ] {
            let error = error_of(text);
            assert!(error.starts_with(&format!("/c.toml, line {line}: ")), "{text}: {error}");
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn mounts_and_paths_become_patterns() {
        let mounts = b"22 1 0:20 / /proc rw - proc proc rw\n\
            30 1 0:30 / /data/nfs\\040share rw shared:1 - nfs4 h:/x rw\n";
        let types = ["nfs4".to_owned()];
        let points: Vec<PathBuf> =
            mount_points(canopy_scan::parse_mounts(mounts), &types).collect();
        assert_eq!(points, [PathBuf::from("/data/nfs share")]);
        let settings = Settings {
            prune_names: Some(vec!["a{b".to_owned()]),
            sources: Some(vec![Source {
                path: "/data".into(),
                exclude: vec!["*.tmp".to_owned()],
                ..Source::default()
            }]),
            prune_paths: Some(vec![
                "/data/x[1]".to_owned(),
                "/data".to_owned(),
                "/other".to_owned(),
            ]),
            ..Settings::default()
        };
        let patterns = |root: &str| {
            let pruned = prune_reasons(&settings, Path::new(root)).unwrap();
            Vec::from_iter(pruned.patterns.into_iter().map(|(pattern, _)| pattern))
        };
        assert_eq!(patterns("/data"), ["a\\{b", "*.tmp", "/x\\[1\\]"]);
        assert_eq!(patterns("/data/x[1]"), ["a\\{b"]);
    }

    #[test]
    fn blanks_in_lists_of_the_environment() {
        for (text, expected) in [
            ("", &[][..]),
            ("  /a\t/b\n", &["/a", "/b"]),
            (r"/my\ files /b\\c \x", &["/my files", r"/b\c", "x"]),
            (r"/end\", &[r"/end\"]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }

    #[test]
    fn sources_can_say_how_they_are_scanned() {
        let text = "[[sources]]\npath = '/a b'\nname = 'a'\nexclude = ['*.tmp']\none_file_system = true\n\
                    [[sources]]\npath = '/c'\nno_xattrs = true\n\
                    [[sources]]\npath = 'ns:/d'\n";
        let expected = vec![
            Source {
                path: "/a b".into(),
                name: Some("a".to_owned()),
                exclude: vec!["*.tmp".to_owned()],
                one_file_system: true,
                no_xattrs: false,
            },
            Source { path: "/c".into(), no_xattrs: true, ..Source::default() },
            Source { path: "ns:/d".into(), ..Source::default() },
        ];
        assert_eq!(of_file(Path::new("/c.toml"), text).unwrap().sources, Some(expected));
    }

    #[test]
    fn correct_settings_count_beside_wrong_ones() {
        let text = "index = '/i'\nthreads = 'many'\nprune_name = []\nprune_fs = ['nfs']\n";
        let (settings, wrong) = right_of_file(Path::new("/c.toml"), text);
        let expected = Settings {
            index: Some("/i".into()),
            prune_fs: Some(vec!["nfs".to_owned()]),
            ..Settings::default()
        };
        assert_eq!((settings, wrong.len()), (expected, 2));
    }
}
