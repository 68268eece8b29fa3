//! Building both sides from the same site, and what that takes.

use super::{Bench, root};
use crate::measure::median;
use crate::process::{Line, drop_caches, space};
use anyhow::Context;
use std::fs;

/// Most entries that GUFI's rollup may put into one directory; by its paper the best choice.
const ROLLUP_LIMIT: &str = "250000";

/// Indexes of further runs of the import.
const OTHER_IMPORTS: [&str; 2] = ["imported-1", "imported-2"];

impl Bench<'_> {
    /// Builds all indexes and prints what that took.
    pub(super) fn build(&self) -> anyhow::Result<()> {
        let threads = self.arguments.threads.to_string();
        println!("| build | s | peak MB | MB on disk | files |\n| --- | --- | --- | --- | --- |");
        let made = self.own(&[
            "generate",
            &self.path("canopy"),
            "--files",
            &self.files,
            "--dirs",
            &self.dirs,
            "--xattrs",
            &self.xattrs,
            "--threads",
            &threads,
        ])?;
        self.print_build("canopy, from the generator", "canopy", &[made])?;
        let export =
            ["export", "--format", "gufi-trace", "--parts", &threads, "-o", &self.path("traces")];
        let export = self.canopy(&root(), &export.map(str::to_owned));
        self.print_build("canopy export --format gufi-trace", "traces", &[export])?;
        let mut traces: Vec<String> = fs::read_dir(self.path("traces"))?
            .map(|entry| Ok(entry?.path().display().to_string()))
            .collect::<anyhow::Result<_>>()?;
        traces.sort();
        self.import(&traces)?;
        let gufi = self.path("gufi");
        let mut words = vec!["-d", "x"];
        words.extend(traces.iter().map(String::as_str));
        words.push(&gufi);
        self.print_build(
            "gufi_trace2index",
            "gufi",
            &[self.gufi("gufi_trace2index", &root(), &words)],
        )?;
        // Not earlier: ext4 takes long to make files where some were just removed.
        for other in OTHER_IMPORTS {
            fs::remove_dir_all(self.path(other))?;
        }
        let wrong = self.repair()?;
        println!(
            "\n{wrong} directories of GUFI's index had another mode or owner than the traces say; \
             set right.\n"
        );
        let copy = ["cp", "-a", &gufi, &self.path("rolled")].map(str::to_owned).into();
        Line { words: copy, user: root() }.seconds()?;
        let tree = self.path("rolled/generated");
        let words = ["--limit", ROLLUP_LIMIT, &tree];
        println!("| build | s | peak MB | MB on disk | files |\n| --- | --- | --- | --- | --- |");
        self.print_build(
            "gufi_rollup of a copy",
            "rolled",
            &[self.gufi("gufi_rollup", &root(), &words)],
        )
    }

    /// Gives directories of GUFI's index the modes and owners of the source, and returns how many
    /// had others.
    ///
    /// gufi_trace2index makes missing parents with the mode and owner of the child (`mkpath`), at
    /// the same time as another thread makes the parent itself, and so users may see what they
    /// must not. The answers of both sides could not be compared then.
    fn repair(&self) -> anyhow::Result<u64> {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
        let words =
            ["find", "/generated", "-type", "d", "-printf", "%m %U %G %p\\n"].map(str::to_owned);
        let mut wrong = 0;
        for line in self.canopy(&root(), &words).answer()?.lines() {
            let mut fields = line.splitn(4, ' ');
            let mut next =
                || fields.next().with_context(|| format!("{line}: not a directory's line"));
            let mode = u32::from_str_radix(next()?, 8)?;
            let (uid, gid) = (next()?.parse()?, next()?.parse()?);
            let path = self.path(&format!("gufi{}", next()?));
            let metadata =
                fs::symlink_metadata(&path).with_context(|| format!("{path} is missing"))?;
            if (metadata.mode() & 0o7777, metadata.uid(), metadata.gid()) != (mode, uid, gid) {
                wrong += 1;
                chown(&path, Some(uid), Some(gid))?;
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            }
        }
        Ok(wrong)
    }

    /// Imports the same traces, if the command can do that.
    fn import(&self, traces: &[String]) -> anyhow::Result<()> {
        let help = self.canopy(&root(), &["import", "--help"].map(str::to_owned));
        if help.seconds().is_err() {
            println!("| canopy import | this command has no import |  |  |  |");
            return Ok(());
        }
        let import = |index: &str| {
            let mut words = vec![
                self.arguments.canopy.display().to_string(),
                "--index".to_owned(),
                self.path(index),
            ];
            words.extend(
                ["import", "--root", "/generated", "--format", "gufi-trace", "--threads"]
                    .map(str::to_owned),
            );
            words.push(self.arguments.threads.to_string());
            words.extend(traces.iter().cloned());
            Line { words, user: root() }
        };
        let lines: Vec<Line> = OTHER_IMPORTS.into_iter().chain(["imported"]).map(import).collect();
        self.print_build("canopy import of the same traces, median of 3", "imported", &lines)
    }

    /// Runs the commands, each with cold caches until all is on disk, and prints what they took in
    /// the median.
    fn print_build(&self, what: &str, result: &str, lines: &[Line]) -> anyhow::Result<()> {
        let (mut seconds, mut peaks) = (Vec::new(), Vec::new());
        for line in lines {
            drop_caches()?;
            let cost = line.cost()?;
            let begun = std::time::Instant::now();
            rustix::fs::sync();
            seconds.push(cost.seconds + begun.elapsed().as_secs_f64());
            peaks.push(cost.peak_bytes as f64 / 1e6);
        }
        let (bytes, files) = space(&self.directory.join(result))?;
        let (seconds, peak_mb) = (median(seconds), median(peaks));
        println!("| {what} | {seconds:.2} | {peak_mb:.0} | {:.1} | {files} |", bytes as f64 / 1e6);
        Ok(())
    }
}
