//! `canopy info --prometheus`: the state of an index for node_exporter's textfile collector.

use crate::new_files::{Directory, NewFiles, Old};
use crate::staleness;
use canopy_index::Index;
use canopy_ingest::{check_outside, count};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// Writes the numbers to a file, which is replaced as a whole.
pub(super) fn write(index: &Index, file: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(!file.is_dir(), "--prometheus names a file; {} is a directory", file.display());
    check_outside(file, index.path())?;
    let text = metrics(index)?;
    let files = NewFiles::new()?;
    let (directory, name) = Directory::of(file)?;
    files.create(&directory, name, Old::Replaced)?.write_all(text.as_bytes())?;
    files.publish()
}

/// A metric of each source: its name, help text and value.
type OfSource<'a> = (&'a str, &'a str, &'a dyn Fn(&Numbers) -> f64);

/// The numbers of a source.
struct Numbers {
    /// The root, as the value of a label.
    label: String,
    files: i64,
    directories: i64,
    bytes: u64,
    last_ns: i64,
    is_failing: bool,
    is_incomplete: bool,
}

fn metrics(index: &Index) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, values: &[(String, f64)]| {
        let _ = writeln!(text, "# HELP canopy_index_{name} {help}");
        let _ = writeln!(text, "# TYPE canopy_index_{name} gauge");
        for (labels, value) in values {
            let _ = writeln!(text, "canopy_index_{name}{labels} {value}");
        }
    };
    let one = |value: f64| [(String::new(), value)];
    gauge("generation", "The current generation.", &one(index.generation().0 as f64));
    let published_s = index.published_ns() as f64 / 1e9;
    gauge("published_seconds", "Time of its publication, since 1970.", &one(published_s));
    gauge("kept_generations", "Older generations that are kept.", &one(index.kept().len() as f64));
    let sources = numbers(index)?;
    let of_sources: [OfSource<'_>; 6] = [
        ("files", "Entries that are not directories.", &|it| it.files as f64),
        ("directories", "Directories, the root among them.", &|it| it.directories as f64),
        ("bytes", "Size of the files of the index.", &|it| it.bytes as f64),
        (
            "indexed_seconds",
            "Time of the last scan, update or check that found no change, since 1970.",
            &|it| it.last_ns as f64 / 1e9,
        ),
        ("failing", "1 if the last run could not index it.", &|it| f64::from(it.is_failing)),
        ("incomplete", "1 if the index lacks entries of the source.", &|it| {
            f64::from(it.is_incomplete)
        }),
    ];
    for (name, help, value) in of_sources {
        let label = |it: &Numbers| (format!("{{source=\"{}\"}}", it.label), value(it));
        gauge(name, help, &sources.iter().map(label).collect::<Vec<_>>());
    }
    Ok(text)
}

fn numbers(index: &Index) -> anyhow::Result<Vec<Numbers>> {
    let failures = index.failures()?;
    let mut all = Vec::new();
    // Roots that differ only in bytes that are not UTF-8 differ in their escapes.
    let label_of =
        |root: &str| root.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    for source in index.sources() {
        let held = count(index, Some(source.id))?;
        let fails = |published: bool| {
            failures.iter().any(|it| it.root == source.root && it.published == published)
        };
        all.push(Numbers {
            label: label_of(&source.root),
            files: held.files,
            directories: held.directories,
            bytes: held.bytes,
            last_ns: staleness::last_ns(index, source),
            is_failing: fails(false),
            is_incomplete: fails(true),
        });
    }
    // Sources that were never indexed.
    for failure in failures {
        if index.sources().iter().all(|source| source.root != failure.root) {
            all.push(Numbers {
                label: label_of(&failure.root),
                files: 0,
                directories: 0,
                bytes: 0,
                last_ns: 0,
                is_failing: true,
                is_incomplete: false,
            });
        }
    }
    Ok(all)
}
