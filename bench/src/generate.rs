//! Metadata of a made-up site, fed to the builders of an index without a tree on disk.
//!
//! Unless told otherwise 200 users with home and scratch directories and 60 projects of groups; the
//! modes, owners, names, sizes and times that such sites show: most homes are private, projects
//! belong to their group, a tenth of all subdirectories is closed further, names carry counters and
//! extensions, sizes span nine powers of ten, a file's times are equal or near each other, one file
//! in 500 has two links. Every directory has a row in the listing that holds it and a listing
//! of its own, so root sees as many of one as of the other.

use crate::measure::peak_memory_bytes;
use canopy_index::{NewSource, ShardWriter, Writer, WriterOptions};
use canopy_model::{
    Access, Approach, Attributes, ClassTable, Device, Listing, Permissions, Rows, SourcePath,
    Xattr, join_absolute,
};
use std::fmt::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How large a site is.
#[derive(Clone, Copy)]
pub struct Site {
    pub files: u64,
    pub dirs: u64,
    pub seed: u64,
    /// Users, each with a home and a scratch directory. More users make more access classes.
    pub users: u64,
    /// How many of a hundred subdirectories are closed further than what holds them.
    pub closed_percent: u64,
    /// How many of a hundred files have the extended attribute `user.ext`; if any, one file in all
    /// has `user.needle`.
    pub xattrs_percent: u64,
}

impl Site {
    fn areas(&self) -> u64 {
        2 * self.users + PROJECTS
    }
}

/// Resources that making an index took.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub entries: u64,
    pub seconds: f64,
    pub bytes: u64,
    pub shards: usize,
    pub classes: usize,
    pub peak_bytes: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} entries, {:.2} s, {:.0} entries/s, {:.1} bytes/entry, {} shards, {} classes, peak \
             {} MB",
            self.entries,
            self.seconds,
            self.entries as f64 / self.seconds,
            self.bytes as f64 / self.entries as f64,
            self.shards,
            self.classes,
            self.peak_bytes / 1_000_000,
        )
    }
}

const PROJECTS: u64 = 60;
/// Depth of a home, project or scratch directory.
const AREA_DEPTH: u32 = 2;
const SECOND_NS: i64 = 1_000_000_000;
const ROOT: &str = "/generated";

/// SplitMix64 (Steele et al., 2014): a few nanoseconds a number, so that the generator does not
/// count.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// Makes the index.
pub fn generate(index: &Path, site: Site, options: WriterOptions) -> anyhow::Result<Figures> {
    let begun = Instant::now();
    let mut writer = Writer::open(index, options)?;
    let source = writer.add_source(NewSource {
        name: None,
        root: ROOT.to_owned(),
        dev: Device(1),
        scanned_ns: 1_730_000_000 * SECOND_NS,
        attributes: directory(0o755, 0, 0, 2),
        approach: Approach::EVERYONE,
        xattrs: Vec::new(),
        scan: None,
    })?;
    let next = AtomicU64::new(0);
    let sinks = writer.shard_writers(source);
    let sinks = std::thread::scope(|scope| {
        let threads: Vec<_> = sinks
            .into_iter()
            .map(|sink| scope.spawn(|| Generator::new(site, writer.classes(), sink).run(&next)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    writer.finish_shards(sinks)?;
    let published = writer.publish()?;
    Ok(Figures {
        entries: published.entries,
        seconds: begun.elapsed().as_secs_f64(),
        bytes: published.bytes,
        shards: published.shards as usize,
        classes: published.classes as usize,
        peak_bytes: peak_memory_bytes(),
    })
}

fn directory(mode: u32, uid: u32, gid: u32, ino: u64) -> Attributes {
    let time = 1_600_000_000 * SECOND_NS + (ino % 100_000_007) as i64 * SECOND_NS + 3;
    Attributes {
        ino,
        mode: 0o040_000 | mode,
        nlink: 2,
        uid,
        gid,
        size_bytes: 4096,
        blksize_bytes: 4096,
        blocks: 8,
        atime_ns: time,
        mtime_ns: time,
        ctime_ns: time,
        btime_ns: time,
        rdev: 0,
    }
}

struct Generator<'a> {
    site: Site,
    classes: &'a ClassTable,
    sink: ShardWriter<'a>,
    random: Random,
    /// One a level, so that a parent's rows stay while its children are made.
    rows: Vec<Rows>,
    name: String,
    ino: u64,
    dirs_left: u64,
    /// Whether this area's first file was made.
    needle_done: bool,
}

/// A directory about to be made.
struct Dir<'a> {
    path: &'a str,
    depth: u32,
    attributes: Attributes,
    access: Access,
}

impl<'a> Generator<'a> {
    fn new(site: Site, classes: &'a ClassTable, sink: ShardWriter<'a>) -> Self {
        Generator {
            site,
            classes,
            sink,
            random: Random(0),
            rows: (0..12).map(|_| Rows::default()).collect(),
            name: String::new(),
            ino: 0,
            dirs_left: 0,
            needle_done: false,
        }
    }

    fn run(mut self, next: &AtomicU64) -> anyhow::Result<ShardWriter<'a>> {
        loop {
            let area = next.fetch_add(1, Ordering::Relaxed);
            match area {
                0 => self.top()?,
                area if area <= self.site.areas() => self.area(area - 1)?,
                _ => return Ok(self.sink),
            }
        }
    }

    fn area_of(&self, area: u64) -> (String, u32, u32, u32) {
        let mut random = Random(self.site.seed ^ (area << 20));
        let user = |n: u64| 10_000 + n as u32;
        let modes = [0o700, 0o700, 0o700, 0o750, 0o755];
        let mode = modes[random.below(5) as usize];
        let users = self.site.users;
        match area {
            n if n < users => {
                (format!("home/user{n:03}"), mode, user(n), 20_000 + (n % PROJECTS) as u32)
            }
            n if n < users + PROJECTS => {
                let n = n - users;
                (format!("proj/project{n:02}"), 0o770, user(n * 3 % users), 20_000 + n as u32)
            }
            n => {
                let n = n - users - PROJECTS;
                (format!("scratch/user{n:03}"), mode, user(n), 20_000 + (n % PROJECTS) as u32)
            }
        }
    }

    /// The root and the three directories in it.
    fn top(&mut self) -> anyhow::Result<()> {
        let mut rows = Rows::default();
        let tops = ["home", "proj", "scratch"];
        for (at, name) in tops.into_iter().enumerate() {
            rows.push(name, directory(0o755, 0, 0, 3 + at as u64), "");
        }
        let everyone = self.access(&Approach::EVERYONE, &directory(0o755, 0, 0, 2));
        self.push("", 0, &directory(0o755, 0, 0, 2), &everyone, &rows)?;
        for (at, top) in tops.into_iter().enumerate() {
            rows.clear();
            for area in 0..self.site.areas() {
                let (path, mode, uid, gid) = self.area_of(area);
                if let Some(name) = path.strip_prefix(top).and_then(|rest| rest.strip_prefix('/')) {
                    rows.push(name, directory(mode, uid, gid, (area + 1) << 32), "");
                }
            }
            self.push(top, 1, &directory(0o755, 0, 0, 3 + at as u64), &everyone, &rows)?;
        }
        Ok(())
    }

    fn area(&mut self, area: u64) -> anyhow::Result<()> {
        self.random = Random(self.site.seed.wrapping_mul(31) ^ (area << 32));
        self.ino = (area + 1) << 32;
        self.needle_done = false;
        self.dirs_left = (self.site.dirs / self.site.areas()).saturating_sub(1);
        let (path, mode, uid, gid) = self.area_of(area);
        let attributes = directory(mode, uid, gid, self.ino);
        let top = self.access(&Approach::EVERYONE, &directory(0o755, 0, 0, 3));
        let access = self.access(&self.below(&top, &path), &attributes);
        self.dir(&Dir { path: &path, depth: AREA_DEPTH, attributes, access })
    }

    fn access(&self, approach: &Approach, attributes: &Attributes) -> Access {
        let Attributes { mode, uid, gid, .. } = *attributes;
        self.classes.access(approach, Permissions { mode, uid, gid, acl: None, unknown: false })
    }

    fn below(&self, access: &Access, path: &str) -> Approach {
        self.classes.below(access, || join_absolute(ROOT, path))
    }

    fn dir(&mut self, dir: &Dir<'_>) -> anyhow::Result<()> {
        let level = dir.depth as usize;
        let mut rows = std::mem::take(&mut self.rows[level]);
        rows.clear();
        let mean = self.site.files / self.site.dirs;
        let files = if self.random.percent(2) {
            self.random.below(mean * 20)
        } else {
            self.random.below(mean * 8 / 5) + mean / 10
        };
        self.files(dir, files, &mut rows);
        // Counted when they are named, so that each one is made.
        let subdirs = if level < 10 { self.random.below(8).min(self.dirs_left) } else { 0 };
        self.dirs_left -= subdirs;
        let first_subdir = rows.len();
        for number in 0..subdirs {
            self.ino += 1;
            let words = ["data", "src", "run", "out", "images", "logs", "checkpoints", "v"];
            self.name.clear();
            write!(self.name, "{}{:02}", words[self.random.below(8) as usize], number)?;
            let mode = if self.random.percent(self.site.closed_percent) {
                [0o700, 0o750, 0o770][self.random.below(3) as usize]
            } else {
                0o755
            };
            rows.push(
                &self.name,
                directory(mode, dir.attributes.uid, dir.attributes.gid, self.ino),
                "",
            );
        }
        if dir.depth > AREA_DEPTH {
            self.push(dir.path, dir.depth, &dir.attributes, &dir.access, &rows)?;
        }
        for at in first_subdir..rows.len() {
            self.subdir(dir, &rows, at)?;
        }
        if dir.depth == AREA_DEPTH {
            // The rest goes into flat directories.
            while self.dirs_left > 0 {
                let name = format!("batch{}", self.dirs_left);
                self.dirs_left -= 1;
                self.ino += 1;
                let attributes = directory(0o755, dir.attributes.uid, dir.attributes.gid, self.ino);
                rows.push(&name, attributes, "");
                self.subdir(dir, &rows, rows.len() - 1)?;
            }
            self.push(dir.path, dir.depth, &dir.attributes, &dir.access, &rows)?;
        }
        self.rows[level] = rows;
        Ok(())
    }

    fn subdir(&mut self, dir: &Dir<'_>, rows: &Rows, at: usize) -> anyhow::Result<()> {
        let attributes = rows.attributes()[at];
        let path = format!("{}/{}", dir.path, rows.name(at));
        let access = self.access(&self.below(&dir.access, &path), &attributes);
        self.dir(&Dir { path: &path, depth: dir.depth + 1, attributes, access })
    }

    fn files(&mut self, dir: &Dir<'_>, count: u64, rows: &mut Rows) {
        const STEMS: [&str; 8] =
            ["run_", "checkpoint-", "img_", "part-", "", "sample_", "log.", "module_"];
        const ENDS: [&str; 8] = [".h5", ".pt", ".jpg", ".parquet", ".o", ".fastq.gz", "", ".py"];
        let kind = self.random.below(8) as usize;
        let begun =
            1_600_000_000 * SECOND_NS + self.random.below(150_000_000 * 1_000_000_000) as i64;
        let mut number = self.random.below(100_000);
        for _ in 0..count {
            number += 1 + self.random.below(3);
            self.ino += 1;
            self.name.clear();
            self.name.push_str(STEMS[kind]);
            push_number(&mut self.name, number);
            self.name.push_str(ENDS[if self.random.percent(80) { kind } else { 7 }]);
            let attributes = self.file(dir, begun);
            rows.push(&self.name, attributes, "");
            if self.site.xattrs_percent > 0 {
                self.xattrs(dir, &attributes, rows);
            }
        }
    }

    /// Gives the last row its extended attributes.
    fn xattrs(&mut self, dir: &Dir<'_>, attributes: &Attributes, rows: &mut Rows) {
        let Attributes { mode, uid, gid, .. } = *attributes;
        let permissions = Permissions { mode, uid, gid, acl: None, unknown: false };
        let audience = self.classes.value_audience(dir.access.listing, "user.ext", permissions);
        if self.random.percent(self.site.xattrs_percent) {
            let value = self.random.next().to_string();
            rows.push_xattr(Xattr { key: "user.ext", value: Some((value.as_bytes(), audience)) });
        }
        // The first file of the first area.
        if !std::mem::replace(&mut self.needle_done, true) && dir.path == "home/user000" {
            rows.push_xattr(Xattr { key: "user.needle", value: Some((b"found", audience)) });
        }
    }

    fn file(&mut self, dir: &Dir<'_>, begun: i64) -> Attributes {
        let random = &mut self.random;
        let bits = 4 + random.below(14) + random.below(14);
        let size = random.below(1 << bits) as i64;
        let btime = begun + random.below(86_400 * 1_000_000_000) as i64;
        let written_bits = 20 + random.below(20);
        let mtime = btime + random.below(1 << written_bits) as i64;
        let ctime = if random.percent(85) { mtime } else { mtime + random.below(1 << 50) as i64 };
        let atime = if random.percent(60) { btime } else { mtime + random.below(1 << 54) as i64 };
        Attributes {
            ino: self.ino,
            mode: 0o100_000 | if random.percent(85) { 0o644 } else { 0o755 },
            nlink: if random.below(500) == 0 { 2 } else { 1 },
            uid: dir.attributes.uid,
            gid: dir.attributes.gid,
            size_bytes: size,
            blksize_bytes: 4096,
            blocks: (size + 4095) / 4096 * 8,
            atime_ns: atime,
            mtime_ns: mtime,
            ctime_ns: ctime,
            btime_ns: btime,
            rdev: 0,
        }
    }

    fn push(
        &mut self,
        path: &str,
        depth: u32,
        directory: &Attributes,
        access: &Access,
        rows: &Rows,
    ) -> anyhow::Result<()> {
        Ok(self.sink.push(&Listing {
            path: SourcePath::escaped(path),
            depth,
            part: 0,
            dev: Device(1),
            directory,
            access,
            rows,
        })?)
    }
}

fn push_number(text: &mut String, number: u64) {
    let mut divisor = 100_000;
    while divisor > 0 {
        text.push(char::from(b'0' + (number / divisor % 10) as u8));
        divisor /= 10;
    }
}
