//! The configuration: `/etc/canopy/config.toml`, then the user's own file, then the environment;
//! options of the command line come over all of it.
//!
//! A key of a later place replaces that of an earlier one as a whole. An unknown key is an error,
//! since one that is misspelt would silently do nothing.

use crate::limits::{MemoryLimit, TimeLimit};
use crate::outcome::message;
use anyhow::{Context, bail, ensure};
use canopy_scan::Mount;
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The site's file, unless `CANOPY_SITE_CONFIG` names another.
pub const SITE_FILE: &str = "/etc/canopy/config.toml";

/// What can be configured. What is `None` was said nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The directory of the index, by the user's own file or the environment.
    pub index: Option<PathBuf>,
    /// The directory of the site's index, by the site's file.
    pub site_index: Option<PathBuf>,
    /// Trees that `canopy index` scans when it is told none.
    pub sources: Option<Vec<PathBuf>>,
    /// How many threads commands use.
    pub threads: Option<usize>,
    /// Names of entries that `canopy index` leaves out.
    pub prune_names: Option<Vec<String>>,
    /// Absolute paths that it leaves out.
    pub prune_paths: Option<Vec<String>>,
    /// Types of file systems whose mount points it leaves out.
    pub prune_fs: Option<Vec<String>>,
    /// How long a statement of `canopy sql` may take.
    pub sql_timeout: Option<TimeLimit>,
    /// How much memory it may use.
    pub sql_memory: Option<MemoryLimit>,
    /// Types of file systems whose modes and ACLs it trusts, besides those of local disks.
    pub trust_fs: Option<Vec<String>>,
    /// Bytes of the longest path below a source of a directory that it reads.
    pub path_max: Option<usize>,
}

/// The keys of a file, each with its variable of the environment and what it means.
pub const KEYS: [(&str, &str, &str); 10] = [
    ("index", "CANOPY_INDEX", "directory of the index, absolute"),
    ("sources", "CANOPY_SOURCES", "absolute paths that 'canopy index' scans when it is told none"),
    ("threads", "CANOPY_THREADS", "threads of each command"),
    ("prune_names", "CANOPY_PRUNE_NAMES", "names that 'canopy index' leaves out"),
    ("prune_paths", "CANOPY_PRUNE_PATHS", "absolute paths that it leaves out, with all below them"),
    (
        "prune_fs",
        "CANOPY_PRUNE_FS",
        "types of file systems that it does not enter where they are mounted",
    ),
    (
        "sql_timeout",
        "CANOPY_SQL_TIMEOUT",
        "time of a statement of 'canopy sql', such as \"90s\", \"15m\" or \"none\" [default: 1h]",
    ),
    (
        "sql_memory",
        "CANOPY_SQL_MEMORY",
        "memory of a statement, such as \"4G\" or \"none\" [default: half of the machine's]",
    ),
    (
        "trust_fs",
        "CANOPY_TRUST_FS",
        "types of file systems, such as nfs4, whose modes and ACLs say who sees what (else: root)",
    ),
    (
        "path_max",
        "CANOPY_PATH_MAX",
        "bytes of the longest path below a source of a directory that it reads [4096]",
    ),
];

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// What is configured; nothing before [`load`].
pub fn settings() -> &'static Settings {
    static NOTHING: Settings = Settings {
        index: None,
        site_index: None,
        sources: None,
        threads: None,
        prune_names: None,
        prune_paths: None,
        prune_fs: None,
        sql_timeout: None,
        sql_memory: None,
        trust_fs: None,
        path_max: None,
    };
    SETTINGS.get().unwrap_or(&NOTHING)
}

/// Reads files and environment, for the rest of the process.
pub fn load() -> anyhow::Result<()> {
    let mut settings = Settings::default();
    let site = variable("CANOPY_SITE_CONFIG").map_or_else(|| SITE_FILE.into(), PathBuf::from);
    if let Some(text) = read_site(&site)? {
        settings = of_file(&site, &text)?;
        settings.site_index = settings.index.take();
    }
    if let Some(own) = own_file()
        && let Some(text) = read_own(&own)?
    {
        settings = settings.under(of_file(&own, &text)?);
    }
    settings = settings.under(of_environment(variable)?);
    // Set once in a process.
    let _ = SETTINGS.set(settings);
    Ok(())
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
            trust_fs: over.trust_fs.or(self.trust_fs),
            path_max: over.path_max.or(self.path_max),
        }
    }

    /// Checks what a value alone does not tell.
    fn checked(self) -> anyhow::Result<Self> {
        if let Some(index) = &self.index {
            ensure!(index.is_absolute(), "index: '{}' is no absolute path", index.display());
        }
        for source in self.sources.iter().flatten() {
            ensure!(source.is_absolute(), "sources: '{}' is no absolute path", source.display());
        }
        if let Some(threads) = self.threads {
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
                "prune_names: '{name}' is no name; paths belong in prune_paths"
            );
        }
        for path in self.prune_paths.iter().flatten() {
            ensure!(path.starts_with('/'), "prune_paths: '{path}' is no absolute path");
        }
        Ok(self)
    }
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
    let asking = nix::unistd::geteuid().as_raw();
    directory.metadata().is_ok_and(|about| [0, asking].contains(&about.uid()))
}

/// The text of the site's file; `None` if there is none.
fn read_site(file: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// The text of the user's file; `None` if there is none, or if it is another's.
fn read_own(path: &Path) -> anyhow::Result<Option<String>> {
    // Without waiting for a writer, should it be a pipe.
    let mut options = std::fs::OpenOptions::new();
    let Ok(mut file) = options.read(true).custom_flags(nix::libc::O_NONBLOCK).open(path) else {
        return Ok(None);
    };
    let at = || format!("cannot read {}", path.display());
    let about = file.metadata().with_context(at)?;
    if !about.is_file() || ![0, nix::unistd::geteuid().as_raw()].contains(&about.uid()) {
        return Ok(None);
    }
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(at)?;
    Ok(Some(text))
}

fn of_file(file: &Path, text: &str) -> anyhow::Result<Settings> {
    let place =
        |at: usize| format!("{}, line {}", file.display(), text[..at].matches('\n').count() + 1);
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        anyhow::anyhow!("{}: {}", place(at), error.message())
    })?;
    let mut settings = Settings::default();
    for (key, value) in table.get_ref().iter() {
        let name = key.get_ref().as_ref();
        let one = match name {
            "index" => string(value).map(|index| settings.index = Some(index.into())),
            "sources" => strings(value).map(|sources| {
                settings.sources = Some(sources.into_iter().map(PathBuf::from).collect())
            }),
            "threads" => number(value).map(|threads| settings.threads = Some(threads)),
            "prune_names" => strings(value).map(|names| settings.prune_names = Some(names)),
            "prune_paths" => strings(value).map(|paths| settings.prune_paths = Some(paths)),
            "prune_fs" => strings(value).map(|types| settings.prune_fs = Some(types)),
            "sql_timeout" => string(value)
                .and_then(|time| limit(name, &time))
                .map(|limit| settings.sql_timeout = Some(limit)),
            "sql_memory" => string(value)
                .and_then(|size| limit(name, &size))
                .map(|limit| settings.sql_memory = Some(limit)),
            "trust_fs" => strings(value).map(|types| settings.trust_fs = Some(types)),
            "path_max" => number(value).map(|bytes| settings.path_max = Some(bytes)),
            _ => {
                let known = KEYS.map(|(key, ..)| key).join(", ");
                bail!("{}: unknown key '{name}'; known are {known}", place(key.span().start));
            }
        };
        one.and_then(|()| {
            let _: () = settings = std::mem::take(&mut settings).checked()?;
            Ok(())
        })
        .with_context(|| place(key.span().start))?;
    }
    Ok(settings)
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

/// Lists are separated by blanks, as in updatedb.conf.
fn of_environment(variable: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<Settings> {
    let text = |name: &str| -> anyhow::Result<Option<String>> {
        let Some(value) = variable(name) else { return Ok(None) };
        value.into_string().ok().with_context(|| format!("{name} is not UTF-8")).map(Some)
    };
    let list = |name: &str| -> anyhow::Result<Option<Vec<String>>> {
        let words = |value: String| value.split_whitespace().map(str::to_owned).collect();
        Ok(text(name)?.map(words))
    };
    let number = |name: &str| -> anyhow::Result<Option<usize>> {
        let Some(value) = variable(name) else { return Ok(None) };
        let number = value.to_str().and_then(|text| text.parse().ok());
        Ok(Some(number.with_context(|| format!("{name}: '{}' is no number", value.display()))?))
    };
    let settings = Settings {
        // Relative ones have always been taken.
        index: None,
        site_index: None,
        sources: list("CANOPY_SOURCES")?
            .map(|paths| paths.into_iter().map(PathBuf::from).collect()),
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
        trust_fs: list("CANOPY_TRUST_FS")?,
        path_max: number("CANOPY_PATH_MAX")?,
    };
    let settings = settings.checked().context("environment")?;
    Ok(Settings { index: variable("CANOPY_INDEX").map(PathBuf::from), ..settings })
}

/// What is configured to be left out of a source, as patterns of `canopy index --exclude`.
pub fn prune_patterns(settings: &Settings, root: &Path) -> anyhow::Result<Vec<String>> {
    let mut patterns: Vec<String> =
        settings.prune_names.iter().flatten().map(|name| literal(name)).collect();
    for path in pruned_paths(settings)? {
        // What is named as a source is scanned, whatever is configured.
        let Ok(below) = path.strip_prefix(root) else { continue };
        match below.to_str() {
            Some("") => {}
            Some(below) => patterns.push(format!("/{}", literal(below))),
            None => message(format_args!(
                "warning: {} is not UTF-8 and is not left out",
                path.display()
            )),
        }
    }
    Ok(patterns)
}

/// Returns the absolute paths that are left out of sources: those that are configured, and where
/// file systems of configured types are mounted.
pub fn pruned_paths(settings: &Settings) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> =
        settings.prune_paths.iter().flatten().map(PathBuf::from).collect();
    if let Some(types) = settings.prune_fs.as_ref().filter(|types| !types.is_empty()) {
        let mounts = canopy_scan::mounts().context("cannot list what is mounted")?;
        paths.extend(mount_points(mounts, types));
    }
    Ok(paths)
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
        let text = "# a comment\nindex = '/i'\nsources = ['/home']\nthreads = 3\nprune_names = ['.git', \"a b\"]\nprune_fs = []\nsql_timeout = '90'\nsql_memory = 'none'\n";
        let expected = Settings {
            index: Some("/i".into()),
            site_index: None,
            sources: Some(vec!["/home".into()]),
            threads: Some(3),
            prune_names: Some(vec![".git".to_owned(), "a b".to_owned()]),
            prune_paths: None,
            prune_fs: Some(Vec::new()),
            sql_timeout: Some(TimeLimit(Some(Duration::from_secs(90)))),
            sql_memory: Some(MemoryLimit(None)),
            trust_fs: None,
            path_max: None,
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
            ("index = 'relative'", 1, "no absolute path"),
            ("prune_names = ['a/b']", 1, "is no name"),
            ("prune_paths = ['tmp']", 1, "no absolute path"),
            ("sql_timeout = '5 hours'", 1, "sql_timeout: give a time such as 90s"),
            ("sql_memory = '4'", 1, "sql_memory: give a size such as 512M"),
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
            prune_names: Some(vec!["a*b".to_owned()]),
            prune_paths: Some(vec![
                "/data/x[1]".to_owned(),
                "/data".to_owned(),
                "/other".to_owned(),
            ]),
            ..Settings::default()
        };
        let patterns = prune_patterns(&settings, Path::new("/data")).unwrap();
        assert_eq!(patterns, ["a\\*b", "/x\\[1\\]"]);
    }
}
