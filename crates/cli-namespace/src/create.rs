//! `canopy ns create`.

use crate::place;
use anyhow::{Context, bail, ensure};
use canopy::Outcome;
use canopy::commands::ns::Create as Arguments;
use canopy_cluster::{addresses_of, create_cluster, has_cluster};
use canopy_index::safety;
use canopy_namespace::{
    CHUNK_BYTES, Ownership, Settings, create_namespace, system_clock, table_of,
};
use canopy_partition::SplitPolicy;
use canopy_site::check_links;
use canopy_store::storage::{LocalStorage, SharedDirectory, Storage};
use canopy_store::{Environment, TableId};
use canopy_text::{counted, shell_word};
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// Contents that machines share are objects of this size, unless somebody says otherwise.
const CHUNK_BYTES_DEFAULT: u64 = 4 << 20;

/// Names in the directory of a namespace, beside tables.
const PARTS: [&str; 5] = ["machines", "objects", "probe", "shared", "temporary"];

/// Contents in records are this long at most: each is in memory as a whole.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// Returns when partitions of directories split.
fn policy_of(arguments: &Arguments) -> SplitPolicy {
    let default = SplitPolicy::default();
    SplitPolicy {
        entries_max: arguments.split_entries.unwrap_or(default.entries_max),
        partitions_per_server: arguments
            .partitions_per_server
            .unwrap_or(default.partitions_per_server),
        ..default
    }
}

/// Returns an error if a namespace cannot lie there.
fn check_name(namespace: &Path, has_servers: bool) -> anyhow::Result<()> {
    let shown = namespace.display();
    match namespace.to_str() {
        Some(name) if addresses_of(name).is_some() => {
            bail!(
                "{shown} names servers: give the directory or bucket where the namespace is to lie"
            )
        }
        None if has_servers => {
            bail!(
                "{shown}: servers tell clients this name, so it has to be UTF-8: choose another one"
            )
        }
        _ => Ok(()),
    }
}

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let Arguments { namespace, inline, chunk_size, indexes, shared, servers, .. } = arguments;
    let (inline, shown) = (*inline, namespace.display());
    check_name(namespace, servers.is_some())?;
    // Servers run on several machines.
    let is_shared = *shared || servers.is_some();
    if inline > INLINE_BYTES_MAX {
        bail!("--inline {inline}: {INLINE_BYTES_MAX} at most");
    }
    let mut settings = Settings { inline_bytes_max: inline, ..Settings::default() };
    if indexes.iter().any(String::is_empty) {
        bail!("--indexes: a name is empty; 'none' is for no index");
    }
    if !indexes.is_empty() {
        let names = Vec::from_iter(indexes.iter().filter(|name| *name != "none"));
        settings = settings.with_indexes(&names)?;
    }
    let bucket = place::bucket_of(namespace);
    if *shared && matches!(bucket, Some((None, _))) {
        bail!("--shared is for directories: every machine can use a bucket");
    }
    // Files of a directory would be of one machine.
    let needs_chunks = bucket.is_some() || is_shared;
    let chunk_size = chunk_size.or(needs_chunks.then_some(CHUNK_BYTES_DEFAULT));
    settings.chunk_bytes = chunk_size.unwrap_or_default();
    if chunk_size.is_some_and(|size| !CHUNK_BYTES.contains(&size) || (inline as u64) > size) {
        bail!("--chunk-size: from 4K to 64M, and no less than --inline");
    }
    let environment = match bucket {
        None => local(namespace, is_shared)?,
        Some((directory, _)) => {
            if let Some(directory) = directory {
                local(directory, is_shared)?;
            }
            let environment = place::environment(namespace)?;
            if is_taken(&environment)? {
                bail!("{shown}: there is a namespace already");
            }
            environment
        }
    };
    let uid = nix::unistd::geteuid().as_raw();
    let owner = Ownership { uid, gid: nix::unistd::getegid().as_raw() };
    let clock = system_clock();
    let policy = policy_of(arguments);
    let made = match servers {
        None => create_namespace(&environment, &settings, owner, &clock),
        Some(servers) => create_cluster(&environment, &settings, owner, *servers, policy, &clock)
            .map_err(canopy_namespace::Error::from),
    };
    if made.is_err() && is_taken(&environment)? {
        bail!("{shown}: there is a namespace already");
    }
    made.with_context(|| match bucket {
        Some((None, _)) => format!(
            "cannot make a namespace in {shown}; if the store overwrites objects, name a \
             directory for the rest: DIRECTORY+{shown}"
        ),
        Some(_) => format!("cannot make a namespace in {shown}"),
        // Another process of the caller may have begun one there too: nothing is removed.
        None => begun(namespace),
    })?;
    let shown = shell_word(namespace);
    if let Some(servers) = servers {
        canopy::say(format!(
            "made {shown}: {}; start them with: canopy cluster start {shown} --listen 127.0.0.1:7040",
            counted(*servers, "logical server")
        ))?;
        return Ok(Outcome::Complete);
    }
    canopy::say(format!("made {shown}; mount it with: canopy ns mount {shown} DIRECTORY"))?;
    Ok(Outcome::Complete)
}

/// Returns the message for a directory with parts of a namespace that was not completed.
fn begun(directory: &Path) -> String {
    format!(
        "cannot make a namespace in {}; remove what was begun in it before you try again (rm -r -- {})",
        directory.display(),
        shell_word(directory)
    )
}

/// Returns whether a directory has nothing but parts of a namespace that an interrupted command began.
fn is_begun(directory: &Path) -> bool {
    let is_table = |name: &OsStr| name.to_str().is_some_and(|name| TableId::parse(name).is_some());
    let is_part = |name: &OsStr| PARTS.iter().any(|part| name == *part) || is_table(name);
    let Ok(mut entries) = directory.read_dir() else { return false };
    let is_known = entries.all(|entry| entry.is_ok_and(|entry| is_part(&entry.file_name())));
    let opened = canopy_object_storage::open_directory(directory);
    is_known && !opened.is_ok_and(|opened| is_taken(&Environment::system(opened)).unwrap_or(true))
}

/// Returns whether a storage has a namespace, on one server or on several.
fn is_taken(environment: &Environment) -> anyhow::Result<bool> {
    let storage = environment.storage.as_ref();
    Ok(table_of(storage).is_ok() || has_cluster(storage)?)
}

/// Makes a directory of this machine, or of many, as mkdir(1) does, or takes an empty one of the
/// caller's. A user who can put another one in its place decides where files are written: if root
/// makes it, nobody else may be able to.
fn local(directory: &Path, is_shared: bool) -> anyhow::Result<Environment> {
    let shown = directory.display();
    let caller = nix::unistd::geteuid();
    check_links(directory)?;
    if caller.is_root() {
        safety::check_way(directory, caller.as_raw())?;
    }
    let cannot_make = || format!("cannot make {shown}");
    let real = match (directory.parent(), directory.file_name()) {
        (Some(above), Some(name)) => {
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            above.canonicalize().with_context(cannot_make)?.join(name)
        }
        _ => directory.canonicalize().with_context(cannot_make)?,
    };
    if real.is_symlink() {
        bail!("{shown} is a symbolic link: give the directory that is meant");
    }
    if let Some(root) = SharedDirectory::around(&real, caller.as_raw())? {
        bail!("{shown} is in {}, which machines share: give a directory elsewhere", root.display());
    }
    let opened = place::new_or_empty(&real, OFlags::NOFOLLOW, directory);
    let opened = opened.map_err(|error| match is_begun(&real) {
        true => error.context(begun(directory)),
        false => error,
    })?;
    let owner = opened.metadata().with_context(|| shown.to_string())?.uid();
    if owner != caller.as_raw() {
        bail!("{shown} belongs to uid {owner}: a namespace needs a directory of your own");
    }
    if caller.is_root() {
        let is_same = safety::check(directory, owner)? == real;
        ensure!(is_same, "{shown} became another directory meanwhile: try again");
    }
    // A user's that was there may be open to all, and what others may not see is in its files.
    opened
        .set_permissions(Permissions::from_mode(0o700))
        .with_context(|| format!("cannot close {shown} to others"))?;
    let storage: Arc<dyn Storage> = match is_shared {
        true => Arc::new(SharedDirectory::make(&real).with_context(|| begun(directory))?),
        false => Arc::new(LocalStorage::existing(&real)?),
    };
    Ok(Environment::system(storage))
}
