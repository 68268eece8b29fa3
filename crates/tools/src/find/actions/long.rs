//! The lines of `-ls`.

use super::entry::EntryView;
use canopy_model::FileType;
use canopy_text::clock::date;
use canopy_text::{group_or_number, mode_string, user_or_number};
use std::io::Write;
use std::sync::LazyLock;

/// Whether blocks are of 512 bytes, not of 1024.
static HAS_SMALL_BLOCKS: LazyLock<bool> =
    LazyLock::new(|| std::env::var_os("POSIXLY_CORRECT").is_some());

/// Prints an entry as `-ls` does.
pub(crate) fn print_long(entry: &EntryView<'_>, now_ns: i64, output: &mut Vec<u8>) {
    let attributes = &entry.attributes;
    let size = match attributes.file_type() {
        FileType::Block | FileType::Character => {
            let (major, minor) =
                (rustix::fs::major(attributes.rdev), rustix::fs::minor(attributes.rdev));
            format!("{major:>3}, {minor:>3}")
        }
        _ => format!("{:>8}", attributes.size_bytes),
    };
    let date = date(attributes.mtime_ns, now_ns);
    let blocks = match *HAS_SMALL_BLOCKS {
        true => attributes.blocks,
        false => attributes.blocks / 2 + attributes.blocks % 2,
    };
    let line = write!(
        output,
        "{:>9} {:>6} {} {:>3} {:<8} {:<8} {size} {date} ",
        attributes.ino,
        blocks,
        mode_string(attributes.mode),
        attributes.nlink,
        user_or_number(attributes.uid),
        group_or_number(attributes.gid),
    );
    line.expect("writing to memory does not fail");
    quote(entry.shown, output);
    if attributes.file_type() == FileType::Symlink {
        output.extend_from_slice(b" -> ");
        quote(entry.target, output);
    }
    output.push(b'\n');
}

/// Quotes a name as `-ls` does, with backslashes.
fn quote(name: &[u8], output: &mut Vec<u8>) {
    for &byte in name {
        match byte {
            b'\\' => output.extend_from_slice(b"\\\\"),
            b'\n' => output.extend_from_slice(b"\\n"),
            8 => output.extend_from_slice(b"\\b"),
            b'\r' => output.extend_from_slice(b"\\r"),
            b'\t' => output.extend_from_slice(b"\\t"),
            12 => output.extend_from_slice(b"\\f"),
            b' ' => output.extend_from_slice(b"\\ "),
            b'"' => output.extend_from_slice(b"\\\""),
            0x21..=0x7e => output.push(byte),
            byte => write!(output, "\\{byte:03o}").expect("writing to memory does not fail"),
        }
    }
}
