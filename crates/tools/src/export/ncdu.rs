//! ncdu's export format, version 1.2 (<https://dev.yorhel.nl/ncdu/jsonfmt>): nested arrays, depth
//! first, which `ncdu -f` shows.
//!
//! Names are bytes as they are, as ncdu writes them itself; so the file is UTF-8 only if all names
//! are. A directory that the caller sees but cannot list has `read_error`.

use super::blocks::{Blocks, Output, push_number};
use crate::error::Result;
use arrow::array::RecordBatch;
use canopy_index::RowRange;
use canopy_index::column::{BLOCKS, GID, INO, MODE, MTIME, NAME, NLINK, SIZE, UID};
use canopy_model::{Attributes, Device, FileType, SourcePathBuf, unescape};
use canopy_read::depth_first::{self, ListedDirectory, ListingRows};
use canopy_read::inode::InodeColumns;
use canopy_read::locate::{Start, absolute_path};
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Writes all below one start; `now_s` is the time of the export.
pub(super) fn write(start: &Start, now_s: i64, output: &Mutex<Output>) -> Result<()> {
    let mut tree = Tree { start, open: Vec::new(), blocks: Blocks::new(output) };
    tree.text("[1,2,{\"progname\":\"canopy\",\"progver\":\"");
    tree.text(env!("CARGO_PKG_VERSION"));
    tree.text("\",\"timestamp\":");
    push_number(&mut tree.blocks.buffer, now_s);
    tree.text("}");
    let columns = NAME | INO | MODE | NLINK | UID | GID | SIZE | BLOCKS | MTIME;
    depth_first::in_order(start, columns, |directory, rows| tree.directory(directory, rows))?;
    if tree.open.is_empty() {
        tree.open_start(true);
    }
    while !tree.open.is_empty() {
        tree.close();
    }
    tree.text("]\n");
    tree.blocks.finish()
}

/// A directory whose array is open.
struct Open {
    path: SourcePathBuf,
    dev: Device,
    /// Its subdirectories that have not come yet, by name.
    pending: VecDeque<(String, Attributes)>,
}

struct Tree<'a> {
    start: &'a Start,
    open: Vec<Open>,
    blocks: Blocks<'a>,
}

impl Tree<'_> {
    fn directory(&mut self, directory: &ListedDirectory, rows: ListingRows<'_, '_>) -> Result<()> {
        if directory.part == 0 || self.open.last().is_none_or(|open| open.path != directory.path) {
            self.enter(directory);
        }
        let ListingRows { entries, entry_count, dirs, dir_count } = rows;
        entries.take(entry_count, |batch, rows| self.entries(batch, rows))?;
        let mut pending = Vec::with_capacity(dir_count);
        dirs.take(dir_count, |batch, rows| -> Result<()> {
            let (names, inodes) = (NAME.of(batch)?, InodeColumns::of(batch));
            pending.extend(rows.map(|at| (names.value(at).to_owned(), inodes.row(at))));
            Ok(())
        })?;
        if let Some(open) = self.open.last_mut() {
            open.pending.extend(pending);
            if directory.part > 0 {
                open.pending.make_contiguous().sort_by(|a, b| a.0.cmp(&b.0));
            }
        }
        self.blocks.ends()
    }

    /// Closes what is done, and opens the directory and whatever is missing above it.
    fn enter(&mut self, directory: &ListedDirectory) {
        if self.open.is_empty() {
            self.open_start(directory.path != self.start.path);
            if directory.path == self.start.path {
                return;
            }
        }
        // The start is above everything.
        while self.open.len() > 1
            && !directory.path.as_path().is_below(self.open[self.open.len() - 1].path.as_path())
        {
            self.close();
        }
        let Some(top) = self.open.last() else { return };
        let mut path = top.path.clone();
        let names = directory.path.as_str()[path.as_str().len()..].trim_start_matches('/');
        let mut names = names.split('/').peekable();
        while let Some(name) = names.next() {
            self.pass(name);
            path = path.as_path().child(name);
            self.text(",\n[");
            if names.peek().is_none() {
                let parent = self.open.last().map(|open| open.dev);
                let dev = Some(directory.dev).filter(|dev| Some(*dev) != parent);
                self.info(&unescape(name), &directory.attributes, dev, false);
            } else {
                // A directory that the caller passes through without seeing it in its parent.
                self.text("{\"name\":");
                push_json(&mut self.blocks.buffer, &unescape(name));
                self.text(",\"read_error\":true}");
            }
            self.open.push(Open {
                path: path.clone(),
                dev: directory.dev,
                pending: VecDeque::new(),
            });
        }
    }

    fn open_start(&mut self, read_error: bool) {
        let start = self.start;
        self.text(",\n[");
        let name = absolute_path(&start.source, start.path.as_path());
        self.info(&unescape(&name), &start.inode.attributes, Some(start.inode.dev), read_error);
        let (path, dev) = (start.path.clone(), start.inode.dev);
        self.open.push(Open { path, dev, pending: VecDeque::new() });
    }

    /// Writes the subdirectories before `name`, which have no listing, and forgets the one of that
    /// name.
    fn pass(&mut self, name: &str) {
        while let Some(open) = self.open.last_mut()
            && open.pending.front().is_some_and(|(pending, _)| pending.as_str() <= name)
            && let Some((pending, attributes)) = open.pending.pop_front()
        {
            if pending != name {
                self.unlisted(&pending, &attributes);
            }
        }
    }

    fn unlisted(&mut self, name: &str, attributes: &Attributes) {
        self.text(",\n[");
        self.info(&unescape(name), attributes, None, true);
        self.text("]");
    }

    fn close(&mut self) {
        let Some(open) = self.open.pop() else { return };
        for (name, attributes) in open.pending {
            self.unlisted(&name, &attributes);
        }
        self.text("]");
    }

    fn entries(&mut self, batch: &RecordBatch, rows: RowRange) -> Result<()> {
        let (names, inodes) = (NAME.of(batch)?, InodeColumns::of(batch));
        for at in rows {
            self.text(",\n");
            self.info(&unescape(names.value(at)), &inodes.row(at), None, false);
        }
        // The only record is the whole tree, and nobody else writes: blocks may go whenever they
        // are full.
        self.blocks.ends()
    }

    fn info(&mut self, name: &[u8], a: &Attributes, dev: Option<Device>, read_error: bool) {
        let kind = a.file_type();
        let buffer = &mut self.blocks.buffer;
        buffer.extend_from_slice(b"{\"name\":");
        push_json(buffer, name);
        let mut number = |key: &str, value: u64| {
            buffer.extend_from_slice(b",\"");
            buffer.extend_from_slice(key.as_bytes());
            buffer.extend_from_slice(b"\":");
            push_number(buffer, value);
        };
        let size = |value: i64| u64::try_from(value).unwrap_or(0);
        number("asize", size(a.size_bytes));
        number("dsize", size(a.blocks.saturating_mul(512)));
        if let Some(dev) = dev {
            number("dev", dev.0);
        }
        number("ino", a.ino);
        if a.nlink > 1 && kind != FileType::Directory {
            number("nlink", a.nlink.into());
        }
        // ncdu 1 refuses a file with ids from 2^31 on, and skips keys that it does not know.
        let id = |id: u32, taken, other| if id < 1 << 31 { taken } else { other };
        number(id(a.uid, "uid", "canopy_uid"), a.uid.into());
        number(id(a.gid, "gid", "canopy_gid"), a.gid.into());
        number("mode", a.mode.into());
        // ncdu takes no times before 1970.
        let mtime_s = a.mtime_ns.div_euclid(1_000_000_000);
        match u64::try_from(mtime_s) {
            Ok(mtime_s) => number("mtime", mtime_s),
            Err(_) => {
                buffer.extend_from_slice(format!(",\"canopy_mtime\":{mtime_s}").as_bytes());
            }
        }
        if a.nlink > 1 && kind != FileType::Directory {
            self.text(",\"hlnkc\":true");
        }
        if !matches!(kind, FileType::Regular | FileType::Directory) {
            self.text(",\"notreg\":true");
        }
        if read_error {
            self.text(",\"read_error\":true");
        }
        self.text("}");
    }

    fn text(&mut self, text: &str) {
        self.blocks.buffer.extend_from_slice(text.as_bytes());
    }
}

/// Appends a string of JSON; bytes that are not UTF-8 stay as they are.
fn push_json(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.push(b'"');
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => buffer.extend_from_slice(&[b'\\', byte]),
            0..0x20 | 0x7F => buffer.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => buffer.push(byte),
        }
    }
    buffer.push(b'"');
}
