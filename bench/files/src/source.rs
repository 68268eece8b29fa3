//! A source tree that is made up: names, depths and sizes like those of a large project, and a
//! small C project that can be built. It is the same for the same random numbers.

use crate::tree::mkdir;
use anyhow::Result;
use rand::RngExt;
use rand::rngs::StdRng;
use rustix::fd::OwnedFd;
use std::collections::HashSet;
use std::fmt::Write;

/// Files of the C project beside the one that calls them all.
pub const UNITS: usize = 200;

const FILES_IN_DIRECTORY: usize = 18;
const DEPTH: usize = 7;

const TOPICS: &[&str] = &[
    "arch", "block", "cache", "client", "common", "config", "core", "crypto", "device", "docs",
    "driver", "format", "fs", "hash", "include", "inode", "kernel", "lib", "list", "lock",
    "memory", "net", "page", "parser", "queue", "scripts", "server", "signal", "socket", "string",
    "table", "tests", "thread", "timer", "tools", "tree",
];

/// How many files of a hundred have each ending.
const ENDINGS: &[(usize, &str)] = &[
    (42, "c"),
    (30, "h"),
    (6, "txt"),
    (5, "py"),
    (4, "sh"),
    (4, "yaml"),
    (3, "S"),
    (3, "md"),
    (2, "json"),
    (1, "svg"),
];

/// Half of the files are smaller.
const MEDIAN_BYTES: f64 = 5000.0;
const MOST_BYTES: usize = 400_000;

pub struct Source {
    directories: Vec<String>,
    /// Path and size.
    files: Vec<(String, usize)>,
    text: Vec<u8>,
    units: usize,
}

impl Source {
    /// Makes up so many files, and a C project of so many units.
    pub fn new(files: usize, units: usize, mut random: StdRng) -> Self {
        let mut directories = vec![String::from("source")];
        let mut taken = HashSet::new();
        while directories.len() < files.div_ceil(FILES_IN_DIRECTORY) {
            let parent = &directories[random.random_range(0..directories.len())];
            let path = format!("{parent}/{}", TOPICS[random.random_range(0..TOPICS.len())]);
            if path.split('/').count() <= DEPTH && taken.insert(path.clone()) {
                directories.push(path);
            }
        }
        let files = Vec::from_iter((0..files).map(|at| {
            // Some directories have far more files than others.
            let place = random.random::<f64>() * random.random::<f64>();
            let parent = &directories[(place * directories.len() as f64) as usize];
            (format!("{parent}/{}", name(at, &mut random)), size_bytes(&mut random))
        }));
        let text = text(&mut random);
        Source { directories, files, text, units }
    }

    /// Writes all of it below `source`.
    pub fn write(&self, root: &OwnedFd) -> Result<()> {
        self.directories.iter().try_for_each(|path| mkdir(root, path))?;
        for (at, (path, size_bytes)) in self.files.iter().enumerate() {
            let start = at * 97 % (self.text.len() - size_bytes);
            write(root, path, &self.text[start..start + size_bytes])?;
        }
        mkdir(root, "source/project")?;
        write(root, "source/project/project.h", header(self.units).as_bytes())?;
        for at in 0..self.units {
            write(root, &format!("source/project/unit{at:03}.c"), unit(at).as_bytes())?;
        }
        write(root, "source/project/main.c", main_file(self.units).as_bytes())
    }
}

fn write(root: &OwnedFd, path: &str, mut bytes: &[u8]) -> Result<()> {
    let file = crate::tree::create(root, path)?;
    while !bytes.is_empty() {
        bytes = &bytes[rustix::io::write(&file, bytes)?..];
    }
    Ok(())
}

fn name(at: usize, random: &mut StdRng) -> String {
    let mut topic = || TOPICS[random.random_range(0..TOPICS.len())];
    let stem = format!("{}_{}", topic(), topic());
    let mut left = random.random_range(0..100);
    let ending = ENDINGS.iter().find(|(share, _)| {
        let is_it = left < *share;
        left = left.saturating_sub(*share);
        is_it
    });
    format!("{stem}{at}.{}", ending.map_or("c", |(_, ending)| ending))
}

/// Sizes are log-normal, as those of source files nearly are.
fn size_bytes(random: &mut StdRng) -> usize {
    let normal = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
    ((MEDIAN_BYTES * (normal * 1.1).exp()) as usize).min(MOST_BYTES)
}

fn text(random: &mut StdRng) -> Vec<u8> {
    let mut text = String::new();
    while text.len() < 2 * MOST_BYTES {
        let topic = TOPICS[random.random_range(0..TOPICS.len())];
        let end = if random.random_bool(0.1) { ";\n" } else { " " };
        let _ = write!(text, "{topic}{}{end}", random.random_range(0..1000u32));
    }
    text.into_bytes()
}

fn header(units: usize) -> String {
    let mut text = String::from("#pragma once\n#include <stdio.h>\n#include <string.h>\n");
    for at in 0..units {
        let _ = writeln!(text, "int unit{at:03}(int value);");
    }
    text
}

fn unit(at: usize) -> String {
    let mut text = String::from("#include \"project.h\"\n");
    for part in 0..20 {
        let factor = at * 20 + part + 3;
        let _ = writeln!(
            text,
            "static int part{part}(int value) {{\n    char text[64];\n    \
             for (int i = 0; i < {part} + 3; i++)\n        value = value * {factor} + i;\n    \
             snprintf(text, sizeof text, \"%d\", value);\n    return (int)strlen(text);\n}}"
        );
    }
    let _ = writeln!(text, "int unit{at:03}(int value) {{");
    for part in 0..20 {
        let _ = writeln!(text, "    value += part{part}(value);");
    }
    text + "    return value;\n}\n"
}

fn main_file(units: usize) -> String {
    let mut text = String::from("#include \"project.h\"\nint main(void) {\n    int value = 1;\n");
    for at in 0..units {
        let _ = writeln!(text, "    value = unit{at:03}(value);");
    }
    text + "    return printf(\"%d\\n\", value) < 0;\n}\n"
}
