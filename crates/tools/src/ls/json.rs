//! Entries as JSON, the same objects that find prints.

use crate::find::{EntryView, print_json};
use crate::json::exact;
use canopy_model::{Device, unescape, xattr_names};
use canopy_read::{Inode, Start};
use std::borrow::Cow;

/// Prints all that is known of an entry on a device.
pub(super) fn print_all(start: &Start, device: Device, output: &mut Vec<u8>) {
    let inode = &start.inode;
    print(inode, device, &start.given, 0, output);
    output.pop();
    let names: Vec<Cow<'_, str>> = xattr_names::decode(&inode.xattrs).collect();
    let more = serde_json::json!({
        "blksize": inode.attributes.blksize_bytes,
        "rdev": inode.attributes.rdev,
        "xattrs": names,
    });
    let more = exact(more).to_string();
    output.push(b',');
    output.extend_from_slice(&more.as_bytes()[1..]);
}

/// Prints an entry on a device, with a path, so far below an argument.
pub(super) fn print(
    inode: &Inode,
    device: Device,
    path: &[u8],
    depth: usize,
    output: &mut Vec<u8>,
) {
    let name = path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty()).unwrap_or(path);
    let view = EntryView {
        shown: path,
        name,
        start: path,
        link: path,
        depth: u32::try_from(depth).unwrap_or(u32::MAX),
        target: &unescape(&inode.target),
        dev: device,
        attributes: inode.attributes,
        ..EntryView::default()
    };
    print_json(&view, output);
}
