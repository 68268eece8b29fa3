//! Extended attributes, by path, by the path of a link itself and by descriptor.

use super::refusal::{Refusal, done};
use super::words::Words;
use super::{Answer, Calls};
use crate::word;
use rustix::fs::XattrFlags;

/// How large a buffer is if a script does not say so: as large as values may be.
const BUFFER: i64 = 64 * 1024;

/// Beginnings of names that security modules and XFS (for ACLs) add by themselves.
const FOREIGN: &[&[u8]] = &[b"security.selinux", b"security.evm", b"trusted.SGI_ACL_"];

/// `setxattr FILE NAME VALUE [FLAGS]`, `getxattr FILE NAME [SIZE]`, `listxattr FILE [SIZE]`,
/// `removexattr FILE NAME`, and the same with `l` and `f`. A size of 0 asks for the size that is
/// needed. Lists are sorted, `-` if empty, and leave out what is
/// not the script's doing.
pub const CALLS: Calls = &[
    ("setxattr", |_, words| {
        let (path, (name, value, flags)) = (words.path()?, attribute(words)?);
        done(rustix::fs::setxattr(path, name, &value, flags))
    }),
    ("lsetxattr", |_, words| {
        let (path, (name, value, flags)) = (words.path()?, attribute(words)?);
        done(rustix::fs::lsetxattr(path, name, &value, flags))
    }),
    ("fsetxattr", |worker, words| {
        let (file, (name, value, flags)) = (worker.descriptor(words)?, attribute(words)?);
        done(rustix::fs::fsetxattr(file, name, &value, flags))
    }),
    ("getxattr", |_, words| {
        let (path, name) = (words.path()?, words.bytes()?);
        get(words, |data| rustix::fs::getxattr(&path, &name, data))
    }),
    ("lgetxattr", |_, words| {
        let (path, name) = (words.path()?, words.bytes()?);
        get(words, |data| rustix::fs::lgetxattr(&path, &name, data))
    }),
    ("fgetxattr", |worker, words| {
        let (file, name) = (worker.descriptor(words)?, words.bytes()?);
        get(words, |data| rustix::fs::fgetxattr(file, &name, data))
    }),
    ("getxattr-size", |_, words| {
        let (path, name) = (words.path()?, words.bytes()?);
        Ok(rustix::fs::getxattr_query(path, name)?.to_string())
    }),
    ("listxattr", |_, words| {
        let path = words.path()?;
        list(words, |names| rustix::fs::listxattr(&path, names))
    }),
    ("llistxattr", |_, words| {
        let path = words.path()?;
        list(words, |names| rustix::fs::llistxattr(&path, names))
    }),
    ("flistxattr", |worker, words| {
        let file = worker.descriptor(words)?;
        list(words, |names| rustix::fs::flistxattr(file, names))
    }),
    ("removexattr", |_, words| done(rustix::fs::removexattr(words.path()?, words.bytes()?))),
    ("lremovexattr", |_, words| done(rustix::fs::lremovexattr(words.path()?, words.bytes()?))),
    ("fremovexattr", |worker, words| {
        let file = worker.descriptor(words)?;
        done(rustix::fs::fremovexattr(file, words.bytes()?))
    }),
];

fn attribute(words: &mut Words) -> Result<(Vec<u8>, Vec<u8>, XattrFlags), Refusal> {
    let (name, value) = (words.bytes()?, words.bytes()?);
    Ok((name, value, XattrFlags::from_bits_retain(words.number_or(0)? as u32)))
}

fn get(words: &mut Words, get: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>) -> Answer {
    let mut value = vec![0; words.number_or(BUFFER)? as usize];
    let length = get(&mut value)?;
    Ok(word::encode(&value[..length]))
}

fn list(words: &mut Words, list: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>) -> Answer {
    let mut names = vec![0; words.number_or(BUFFER)? as usize];
    let length = list(&mut names)?;
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let own = names.filter(|name| !FOREIGN.iter().any(|foreign| name.starts_with(foreign)));
    let mut names = Vec::from_iter(own.map(word::encode));
    names.sort();
    Ok(if names.is_empty() { "-".to_owned() } else { names.join(" ") })
}
