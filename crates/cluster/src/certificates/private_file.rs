//! Files with private keys: only their owner, or root, may be able to read them.

use super::error::CertificateError;
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Text before a private key.
const PRIVATE_KEY: &str = "PRIVATE KEY-----";

/// Bytes of the longest file that is read.
const BYTES_MAX: u64 = 64 << 10;

fn failed(path: &Path) -> impl Fn(io::Error) -> CertificateError + '_ {
    |source| CertificateError::File { path: path.to_owned(), source }
}

/// Returns the text of a file with a private key.
///
/// # Errors
///
/// Fails with `Unfit` unless it is a plain file of the caller or root that nobody else can use, and as
/// the file system does.
pub(super) fn read(path: &Path) -> Result<String, CertificateError> {
    // It may be a pipe, which would wait for a writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed(path))?;
    let about = file.metadata().map_err(failed(path))?;
    let unfit =
        |what: &str| Err(CertificateError::Unfit { path: path.to_owned(), what: what.into() });
    if !about.is_file() || about.len() > BYTES_MAX {
        return unfit("it is not a file with a key");
    }
    let caller = rustix::process::geteuid().as_raw();
    if about.uid() != caller && about.uid() != 0 {
        return unfit(&format!(
            "it belongs to uid {}, who could put another key there",
            about.uid()
        ));
    }
    let mut text = String::new();
    match file.take(BYTES_MAX).read_to_string(&mut text) {
        Ok(_) if about.mode() & 0o077 != 0 => unfit(match text.contains(PRIVATE_KEY) {
            true => "others may read its private key: make it yours alone, with 'chmod 600'",
            // Some other file, which others may need.
            false => "it is not a file with a key",
        }),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            unfit("it is not a file with a key")
        }
        Err(error) => Err(failed(path)(error)),
        Ok(_) => Ok(text),
    }
}

/// Checks that a file can be made, or replaced.
///
/// # Errors
///
/// Fails as `write` does.
pub(super) fn check(path: &Path) -> Result<(), CertificateError> {
    let (parent, temporary) = beside(path)?;
    let made = File::options().write(true).create_new(true).mode(0o600).open(&temporary);
    let _ = fs::remove_file(&temporary);
    made.and_then(|_| File::open(parent)).map(drop).map_err(failed(path))
}

/// Returns the directory of a file, and the path of a temporary file in it.
fn beside(path: &Path) -> Result<(&Path, PathBuf), CertificateError> {
    let (parent, name) = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !path.is_dir() => (parent, name),
        _ => {
            let what = "it is not the name of a file".into();
            return Err(CertificateError::Unfit { path: path.to_owned(), what });
        }
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| failed(path)(io::Error::other(error)))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}", hex::encode(random)));
    Ok((parent, parent.join(temporary)))
}

/// Makes a file that only the caller can use, whole or not at all. With `replaces`, it takes the place
/// of another one.
///
/// # Errors
///
/// Fails as the file system does; with `AlreadyExists` if there is a file, unless it is replaced.
pub(super) fn write(path: &Path, text: &str, replaces: bool) -> Result<(), CertificateError> {
    let (parent, temporary) = beside(path)?;
    let written = (|| {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        match replaces {
            true => fs::rename(&temporary, path)?,
            // A rename would replace a file that somebody else makes now.
            false => fs::hard_link(&temporary, path)?,
        }
        File::open(parent)?.sync_all()
    })();
    // It is gone if it was renamed.
    let _ = fs::remove_file(&temporary);
    written.map_err(failed(path))
}
