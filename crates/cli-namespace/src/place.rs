//! Places of namespaces: a directory with its records, and `contents` for those of large files; or
//! a bucket or a directory that machines share, with a directory of this machine for its cache and
//! the log of mounts.

use crate::{servers, viewed};
use anyhow::{Context, anyhow, bail};
use canopy_cluster::has_cluster;
use canopy_index::safety;
use canopy_namespace::{Contents, Namespace, system_clock};
use canopy_store::storage::{SharedDirectory, Storage};
use canopy_store::{Environment, Fenced};
use canopy_text::shell_word;
use nix::unistd::{User, geteuid};
use rustix::fs::{Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const CONTENTS: &str = "contents";

/// Locked while a process of this machine uses a namespace whose storage has no locks.
const LOCK: &str = "lock";

/// The cache of contents in a bucket.
#[derive(Default)]
pub struct Cache {
    /// The directory, if it is not that of the namespace.
    pub directory: Option<PathBuf>,
    /// How much at most.
    pub bytes: Option<u64>,
}

/// Returns the parts of the name of a namespace in a bucket: the directory for objects that must
/// not be overwritten, if one is named, and the rest.
pub fn bucket_of(namespace: &Path) -> Option<(Option<&Path>, &str)> {
    let name = namespace.to_str()?;
    if name.starts_with("s3://") {
        return Some((None, name));
    }
    let (directory, _) = name.split_once("+s3://")?;
    Some((Some(Path::new(directory)), &name[directory.len() + 1..]))
}

/// Returns the full path of the directory that a namespace has, here or on all machines.
pub fn directory_of(namespace: &Path) -> anyhow::Result<PathBuf> {
    let failed = || format!("cannot open the namespace {}", namespace.display());
    match bucket_of(namespace) {
        None => namespace.canonicalize().with_context(failed),
        Some((Some(directory), _)) => directory.canonicalize().with_context(failed),
        Some((None, bucket)) => cached(bucket.trim_start_matches("s3://").as_ref()),
    }
}

/// Returns the full path of the directory of this machine with the lock, the log of mounts, and what is
/// cached: that of the namespace, unless other machines have it too.
pub fn local_of(namespace: &Path) -> anyhow::Result<PathBuf> {
    match is_shared(namespace)? {
        true => cached(full_name(namespace)?.as_os_str()),
        false => directory_of(namespace),
    }
}

/// Returns the full path of the directory of this machine with the log of mounts of a namespace that
/// has no place here.
pub fn local_by_name(name: &OsStr) -> anyhow::Result<PathBuf> {
    cached(name)
}

/// Makes the directory of this machine for a namespace of that name.
fn cached(name: &OsStr) -> anyhow::Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = variable("XDG_CACHE_HOME").map(PathBuf::from);
    // mount(8) and systemd set no HOME.
    let home = || variable("HOME").map(PathBuf::from).or_else(home_of_account);
    let cache = cache.or_else(|| Some(home()?.join(".cache")));
    let cache = cache.context("no place for caches: set XDG_CACHE_HOME or HOME")?;
    let directory = cache.join("canopy/namespaces").join(as_file_name(name));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory.canonicalize()?)
}

/// Returns the home directory of the user, as the list of accounts has it.
fn home_of_account() -> Option<PathBuf> {
    let user = User::from_uid(geteuid()).ok().flatten()?;
    Some(user.dir).filter(|home| home.is_absolute())
}

/// Returns a file name for the name of a namespace: others have other ones.
fn as_file_name(name: &OsStr) -> OsString {
    let mut escaped = Vec::with_capacity(name.len());
    let bytes = name.as_bytes();
    let length = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    for byte in &bytes[..length] {
        match byte {
            b'/' => escaped.push(b'+'),
            b'+' => escaped.extend(b"%2B"),
            b'%' => escaped.extend(b"%25"),
            byte => escaped.push(*byte),
        }
    }
    OsString::from_vec(escaped)
}

/// Returns whether the directory of a namespace is one that machines share.
fn is_shared(namespace: &Path) -> anyhow::Result<bool> {
    match bucket_of(namespace) {
        Some((None, _)) => Ok(false),
        _ => Ok(SharedDirectory::root_of(&directory_of(namespace)?)?.is_some()),
    }
}

/// Returns whether the storage of a namespace has no locks: then processes of this machine keep each
/// other out by a file of this machine.
pub fn lacks_locks(namespace: &Path) -> anyhow::Result<bool> {
    Ok(matches!(bucket_of(namespace), Some((None, _))) || is_shared(namespace)?)
}

/// Returns the name of a namespace in the table of mounts: enough to find it from any directory.
pub fn full_name(namespace: &Path) -> anyhow::Result<PathBuf> {
    match bucket_of(namespace) {
        Some((None, bucket)) => Ok(bucket.into()),
        Some((Some(_), bucket)) => {
            Ok(format!("{}+{bucket}", directory_of(namespace)?.display()).into())
        }
        None => Ok(namespace.canonicalize()?),
    }
}

/// Fails unless there is a namespace, of one table or on several servers.
pub fn check(namespace: &Path) -> anyhow::Result<()> {
    match has_cluster(environment(namespace)?.storage.as_ref())? {
        true => Ok(()),
        false => found(namespace).map(drop),
    }
}

/// Returns the full path of the directory of a namespace that is there.
pub fn found(namespace: &Path) -> anyhow::Result<PathBuf> {
    let failed = || format!("cannot open the namespace {}", namespace.display());
    let storage = environment(namespace)?.storage;
    match canopy_namespace::table_of(storage.as_ref()) {
        Err(canopy_namespace::Error::Invalid(what)) => {
            check_one_table(namespace, storage.as_ref())?;
            return Err(instead(namespace, &what));
        }
        table => table.with_context(failed)?,
    };
    directory_of(namespace)
}

/// Fails if a storage has a namespace on several servers.
pub fn check_one_table(namespace: &Path, storage: &dyn Storage) -> anyhow::Result<()> {
    if has_cluster(storage)? {
        bail!(
            "{} is a namespace on several servers, which 'canopy ns' cannot open: start its servers \
             with 'canopy cluster start {} --listen ADDRESS'",
            namespace.display(),
            shell_word(namespace)
        );
    }
    Ok(())
}

/// Returns the error of a directory that is not a namespace. It names the file system that is
/// mounted there.
fn instead(place: &Path, what: &str) -> anyhow::Error {
    let shown = place.display();
    let real = place.canonicalize().unwrap_or_default();
    let mounted = real.ancestors().find_map(|above| viewed::mounted(above).ok().flatten());
    let Some(mounted) = mounted else { return anyhow!("{shown}: {what}") };
    let [point, namespace] = [&mounted.point, &mounted.source]
        .map(|path| Path::new(OsStr::from_bytes(path)).display().to_string());
    if real.as_os_str().as_bytes() != mounted.point {
        return anyhow!("{shown} is in the namespace that is mounted on {point}: name {point}");
    }
    if !rustix::process::geteuid().is_root() {
        return anyhow!(
            "{shown}: the namespace {namespace} is mounted there, and only its owner and root may do this"
        );
    }
    if servers::is_served(Path::new(&namespace)).unwrap_or(false) {
        return anyhow!(
            "{shown}: the namespace {namespace} is mounted there, and can stay so: name {namespace}"
        );
    }
    anyhow!(
        "{shown}: the namespace {namespace} is mounted there: unmount it first (canopy ns unmount {point})"
    )
}

/// Fails if root is given the directory of another user, who could redirect its files.
fn check_safe(directory: &Path) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let about = directory.metadata().with_context(|| directory.display().to_string())?;
    if about.uid() != 0 {
        let (shown, uid, gid) = (directory.display(), about.uid(), about.gid());
        bail!(
            "{shown} belongs to uid {uid}, who could have it lead elsewhere: run this as that user, \
             as with 'setpriv --reuid {uid} --regid {gid} --clear-groups canopy ns ...'"
        );
    }
    safety::check(directory, 0)?;
    Ok(())
}

/// Returns the environment for the records of a namespace.
pub fn environment(namespace: &Path) -> anyhow::Result<Environment> {
    if bucket_of(namespace).is_some() {
        let storage = canopy_object_storage::open(&full_name(namespace)?.display().to_string())?;
        return Ok(Environment::system(storage));
    }
    match namespace.metadata() {
        Ok(found) if found.is_dir() => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(error).with_context(|| namespace.display().to_string());
        }
        _ => bail!("{}: no such directory", namespace.display()),
    }
    check_safe(namespace)?;
    // The process that opens it may change its working directory later.
    let namespace = namespace.canonicalize()?;
    Ok(Environment::system(canopy_object_storage::open_directory(&namespace)?))
}

/// Makes a directory that only the caller may enter, as mkdir(1) does, or opens an existing one,
/// which has to be empty. The checked directory is returned open: its path may lead elsewhere soon.
/// With `OFlags::NOFOLLOW` among the flags it is not a symbolic link. Errors call it `shown`.
pub fn new_or_empty(directory: &Path, flags: OFlags, shown: &Path) -> anyhow::Result<File> {
    let shown = shown.display();
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("cannot make {shown}"));
        }
        _ => {}
    }
    let cannot_read = || format!("cannot read {shown}");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | flags;
    let opened = rustix::fs::open(directory, flags, Mode::empty()).with_context(cannot_read)?;
    for entry in Dir::read_from(&opened).with_context(cannot_read)? {
        if !matches!(entry.with_context(cannot_read)?.file_name().to_bytes(), b"." | b"..") {
            bail!("{shown} is not empty: give a directory that is, or a new one");
        }
    }
    Ok(opened.into())
}

/// Returns whether nobody answers for a mount any more. While its process dies, the kernel still
/// takes requests and then breaks them off.
pub fn is_killed(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED)
}

/// Returns the advice for a directory whose process is gone.
pub fn killed(directory: &Path) -> String {
    let shown = directory.display();
    format!(
        "{shown}: the process that had mounted something there was killed; first unmount it: canopy \
         unmount {shown}"
    )
}

/// Returns the directory that a namespace is mounted on, for root, who may ask there; for others,
/// the place itself.
pub fn asked(place: &Path) -> anyhow::Result<PathBuf> {
    let mounted = match rustix::process::geteuid().is_root() {
        true => viewed::mounted(place)?,
        false => None,
    };
    Ok(mounted.map_or(place.to_owned(), |mount| OsStr::from_bytes(&mount.point).into()))
}

/// Returns the state of a namespace that is mounted on a directory, from an attribute that only
/// root sees; none if none is mounted there.
pub fn control(directory: &Path, name: &str) -> anyhow::Result<Option<String>> {
    let shown = directory.display();
    match ask(directory, name) {
        Err(error) if is_killed(error) => bail!(killed(directory)),
        Err(Errno::ROFS) => bail!(
            "{shown}: it is mounted read-only, and this would change it: unmount it first (canopy ns \
             unmount {shown}), and name the namespace itself"
        ),
        told => told.with_context(|| format!("cannot ask {shown}")),
    }
}

/// Returns an attribute that a mounted namespace has and no record; none if none is mounted there.
pub fn ask(directory: &Path, name: &str) -> Result<Option<String>, Errno> {
    let mut value = vec![0; 1 << 16];
    match rustix::fs::getxattr(directory, name, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(String::from_utf8_lossy(&value).into_owned()))
        }
        // Opening it as a namespace reports the fault.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a namespace, which nobody else has open.
pub fn open(namespace: &Path) -> anyhow::Result<Namespace> {
    open_with(namespace, &Cache::default(), false)
}

/// Opens a namespace, which nobody else has open, to read it alone: that needs no room on its disk.
pub fn open_read_only(namespace: &Path) -> anyhow::Result<Namespace> {
    open_with(namespace, &Cache::default(), true)
}

/// Opens a namespace, which nobody else has open, with a cache of its contents.
pub fn open_with(namespace: &Path, cache: &Cache, is_read_only: bool) -> anyhow::Result<Namespace> {
    open_any(namespace, cache, is_read_only).map_err(|error| advised(Some(namespace), error))
}

fn open_any(namespace: &Path, cache: &Cache, is_read_only: bool) -> anyhow::Result<Namespace> {
    // Before a directory is made where there is no namespace.
    let full = found(namespace)?;
    // A bucket's directory on this machine, too.
    check_safe(&full)?;
    let local = local_of(namespace)?;
    lock(namespace, &local)?;
    let failed = || format!("cannot open the namespace {}", namespace.display());
    let contents = Contents::new(cache.directory.as_ref().unwrap_or(&local.join(CONTENTS)))?;
    let contents = match cache.bytes {
        Some(bytes) => contents.with_cache_bytes(bytes),
        None => contents,
    };
    let environment = environment(namespace)?;
    let opened = match is_read_only {
        true => Namespace::open_read_only(&environment, contents, system_clock()),
        false => Namespace::open(&environment, contents, system_clock()),
    };
    use canopy_namespace::Error::{CacheInUse, Store};
    let is_locked = match &opened {
        Err(Store(canopy_store::Error::Fenced(fenced))) => matches!(fenced, Fenced::Locked(_)),
        Err(CacheInUse(_)) => true,
        _ => return opened.with_context(failed),
    };
    Err(InUse { namespace: namespace.to_owned(), is_locked }.into())
}

/// Returns whether a namespace could not be opened since it is damaged.
pub fn is_damage(error: &anyhow::Error) -> bool {
    let of = |error: &canopy_namespace::Error| error.is_damage();
    // Tools know errors of records as those of input and output.
    let of_records = |cause: &(dyn std::error::Error + 'static)| {
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        inner.and_then(|inner| inner.downcast_ref()).is_some_and(of)
    };
    error.downcast_ref().is_some_and(of) || error.chain().any(of_records)
}

/// Adds advice to an error if files of the namespace are damaged.
pub fn advised(namespace: Option<&Path>, error: anyhow::Error) -> anyhow::Error {
    if !is_damage(&error) || format!("{error:#}").contains("canopy ns check --repair") {
        return error;
    }
    let name = namespace.map_or("NAMESPACE".to_owned(), |place| place.display().to_string());
    error.context(format!(
        "files of the namespace are damaged; mend them: canopy ns check --repair {name}"
    ))
}

/// A namespace that another process has open.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} is mounted, or used by another command: unmount it first (canopy ns unmount DIRECTORY), or \
     wait",
    .namespace.display()
)]
pub struct InUse {
    namespace: PathBuf,
    /// Whether a process on this machine holds a lock. Otherwise another process opened the
    /// namespace at the same time, and another try would take it from that process.
    pub is_locked: bool,
}

/// Opens the lock of a namespace whose storage has none. Of processes on other machines, the one that
/// opened the namespace last has it.
pub fn open_lock(directory: &Path) -> anyhow::Result<File> {
    let path = directory.join(LOCK);
    let mut options = File::options();
    options.create(true).truncate(false).write(true).mode(0o600);
    options.open(&path).with_context(|| format!("cannot open {}", path.display()))
}

/// Takes that lock until this process ends.
fn lock(namespace: &Path, directory: &Path) -> anyhow::Result<()> {
    if !lacks_locks(namespace)? {
        return Ok(());
    }
    // It may be opened again after it was mended.
    static TAKEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if taken.iter().any(|one| one == directory) {
        return Ok(());
    }
    let file = open_lock(directory)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            std::mem::forget(file);
            taken.push(directory.to_owned());
            Ok(())
        }
        Err(_) => Err(InUse { namespace: namespace.to_owned(), is_locked: true }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn names_of_caches_differ() {
        // All names of up to six of these characters, without one at the end that is cut off.
        let mut names = vec![String::new()];
        for _ in 0..6 {
            let longer = names
                .iter()
                .flat_map(|name| ["a", "+", "%", "2", "B", "/"].map(|one| format!("{name}{one}")));
            let longer = Vec::from_iter(longer);
            let mut seen = HashMap::new();
            for name in longer.iter().filter(|name| !name.ends_with('/')) {
                let file = as_file_name(name.as_ref());
                assert!(!file.as_bytes().contains(&b'/'));
                let before = seen.insert(file, name);
                assert_eq!(before, None, "{name}");
            }
            names = longer;
        }
        let not_utf8 = [0xfe, 0xff].map(|byte| as_file_name(OsStr::from_bytes(&[byte])));
        assert_ne!(not_utf8[0], not_utf8[1]);
        assert_eq!(as_file_name("bucket/prefix/".as_ref()), "bucket+prefix");
    }
}
