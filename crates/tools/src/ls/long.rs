//! Long lines of `ls`: attributes in columns, then the name and what a symbolic link leads to.

use super::entry::{LsEntry, Target};
use super::print::{Printer, Row, Table, UNKNOWN};
use super::{LsOptions, LsTime};
use canopy_model::{FileType, unescape, xattr_names};
use canopy_read::contexts::is_context_alone;
use canopy_text::{group_name, mode_string, user_name};
use std::io::Write;

/// The attributes that hold ACLs.
const ACLS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

impl Printer<'_> {
    pub(super) fn long(&mut self, table: &Table<'_>, beside: &[&LsEntry], lines: &mut Vec<u8>) {
        let all = table.rows.iter().map(|row| row.entry).chain(beside.iter().copied());
        let cells: Vec<Cells> = all.map(|entry| Cells::of(entry, self.options)).collect();
        let widths = Widths::of(&cells);
        for (row, cells) in table.rows.iter().zip(&cells) {
            self.normal(lines);
            let mut before = Vec::new();
            self.indent(&mut before);
            self.numbers(table, row, &mut before);
            // Infallible: it is written to memory.
            let _ = write!(
                before,
                "{:<w0$} {:>w1$} ",
                cells.mode,
                cells.links,
                w0 = widths.mode,
                w1 = widths.links
            );
            for (shown, (name, numeric), width) in [
                (self.options.owner, &cells.owner, widths.owner),
                (self.options.group, &cells.group, widths.group),
                (self.options.author, &cells.owner, widths.owner),
            ] {
                if shown {
                    let _ = match numeric {
                        true => write!(before, "{name:>width$} "),
                        false => write!(before, "{name:<width$} "),
                    };
                }
            }
            if self.options.context {
                let _ = write!(before, "{:<w$} ", row.context, w = table.context_width);
            }
            let mut after = Vec::new();
            let size = cells.size(&widths);
            let _ = write!(after, "{size:>width$} {} ", cells.time, width = widths.size);
            let options = self.options;
            let owned = options.owner || options.group || options.author || options.context;
            let column = after.len() + if owned { 0 } else { before.len() };
            lines.extend(before);
            lines.extend(after);
            let length = self.name(table, row, column, lines);
            if row.entry.file_type() != FileType::Symlink {
                lines.extend(self.indicator(row.entry.inode.attributes.mode));
            } else if !row.entry.inode.target.is_empty() {
                self.target(table, row, column + length + 4, lines);
            }
            lines.push(self.options.end());
        }
    }

    fn target(&mut self, table: &Table<'_>, row: &Row<'_>, column: usize, lines: &mut Vec<u8>) {
        let entry = row.entry;
        lines.extend_from_slice(b" -> ");
        let target = unescape(&entry.inode.target);
        let quoted = self.names.quote(&target).into_owned();
        let code = self.options.colors.as_ref().and_then(|colors| colors.of_target(entry, &target));
        let quotes = table.align && self.names.needs_quotes(&target);
        self.leads_to(row, &quoted, quotes, code, column, lines);
        if let Target::Mode(mode) = entry.target {
            lines.extend(self.indicator(mode));
        }
    }
}

/// Cells of a long line before the name.
struct Cells {
    mode: String,
    links: String,
    /// With whether it is a number.
    owner: (String, bool),
    group: (String, bool),
    /// Empty where a device stands in its place.
    size: String,
    /// Its major and minor number.
    device: Option<(String, String)>,
    time: String,
}

/// The widths of the columns of long lines.
struct Widths {
    mode: usize,
    links: usize,
    owner: usize,
    group: usize,
    major: usize,
    minor: usize,
    size: usize,
}

impl Cells {
    fn of(entry: &LsEntry, options: &LsOptions) -> Self {
        let attributes = &entry.inode.attributes;
        if !entry.known {
            return Cells::unknown(entry, options);
        }
        let name = |name: Option<String>, id: u32| match name {
            Some(name) if !options.numeric => (name, false),
            _ => (id.to_string(), true),
        };
        let mut mode = mode_string(attributes.mode);
        if ACLS.iter().any(|acl| xattr_names::has(&entry.inode.xattrs, acl)) {
            mode.push('+');
        } else if is_context_alone(&entry.inode) {
            mode.push('.');
        } else if !entry.inode.xattrs.is_empty() {
            mode.push('@');
        }
        let (major, minor) =
            (rustix::fs::major(attributes.rdev), rustix::fs::minor(attributes.rdev));
        let (size, device) = match attributes.file_type() {
            FileType::Block | FileType::Character => {
                (String::new(), Some((major.to_string(), minor.to_string())))
            }
            _ => (options.size_form.show(attributes.size_bytes), None),
        };
        let time = entry.time_ns(options.time);
        Cells {
            mode,
            links: attributes.nlink.to_string(),
            owner: name(user_name(attributes.uid), attributes.uid),
            group: name(group_name(attributes.gid), attributes.gid),
            size,
            device,
            time: match options.time {
                // The file system does not tell.
                LsTime::Birth if time == 0 => unknown_time(options),
                _ => options.time_style.show(time, options.now_ns),
            },
        }
    }

    /// Returns what is shown of an entry whose type alone is known.
    fn unknown(entry: &LsEntry, options: &LsOptions) -> Self {
        let mode = mode_string(entry.inode.attributes.mode);
        let name = || (UNKNOWN.to_owned(), false);
        Cells {
            mode: format!("{}?????????", &mode[..1]),
            links: UNKNOWN.to_owned(),
            owner: name(),
            group: name(),
            size: UNKNOWN.to_owned(),
            device: None,
            time: unknown_time(options),
        }
    }

    fn size(&self, widths: &Widths) -> String {
        let Some((major, minor)) = &self.device else { return self.size.clone() };
        let blank = widths.size - (widths.major + 2 + widths.minor).min(widths.size);
        let (first, second) = (widths.major + blank, widths.minor);
        format!("{major:>first$}, {minor:>second$}")
    }
}

/// Returns what stands for a time that nobody knows, as wide as one that is long ago.
fn unknown_time(options: &LsOptions) -> String {
    let width = options.time_style.show(0, options.now_ns).chars().count();
    format!("{UNKNOWN:>width$}")
}

impl Widths {
    fn of(cells: &[Cells]) -> Self {
        let widest = |text: fn(&Cells) -> usize| cells.iter().map(text).max().unwrap_or(0);
        let device = |part: fn(&(String, String)) -> usize| {
            cells.iter().filter_map(|cells| cells.device.as_ref()).map(part).max()
        };
        let (major, minor) = (device(|(major, _)| major.len()), device(|(_, minor)| minor.len()));
        let bytes = widest(|cells| cells.size.len());
        let devices = major.zip(minor).map_or(0, |(major, minor)| major + 2 + minor);
        Widths {
            mode: widest(|cells| cells.mode.len()),
            links: widest(|cells| cells.links.len()),
            owner: widest(|cells| cells.owner.0.chars().count()),
            group: widest(|cells| cells.group.0.chars().count()),
            major: major.unwrap_or(0),
            minor: minor.unwrap_or(0),
            size: bytes.max(devices),
        }
    }
}
