//! `ls` and `stat`: what is in a directory, and all that is known of one entry.

use crate::columns::{INODE, InodeColumns, strings, text_or_empty};
use crate::error::{Error, Result};
use crate::find::{date, full_time, mode_string};
use crate::locate::{Inode, Start, device_of, locate};
use crate::names::{group_name, user_name};
use arrow::array::AsArray;
use canopy_index::{FileKind, Index};
use canopy_model::{Attributes, FileType, unescape};
use std::ffi::OsString;
use std::io::Write;

/// How to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct LsOptions {
    /// Whether to print attributes.
    pub long: bool,
    /// Whether to show names that begin with a dot.
    pub all: bool,
    /// Whether to show directories themselves instead of what is in them.
    pub directory: bool,
    /// Whether the output is a terminal, which control characters would disturb.
    pub terminal: bool,
    /// What time it is, in nanoseconds since 1970.
    pub now_ns: i64,
}

struct Entry {
    name: Vec<u8>,
    inode: Inode,
}

/// Lists paths: entries that are no directories first, then each directory, all in the order of their bytes. Returns the
/// paths that could not be answered; other errors end it. Blocks.
pub fn ls(
    index: &Index,
    paths: &[OsString],
    options: LsOptions,
    output: &mut dyn Write,
) -> Result<Vec<Error>> {
    let mut failed = Vec::new();
    let mut single = Vec::new();
    let mut directories = Vec::new();
    for given in paths {
        match locate(index, given) {
            Ok(start) if start.is_dir() && !options.directory => directories.push(start),
            Ok(start) => single.push(Entry { name: start.given, inode: start.inode }),
            Err(error @ (Error::NotCovered { .. } | Error::NotFound(_))) => failed.push(error),
            Err(error) => return Err(error),
        }
    }
    print(single, options, output)?;
    let headed = paths.len() > 1;
    for (number, start) in directories.into_iter().enumerate() {
        if headed {
            let blank = if number > 0 || paths.len() > failed.len() + 1 { "\n" } else { "" };
            write!(output, "{blank}{}:\n", shown(&start.given, options.terminal))?;
        }
        let Some(mut entries) = children(&start)? else {
            failed
                .push(Error::NotFound(format!("the contents of {}", String::from_utf8_lossy(&start.given))));
            continue;
        };
        entries.retain(|entry| options.all || !entry.name.starts_with(b"."));
        if options.long {
            let blocks: i64 = entries.iter().map(|entry| entry.inode.attributes.blocks).sum();
            writeln!(output, "total {}", (blocks + 1) / 2)?;
        }
        print(entries, options, output)?;
    }
    output.flush()?;
    Ok(failed)
}

/// What is in a directory; `None` if the caller may not list it.
fn children(start: &Start) -> Result<Option<Vec<Entry>>> {
    let mut found = None;
    for shard in start.view.shards_of(start.source.id) {
        let listings = shard.listings_at(&start.path)?;
        if listings.is_empty() {
            continue;
        }
        let all: &mut Vec<Entry> = found.get_or_insert_default();
        let dev = device_of(shard, listings.start)?;
        let (entries, dirs) = shard.rows_of(listings)?;
        for (kind, rows) in [(FileKind::Entries, entries), (FileKind::Dirs, dirs)] {
            if rows.is_empty() {
                continue;
            }
            let mut columns = INODE.to_vec();
            columns.extend(["name", "xattrs"]);
            if kind == FileKind::Entries {
                columns.extend(["target", "rdev"]);
            }
            for batch in shard.read(kind, &columns, std::slice::from_ref(&rows), 8192)? {
                let batch = batch?;
                let (names, xattrs) = (strings(&batch, "name"), strings(&batch, "xattrs"));
                let targets = batch.column_by_name("target").map(|column| column.as_string::<i32>());
                let inodes = InodeColumns::of(&batch);
                all.extend((0..batch.num_rows()).map(|at| Entry {
                    name: unescape(names.value(at)).into_owned(),
                    inode: Inode {
                        attributes: inodes.row(at),
                        target: text_or_empty(targets, at).to_owned(),
                        dev,
                        xattrs: text_or_empty(Some(xattrs), at).to_owned(),
                    },
                }));
            }
        }
    }
    Ok(found)
}

fn print(mut entries: Vec<Entry>, options: LsOptions, output: &mut dyn Write) -> Result<()> {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    if !options.long {
        for entry in &entries {
            output.write_all(&shown_bytes(&entry.name, options.terminal))?;
            output.write_all(b"\n")?;
        }
        return Ok(());
    }
    let cells: Vec<[String; 5]> = entries.iter().map(|entry| cells(&entry.inode)).collect();
    let width = |column: usize| cells.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3, 4].map(width);
    for (entry, [mode, links, user, group, size]) in entries.iter().zip(&cells) {
        let [w0, w1, w2, w3, w4] = widths;
        let date = date(entry.inode.attributes.mtime_ns, options.now_ns);
        write!(output, "{mode:<w0$} {links:>w1$} {user:<w2$} {group:<w3$} {size:>w4$} {date} ")?;
        output.write_all(&shown_bytes(&entry.name, options.terminal))?;
        if entry.inode.attributes.file_type() == FileType::Symlink {
            output.write_all(b" -> ")?;
            output.write_all(&shown_bytes(&unescape(&entry.inode.target), options.terminal))?;
        }
        output.write_all(b"\n")?;
    }
    Ok(())
}

/// Mode, links, owner, group and size (or device) as text.
fn cells(inode: &Inode) -> [String; 5] {
    let Attributes { mode, nlink, uid, gid, size_bytes, rdev, .. } = inode.attributes;
    let size = match inode.attributes.file_type() {
        FileType::Block | FileType::Character => {
            format!("{}, {}", rustix::fs::major(rdev), rustix::fs::minor(rdev))
        }
        _ => size_bytes.to_string(),
    };
    [
        mode_string(mode) + flag(inode),
        nlink.to_string(),
        user_name(uid).unwrap_or_else(|| uid.to_string()),
        group_name(gid).unwrap_or_else(|| gid.to_string()),
        size,
    ]
}

/// '+' for an entry with an ACL, '@' for one with other extended attributes.
fn flag(inode: &Inode) -> &'static str {
    match &inode.xattrs {
        names if names.contains("system.posix_acl_") => "+",
        names if names.is_empty() => "",
        _ => "@",
    }
}

/// Prints all that is known of each path, as stat(1) does, and the names of its extended attributes. Returns the paths that
/// could not be answered; other errors end it. Blocks.
pub fn stat(index: &Index, paths: &[OsString], terminal: bool, output: &mut dyn Write) -> Result<Vec<Error>> {
    let mut failed = Vec::new();
    for given in paths {
        match locate(index, given) {
            Ok(start) => print_stat(&start, terminal, output)?,
            Err(error @ (Error::NotCovered { .. } | Error::NotFound(_))) => failed.push(error),
            Err(error) => return Err(error),
        }
    }
    output.flush()?;
    Ok(failed)
}

fn print_stat(start: &Start, terminal: bool, output: &mut dyn Write) -> Result<()> {
    let inode = &start.inode;
    let a = &inode.attributes;
    write!(output, "  File: ")?;
    output.write_all(&shown_bytes(&start.given, terminal))?;
    if a.file_type() == FileType::Symlink {
        output.write_all(b" -> ")?;
        output.write_all(&shown_bytes(&unescape(&inode.target), terminal))?;
    }
    let what = match a.file_type() {
        FileType::Regular if a.size_bytes == 0 => "regular empty file",
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::Block => "block special file",
        FileType::Character => "character special file",
        FileType::Unknown => "unknown",
    };
    writeln!(
        output,
        "\n  Size: {:<10}\tBlocks: {:<10} IO Block: {:<6} {what}",
        a.size_bytes, a.blocks, a.blksize_bytes
    )?;
    let (major, minor) = (rustix::fs::major(inode.dev), rustix::fs::minor(inode.dev));
    write!(output, "Device: {major},{minor}\tInode: {:<11} Links: {}", a.ino, a.nlink)?;
    if matches!(a.file_type(), FileType::Block | FileType::Character) {
        write!(output, "     Device type: {},{}", rustix::fs::major(a.rdev), rustix::fs::minor(a.rdev))?;
    }
    let name = |name: Option<String>| name.unwrap_or_else(|| "UNKNOWN".to_owned());
    writeln!(
        output,
        "\nAccess: ({:04o}/{}{})  Uid: ({:>5}/{:>8})   Gid: ({:>5}/{:>8})",
        a.mode & 0o7777,
        mode_string(a.mode),
        flag(inode),
        a.uid,
        name(user_name(a.uid)),
        a.gid,
        name(group_name(a.gid)),
    )?;
    for (what, time) in [("Access", a.atime_ns), ("Modify", a.mtime_ns), ("Change", a.ctime_ns)] {
        writeln!(output, "{what}: {}", full_time(time))?;
    }
    let birth = if a.btime_ns == 0 { "-".to_owned() } else { full_time(a.btime_ns) };
    writeln!(output, " Birth: {birth}")?;
    if !inode.xattrs.is_empty() {
        writeln!(output, "Xattrs: {}", shown(&unescape(&inode.xattrs), terminal))?;
    }
    Ok(())
}

fn shown_bytes(text: &[u8], terminal: bool) -> Vec<u8> {
    let safe = |&byte: &u8| if terminal && (byte < 32 || byte == 127) { b'?' } else { byte };
    text.iter().map(safe).collect()
}

fn shown(text: &[u8], terminal: bool) -> String {
    String::from_utf8_lossy(&shown_bytes(text, terminal)).into_owned()
}
