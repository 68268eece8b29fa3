//! Finds and runs the programs that `canopy` has some commands in, so that it stays small and
//! starts fast itself: `canopy-sql` with the SQL engine inside, which also imports, `canopy-store`,
//! which looks into the tables of the engine, `canopy-ns`, which makes, checks and mounts
//! namespaces, and mounts indexes, and `canopy-cluster`, which runs namespaces on several servers.
//!
//! They are looked for beside `canopy` itself and in `../libexec/canopy`, never in `$PATH`, and
//! must be of the same version.
//!
//! All programs share the definitions of arguments, so help, manual pages and completions know
//! every command. `canopy index` runs `canopy-sql` where derived tables must be computed anew, so
//! that they are published in that generation. Further parts with large dependencies can become
//! companions too.

use crate::outcome::Outcome;
use anyhow::{Context, bail};
use canopy_index::schema::FORMAT;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A program that `canopy` runs for some commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Companion {
    /// `canopy-sql`, for `sql`, `table` and indexes with derived tables.
    Sql,
    /// `canopy-store`, for `store`.
    Store,
    /// `canopy-ns`, for `ns`, for indexes of namespaces, and for `mount` and `unmount`.
    Namespace,
    /// `canopy-cluster`, for `cluster`.
    Cluster,
}

/// The variable in which `canopy` passes its version to a companion.
const VARIABLE: &str = "CANOPY_COMPANION_OF";

/// Returns the version of the command and of the indexes that it reads.
fn version() -> String {
    format!("{} (index format {FORMAT})", env!("CARGO_PKG_VERSION"))
}

/// Replaces this process by a companion if the command line plainly asks for what that has, before
/// anything else is done: it parses the command line and reads the configuration itself. Returns if
/// it does not, or if that fails: then the command is parsed, and fails again.
pub fn run_early() {
    let command = command_name(std::env::args_os());
    if let Some(companion) = command.and_then(|name| Companion::of(name.to_str()?)) {
        let _ = companion.run();
    }
}

/// Returns the name of the command in a command line, the first word that is not an option, as clap
/// finds it; `None` where that is not plain.
pub fn command_name(words: impl Iterator<Item = OsString>) -> Option<OsString> {
    let mut words = words.skip(1);
    loop {
        let word = words.next()?;
        match word.as_bytes() {
            b"--index" => {
                words.next().filter(|value| !value.as_bytes().starts_with(b"-"))?;
            }
            option if option.starts_with(b"--index=") => {}
            option if option.starts_with(b"-") => return None,
            _ => return Some(word),
        }
    }
}

/// Replaces this process, another companion, by `canopy-cluster` with the words of a command. Returns
/// only if that fails.
///
/// # Errors
///
/// Fails if `canopy-cluster` is missing, or cannot be started.
pub fn become_cluster(words: impl IntoIterator<Item = OsString>) -> anyhow::Result<Outcome> {
    let companion = Companion::Cluster;
    let arguments = [companion.name().into(), "cluster".into()].into_iter().chain(words);
    Companion::replace(&companion.path()?, arguments)
}

impl Companion {
    /// Returns the companion that carries a command out.
    fn of(command: &str) -> Option<Self> {
        match command {
            "sql" | "table" | "import" => Some(Companion::Sql),
            "store" => Some(Companion::Store),
            "cluster" => Some(Companion::Cluster),
            "ns" | "mount" | "unmount" => Some(Companion::Namespace),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Companion::Sql => "canopy-sql",
            Companion::Store => "canopy-store",
            Companion::Namespace => "canopy-ns",
            Companion::Cluster => "canopy-cluster",
        }
    }

    /// Returns what it has inside, and what needs that.
    fn purpose(self) -> (&'static str, &'static str) {
        match self {
            Companion::Sql => ("SQL", "SQL, imports and indexes with derived tables need"),
            Companion::Store => ("'canopy store'", "'canopy store' needs"),
            Companion::Cluster => ("'canopy cluster'", "'canopy cluster' needs"),
            Companion::Namespace => {
                ("namespaces", "'canopy ns', sources with ns:, 'mount' and 'unmount' need")
            }
        }
    }

    /// Fails if this process is this companion of another version's `canopy`.
    ///
    /// # Errors
    ///
    /// If this process is that of another version.
    pub fn check_version(self) -> anyhow::Result<()> {
        match std::env::var_os(VARIABLE) {
            Some(other) if *other != *version() => bail!(
                "{} has version {}, canopy {}: install both from one package",
                self.name(),
                version(),
                other.to_string_lossy().escape_debug()
            ),
            _ => Ok(()),
        }
    }

    /// Replaces this process by the companion with the same arguments. Returns only if that fails.
    ///
    /// # Errors
    ///
    /// If the companion is missing, or cannot be started.
    pub fn run(self) -> anyhow::Result<Outcome> {
        let path = self.path()?;
        // It would look for its companion in turn, for ever.
        anyhow::ensure!(
            std::env::var_os(VARIABLE).is_none(),
            "{} has no {} inside: install canopy and {} from one package",
            path.display(),
            self.purpose().0,
            self.name()
        );
        Self::replace(&path, std::env::args_os())
    }

    /// Replaces this process by a program with these arguments. Returns only if that fails.
    fn replace(path: &Path, arguments: impl Iterator<Item = OsString>) -> anyhow::Result<Outcome> {
        let cannot = || format!("cannot run {}", path.display());
        let text = |text: OsString| CString::new(text.into_vec()).with_context(cannot);
        let program = text(path.into())?;
        let arguments = arguments.map(text).collect::<anyhow::Result<Vec<CString>>>()?;
        let mut variables = Vec::new();
        for (mut name, value) in std::env::vars_os().filter(|(name, _)| name != VARIABLE) {
            name.push("=");
            name.push(value);
            variables.push(text(name)?);
        }
        variables.push(text(format!("{VARIABLE}={}", version()).into())?);
        // Not through the shell that execvp(3) would take for a file without a program in it: an
        // empty one, as a full disk leaves it, would do nothing and succeed.
        let Err(errno) = nix::unistd::execve(&program, &arguments, &variables);
        Err(std::io::Error::from(errno)).with_context(cannot)
    }

    fn path(self) -> anyhow::Result<PathBuf> {
        // Without /proc, only the place of packages is known.
        let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/usr/bin/canopy"));
        let directory = own.parent().unwrap_or(&own);
        let name = self.name();
        let places = [directory.join(name), directory.join("../libexec/canopy").join(name)];
        let found = places.iter().find(|path| path.exists());
        found.cloned().with_context(|| {
            format!(
                "{name} is not installed, which {}: it belongs beside canopy, in {}",
                self.purpose().1,
                directory.display()
            )
        })
    }
}
