//! `canopy ns unmount`.

use anyhow::{Context, bail};
use canopy::Outcome;
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn run(directory: &Path) -> anyhow::Result<Outcome> {
    let shown = directory.display();
    let full = directory.canonicalize().with_context(|| format!("cannot find {shown}"))?;
    let Some(namespace) = mounted_on(&full)? else {
        bail!("{shown}: no namespace is mounted there");
    };
    let unmounted = match umount2(&full, MntFlags::UMOUNT_NOFOLLOW) {
        // What mounted it for a user unmounts it, too.
        Err(Errno::EPERM) => unmount_as_user(&full),
        unmounted => unmounted.map_err(anyhow::Error::from),
    };
    unmounted.with_context(|| format!("cannot unmount {shown}"))?;
    wait(&namespace)?;
    Ok(Outcome::Complete)
}

fn unmount_as_user(directory: &Path) -> anyhow::Result<()> {
    let ran = Command::new("fusermount3").arg("-u").arg("--").arg(directory).output();
    let Ok(ran) = ran else { bail!("only root may, where fusermount3 is not installed") };
    match ran.status.success() {
        true => Ok(()),
        false => bail!("{}", String::from_utf8_lossy(&ran.stderr).trim()),
    }
}

/// Returns the namespace that is mounted on a directory.
fn mounted_on(directory: &Path) -> anyhow::Result<Option<PathBuf>> {
    let mounts = std::fs::read("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    let mut found = None;
    for line in mounts.split(|byte| *byte == b'\n') {
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(source), Some(target), Some(kind)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        // The last of several on one directory is what is seen.
        if unescaped(target) == directory {
            found = (kind == b"fuse.canopy").then(|| unescaped(source));
        }
    }
    Ok(found)
}

/// Reads a path of /proc/self/mounts, in which some bytes are octal numbers.
fn unescaped(text: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// Waits until the process that had a namespace mounted has written everything and let it go.
fn wait(namespace: &Path) -> anyhow::Result<()> {
    let storage = crate::place::environment(namespace)?.storage;
    let table = canopy_namespace::table_of(storage.as_ref())?;
    let lock = namespace.join(table.to_string()).join("lock");
    let file = File::open(&lock).with_context(|| format!("cannot open {}", lock.display()))?;
    rustix::fs::flock(&file, FlockOperation::LockShared)?;
    Ok(())
}
