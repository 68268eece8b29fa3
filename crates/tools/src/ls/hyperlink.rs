//! Names as hyperlinks, which terminals open: the sequence OSC 8 around them.

use canopy_model::{FileType, unescape};
use canopy_read::links::{Links, Resolved, parent_of};
use canopy_read::locate::{Start, absolute_path};

/// Returns the prefix of hyperlinks to this machine's files.
pub fn scheme() -> Vec<u8> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut scheme = b"file://".to_vec();
    scheme.extend(percent_encoded(host.trim_end().as_bytes()));
    scheme
}

/// Writes the sequence that begins a hyperlink to an absolute path.
pub fn begin(scheme: &[u8], absolute: &[u8], line: &mut Vec<u8>) {
    line.extend_from_slice(b"\x1b]8;;");
    line.extend_from_slice(scheme);
    line.extend(percent_encoded(absolute));
    line.push(b'\x07');
}

/// Sequence that ends a hyperlink.
pub const END: &[u8] = b"\x1b]8;;\x07";

/// Returns the absolute path of an entry, or of its target if it is a symbolic link. A broken link
/// gives the path where its target would be. A link that the index cannot follow gives its own
/// path.
pub(super) fn absolute(links: &Links, start: &Start) -> Vec<u8> {
    let own = absolute_path(&start.source, start.path.as_path());
    let target = &start.inode.target;
    let path = match start.inode.attributes.file_type() {
        FileType::Symlink => match links.follow(&own, target) {
            Resolved::Entry(reached) => reached.absolute,
            Resolved::Missing => joined(parent_of(&own), target),
            Resolved::NotDirectory
            | Resolved::Loop
            | Resolved::LongName
            | Resolved::Denied
            | Resolved::Unknown => own,
        },
        _ => own,
    };
    unescape(&path).into_owned()
}

/// Returns the absolute path that a path in a directory stands for, by its names alone.
fn joined(directory: &str, path: &str) -> String {
    let directory = if path.starts_with('/') { "" } else { directory };
    let mut names: Vec<&str> = Vec::new();
    for name in directory.split('/').chain(path.split('/')) {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

/// Returns a path as a URL has it.
fn percent_encoded(path: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(path.len());
    for byte in path {
        match byte {
            b'/' | b'~' | b'-' | b'.' | b'_' => encoded.push(*byte),
            byte if byte.is_ascii_alphanumeric() => encoded.push(*byte),
            byte => encoded.extend(format!("%{byte:02x}").into_bytes()),
        }
    }
    encoded
}
