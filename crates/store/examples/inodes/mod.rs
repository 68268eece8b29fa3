//! Records as a file system has them: names like those of real files, inodes of 88 bytes.

use canopy_store::{Column, Key, Layout, Op, RecordRef};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const SECOND_NS: i64 = 1_000_000_000;

/// A record's key, and where its value begins.
pub struct Entry {
    pub key: Key,
    start: usize,
}

pub struct Data {
    pub layout: Layout,
    pub entries: Vec<Entry>,
    values: Vec<u8>,
}

/// The columns of an inode: name, bytes, and the column that it is near to.
pub const COLUMNS: [(&str, u8, Option<u8>); 15] = [
    ("mode", 4, None),
    ("uid", 4, None),
    ("gid", 4, None),
    ("nlink", 4, None),
    ("size", 8, None),
    ("blocks", 8, None),
    ("mtime_ns", 8, None),
    ("ctime_ns", 8, Some(6)),
    ("atime_ns", 8, Some(6)),
    ("btime_ns", 8, Some(6)),
    ("file_id", 8, None),
    ("generation", 4, None),
    ("rdev", 4, None),
    ("flags", 4, None),
    ("blksize", 4, None),
];

fn name(random: &mut StdRng, style: u32, at: u32) -> String {
    let number: u32 = random.random_range(0..1_000_000);
    match style {
        0 => format!(
            "IMG_2024{:02}{:02}_{:06}.jpg",
            1 + number % 12,
            1 + number / 12 % 28,
            random.random_range(0..240_000)
        ),
        1 => format!("part-{at:05}.parquet"),
        2 => format!("lib{}.so.{}", word(random), number % 9),
        3 => format!("{}_{}.py", word(random), word(random)),
        4 => format!("sample_{number:06}_R{}.fastq.gz", 1 + at % 2),
        _ => format!("{}.{}", word(random), ["c", "h", "o", "txt", "md"][number as usize % 5]),
    }
}

fn word(random: &mut StdRng) -> String {
    const SYLLABLES: [&str; 16] = [
        "con", "fi", "gu", "test", "da", "ta", "in", "it", "pro", "cess", "net", "io", "util",
        "map", "ser", "ver",
    ];
    let count = random.random_range(2..5);
    (0..count).map(|_| SYLLABLES[random.random_range(0..SYLLABLES.len())]).collect()
}

fn inode(random: &mut StdRng, owner: u32, begin_ns: i64, file_id: u64, values: &mut Vec<u8>) {
    let size = (random.random_range(0.0..22.0f64)).exp() as u64 % (1 << 31);
    let mtime_ns = begin_ns + random.random_range(0..90 * 86_400 * SECOND_NS);
    let late = |random: &mut StdRng| random.random_range(0..5_000_000i64);
    let mode: u32 =
        [0o100_644, 0o100_644, 0o100_644, 0o100_755, 0o40_755][random.random_range(0..5)];
    for number in [mode, owner, owner / 8, 1] {
        values.extend(number.to_le_bytes());
    }
    values.extend(size.to_le_bytes());
    values.extend((size.div_ceil(4096) * 8).to_le_bytes());
    let atime_ns = match random.random_range(0..10) {
        0 => mtime_ns + random.random_range(0..30 * 86_400 * SECOND_NS),
        _ => mtime_ns + late(random),
    };
    let times = [mtime_ns, mtime_ns + late(random), atime_ns, mtime_ns - late(random)];
    times.iter().for_each(|time| values.extend(time.to_le_bytes()));
    values.extend(file_id.to_le_bytes());
    for number in [random.random_range(0..1u32 << 31), 0, 0, 4096] {
        values.extend(number.to_le_bytes());
    }
}

/// Returns so many records in order.
pub fn data(records: usize) -> Data {
    let mut random = StdRng::seed_from_u64(7);
    let (mut entries, mut values) = (Vec::with_capacity(records), Vec::new());
    let mut directory = 1000;
    while entries.len() < records {
        directory += random.random_range(1..50);
        let count = (random.random_range(3.0..8.5f64)).exp() as u32;
        let (style, owner) = (random.random_range(0..6), 1000 + random.random_range(0..40) * 8);
        let begin_ns = (1_600_000_000 + random.random_range(0..100_000_000)) * SECOND_NS;
        for at in 0..count {
            let key = Key::named(directory, name(&mut random, style, at).as_bytes());
            let start = values.len();
            inode(&mut random, owner, begin_ns, directory * 4096 + u64::from(at), &mut values);
            entries.push(Entry { key, start });
        }
    }
    entries.sort_by(|one, other| one.key.cmp(&other.key));
    entries.dedup_by(|one, other| one.key == other.key);
    entries.truncate(records);
    let columns = COLUMNS.map(|(name, width, near)| Column { name: name.into(), width, near });
    Data { layout: Layout { columns: columns.into() }, entries, values }
}

impl Data {
    /// Returns a record.
    pub fn at(&self, at: usize) -> RecordRef<'_> {
        let Entry { key, start } = &self.entries[at];
        let value = &self.values[*start..start + self.layout.width()];
        RecordRef { key: key.as_ref(), op: Op::Put, value }
    }
}
