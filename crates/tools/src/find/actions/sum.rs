//! `--sum`: how many entries there are, the space that they take, and how much of it would be free
//! if they were deleted.
//!
//! The space of an inode with several hard links is free only when all of them are deleted. So it
//! counts as free if as many links were met as the inode has.

use crate::json::text_beside;
use canopy_model::{Attributes, Device, FileType};
use canopy_text::SizeForm;
use rustc_hash::FxHashMap;
use std::io::{self, Write};

/// A sum of entries.
#[derive(Default)]
pub(crate) struct Sum {
    entries: u64,
    bytes: i128,
    /// Blocks of 512 bytes of what has one link.
    blocks: i128,
    /// Files with several links, by device and inode.
    linked: FxHashMap<(Device, u64), Linked>,
}

/// An inode with several links.
#[derive(Clone, Copy)]
struct Linked {
    met: u64,
    links: u64,
    blocks: i64,
}

/// The result of a sum.
struct Total {
    disk_bytes: i128,
    kept_bytes: i128,
    kept_files: u64,
}

impl Sum {
    /// Adds an entry on a device.
    pub(crate) fn add(&mut self, attributes: &Attributes, dev: Device) {
        self.entries += 1;
        self.bytes += i128::from(attributes.size_bytes);
        // The links of a directory are those of the directories in it.
        if attributes.nlink < 2 || attributes.file_type() == FileType::Directory {
            self.blocks += i128::from(attributes.blocks);
            return;
        }
        let (links, blocks) = (attributes.nlink.into(), attributes.blocks);
        let inode = self.linked.entry((dev, attributes.ino));
        inode.or_insert(Linked { met: 0, links, blocks }).met += 1;
    }

    /// Adds another sum.
    pub(crate) fn merge(&mut self, other: Sum) {
        self.entries += other.entries;
        self.bytes += other.bytes;
        self.blocks += other.blocks;
        for (id, linked) in other.linked {
            let known = self.linked.entry(id).or_insert(Linked { met: 0, ..linked });
            known.met += linked.met;
        }
    }

    fn total(&self) -> Total {
        let of_blocks = |blocks: i128| blocks * 512;
        let mut total = Total { disk_bytes: of_blocks(self.blocks), kept_bytes: 0, kept_files: 0 };
        for linked in self.linked.values() {
            let bytes = of_blocks(linked.blocks.into());
            total.disk_bytes += bytes;
            if linked.met < linked.links {
                total.kept_bytes += bytes;
                total.kept_files += 1;
            }
        }
        total
    }

    /// Prints it, as JSON if that is asked for.
    pub(crate) fn print(&self, as_json: bool, output: &mut dyn Write) -> io::Result<()> {
        let Total { disk_bytes, kept_bytes, kept_files } = self.total();
        let (entries, bytes, freed_bytes) = (self.entries, self.bytes, disk_bytes - kept_bytes);
        if as_json {
            let numbers = [
                ("entries", i128::from(entries)),
                ("bytes", bytes),
                ("disk_bytes", disk_bytes),
                ("freed_bytes", freed_bytes),
                ("files_linked_elsewhere", i128::from(kept_files)),
            ];
            let members = numbers.iter().map(|(name, number)| {
                let text = text_beside(name, &number.to_string());
                let text = text.map(|(name, text)| format!("\"{name}\":\"{text}\","));
                format!("{}\"{name}\":{number}", text.unwrap_or_default())
            });
            return writeln!(output, "{{{}}}", Vec::from_iter(members).join(","));
        }
        let (noun, verb) = if entries == 1 { ("entry", "takes") } else { ("entries", "take") };
        let [taken, freed, kept] = [disk_bytes, freed_bytes, kept_bytes].map(human);
        write!(output, "{entries} {noun} {verb} {taken}; deleting all of them frees {freed}")?;
        match kept_files {
            0 => {}
            1 => write!(output, " ({kept} stays in a file with a hard link elsewhere)")?,
            files => write!(output, " ({kept} stays in {files} files with hard links elsewhere)")?,
        }
        writeln!(output)
    }
}

fn human(bytes: i128) -> String {
    SizeForm::HUMAN.show(i64::try_from(bytes).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_free_when_all_links_are_met() {
        let entry = |ino, nlink, mode| Attributes {
            ino,
            nlink,
            mode,
            size_bytes: 100,
            blocks: 8,
            ..Attributes::default()
        };
        let (file, dir) = (0o100_644, 0o040_755);
        let (mut sum, mut other) = (Sum::default(), Sum::default());
        sum.add(&entry(1, 1, file), Device(5));
        sum.add(&entry(2, 2, file), Device(5));
        sum.add(&entry(3, 2, file), Device(5));
        other.add(&entry(2, 2, file), Device(5));
        // Another device.
        other.add(&entry(3, 2, file), Device(6));
        other.add(&entry(4, 9, dir), Device(5));
        sum.merge(other);
        let mut shown = Vec::new();
        sum.print(false, &mut shown).unwrap();
        sum.print(true, &mut shown).unwrap();
        let expected = "6 entries take 20K; deleting all of them frees 12K (8.0K stays in 2 files \
             with hard links elsewhere)\n{\"entries\":6,\"bytes\":600,\"disk_bytes\":20480,\
             \"freed_bytes\":12288,\"files_linked_elsewhere\":2}\n";
        assert_eq!(String::from_utf8(shown).unwrap(), expected);
        // As elsewhere, a text stands beside what floating point does not hold.
        let huge = Sum { bytes: 1 << 60, ..Sum::default() };
        let mut shown = Vec::new();
        huge.print(true, &mut shown).unwrap();
        let text = "\"bytes_text\":\"1152921504606846976\",\"bytes\":1152921504606846976,";
        assert!(String::from_utf8(shown).unwrap().contains(text));
    }
}
