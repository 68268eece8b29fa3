//! A report as titles, facts, tables and bars: what text and the page show alike.

use super::document::*;
use super::sections::Section;
use super::wording::{date, grouped, owner_name, user, visible};
use canopy_model::{Count, NUMBERED};
use canopy_text::human_size;
use canopy_text::mode_string;

/// A section to show.
pub(super) struct View {
    pub(super) section: Section,
    /// What it counts, where that needs to be said.
    pub(super) note: Option<&'static str>,
    pub(super) blocks: Vec<Block>,
}

/// A piece of a section.
pub(super) enum Block {
    /// Values with their names.
    Facts(Vec<(String, &'static str)>),
    Table(Table),
}

/// Rows under a heading.
#[derive(Default)]
pub(super) struct Table {
    pub(super) title: Option<String>,
    /// Titles, and whether a column is of numbers. The last one is of names.
    pub(super) columns: Vec<(&'static str, bool)>,
    pub(super) rows: Vec<Vec<String>>,
    /// For each row, what part of the whole it is; empty if there are no bars.
    pub(super) shares: Vec<f64>,
}

/// The sections of a report, in order.
pub(super) fn views(report: &Report) -> Vec<View> {
    let mut views: Vec<View> =
        Section::ALL.into_iter().filter_map(|section| view(section, &report.answers)).collect();
    // Where no rows were asked for, an empty table would say that there are none.
    let unasked = |block: &Block| matches!(block, Block::Table(table) if table.rows.is_empty());
    views
        .iter_mut()
        .filter(|_| report.top == 0)
        .for_each(|view| view.blocks.retain(|block| !unasked(block)));
    views
}

fn view(section: Section, answers: &Answers) -> Option<View> {
    let (note, blocks) = match section {
        Section::Totals => (None, totals(answers.totals.as_ref()?)),
        Section::Users => (Some(EACH_NAME), owners("user", answers.users.as_ref()?)),
        Section::Groups => (Some(EACH_NAME), owners("group", answers.groups.as_ref()?)),
        Section::Types => (None, types(answers.types.as_ref()?)),
        Section::Extensions => (Some(EACH_NAME), extensions(answers.extensions.as_ref()?)),
        Section::Sizes => (
            Some("Of entries that are not directories; bars by number."),
            sizes(answers.sizes.as_ref()?),
        ),
        Section::Ages => (
            Some(
                "By calendar month (UTC) before the scan, of entries that are not directories; bars by bytes.",
            ),
            ages(answers.ages.as_ref()?),
        ),
        Section::Largest => (None, items(answers.largest.as_ref()?, None)),
        Section::Newest => (None, items(answers.newest.as_ref()?, None)),
        Section::Oldest => (None, items(answers.oldest.as_ref()?, None)),
        Section::Used => (
            Some("By time of last access, as far as the file system keeps it."),
            accessed(answers.used.as_ref()?),
        ),
        Section::Unused => (
            Some("By time of last access, as far as the file system keeps it."),
            accessed(answers.unused.as_ref()?),
        ),
        Section::Trees => {
            (Some("As du; hard links count once in each."), trees(answers.trees.as_ref()?))
        }
        Section::Outliers => (
            Some(
                "Space is 3 or more standard deviations from the mean of the directories beside it.",
            ),
            outliers(answers.outliers.as_ref()?),
        ),
        Section::Directories => (
            Some("Without what is in directories below."),
            directories(answers.directories.as_ref()?),
        ),
        Section::Deepest => {
            (Some("Levels below the path asked about."), deepest(answers.deepest.as_ref()?))
        }
        Section::Empty => (None, empty(answers.empty.as_ref()?)),
        Section::Duplicates => (
            Some(
                "Files of the same size, modification time and name: compare their contents before removing any.",
            ),
            duplicates(answers.duplicates.as_ref()?),
        ),
        Section::Links => (None, links(answers.links.as_ref()?)),
        Section::Symlinks => (
            Some("As far as the index tells where they lead."),
            symlinks(answers.symlinks.as_ref()?),
        ),
        Section::Sparse => (None, sparse(answers.sparse.as_ref()?)),
        Section::Permissions => (None, permissions(answers.permissions.as_ref()?)),
        Section::Owners => (
            Some("Ids that this system has no name for, of entries that are not directories."),
            nameless(answers.owners.as_ref()?),
        ),
        Section::Names => (None, odd_names(answers.names.as_ref()?)),
        Section::Future => (
            Some("Regular files whose modification time lies after the scan began."),
            future(answers.future.as_ref()?),
        ),
    };
    Some(View { section, note, blocks })
}

const EACH_NAME: &str = "Each name counts, hard links as often as they occur; without directories.";

fn facts(facts: &[(String, &'static str)]) -> Block {
    Block::Facts(facts.to_vec())
}

fn share(part: i64, whole: i64) -> f64 {
    if whole > 0 { (part as f64 / whole as f64).clamp(0.0, 1.0) } else { 0.0 }
}

fn table(columns: &[(&'static str, bool)], rows: Vec<Vec<String>>) -> Table {
    Table { columns: columns.to_vec(), rows, ..Table::default() }
}

fn totals(totals: &Totals) -> Vec<Block> {
    vec![facts(&[
        (human_size(totals.disk_bytes), "on disk (du)"),
        (human_size(totals.bytes), "of sizes"),
        (grouped(totals.entries), "entries"),
        (grouped(totals.files), "files"),
        (grouped(totals.directories), "directories"),
        (grouped(totals.symlinks), "symbolic links"),
        (grouped(totals.others), "others"),
        (grouped(totals.inodes), "inodes (du --inodes)"),
        (grouped(totals.zero_byte_files), "files of no bytes"),
        (grouped(totals.with_xattrs), "with extended attributes"),
    ])]
}

fn owners(word: &'static str, breakdown: &Breakdown<OwnerUsage>) -> Vec<Block> {
    let cells = |usage: &Usage, name: String| {
        vec![human_size(usage.disk_bytes), human_size(usage.bytes), grouped(usage.entries), name]
    };
    let whole: i64 = breakdown.rows.iter().map(|row| row.usage.disk_bytes).sum::<i64>()
        + breakdown.rest.disk_bytes;
    let mut rows: Vec<_> =
        breakdown.rows.iter().map(|row| cells(&row.usage, owner_name(&row.owner))).collect();
    let mut shares: Vec<f64> =
        breakdown.rows.iter().map(|row| share(row.usage.disk_bytes, whole)).collect();
    if breakdown.others > 0 {
        rows.push(cells(&breakdown.rest, format!("({} others)", grouped(breakdown.others as i64))));
        shares.push(share(breakdown.rest.disk_bytes, whole));
    }
    let columns = [("on disk", true), ("sizes", true), ("entries", true), (word, false)];
    vec![Block::Table(Table { shares, ..table(&columns, rows) })]
}

fn types(types: &[TypeCount]) -> Vec<Block> {
    let whole: i64 = types.iter().map(|row| row.entries).sum();
    let rows = types.iter().map(|row| vec![grouped(row.entries), row.name.to_owned()]).collect();
    let shares = types.iter().map(|row| share(row.entries, whole)).collect();
    vec![Block::Table(Table { shares, ..table(&[("entries", true), ("type", false)], rows) })]
}

fn extensions(breakdown: &Breakdown<ExtensionUsage>) -> Vec<Block> {
    let cells = |bytes, entries, name| vec![human_size(bytes), grouped(entries), name];
    let whole: i64 =
        breakdown.rows.iter().map(|row| row.count.bytes).sum::<i64>() + breakdown.rest.bytes;
    let name = |extension: &str| match extension {
        "" => "(none)".to_owned(),
        NUMBERED => "(number)".to_owned(),
        extension => format!(".{}", visible(extension)),
    };
    let counts = breakdown
        .rows
        .iter()
        .map(|row| cells(row.count.bytes, row.count.entries, name(&row.extension)));
    let mut rows: Vec<_> = counts.collect();
    let mut shares: Vec<f64> =
        breakdown.rows.iter().map(|row| share(row.count.bytes, whole)).collect();
    if breakdown.others > 0 {
        let others = format!("({} others)", grouped(breakdown.others as i64));
        rows.push(cells(breakdown.rest.bytes, breakdown.rest.entries, others));
        shares.push(share(breakdown.rest.bytes, whole));
    }
    let columns = [("sizes", true), ("entries", true), ("extension", false)];
    vec![Block::Table(Table { shares, ..table(&columns, rows) })]
}

fn sizes(sizes: &Sizes) -> Vec<Block> {
    let known = facts(&[
        (human_size(sizes.mean_bytes.round() as i64), "mean"),
        (human_size(sizes.median_bytes.round() as i64), "median"),
        (human_size(sizes.stdev_bytes.round() as i64), "standard deviation"),
        (human_size(sizes.max_bytes), "largest"),
    ]);
    let name = |class: &SizeClass| match class.from_bytes {
        0 => "0".to_owned(),
        1 => "1".to_owned(),
        from => format!("{} to < {}", human_size(from), human_size(class.to_bytes)),
    };
    let rows = sizes.classes.iter().map(|class| {
        vec![grouped(class.count.entries), human_size(class.count.bytes), name(class)]
    });
    let most = sizes.classes.iter().map(|class| class.count.entries).max().unwrap_or(0);
    let shares = sizes.classes.iter().map(|class| share(class.count.entries, most)).collect();
    let columns = [("entries", true), ("sizes", true), ("bytes each", false)];
    vec![known, Block::Table(Table { shares, ..table(&columns, rows.collect()) })]
}

fn ages(ages: &Ages) -> Vec<Block> {
    let block = |title: &str, classes: &[AgeClass]| {
        let most = classes.iter().map(|class| class.count.bytes).max().unwrap_or(0);
        let cells = |Count { entries, bytes }: Count, label: &str| {
            vec![human_size(bytes), grouped(entries), label.to_owned()]
        };
        let rows = classes.iter().map(|class| cells(class.count, class.label)).collect();
        let shares = classes.iter().map(|class| share(class.count.bytes, most)).collect();
        let columns = [("sizes", true), ("entries", true), ("age", false)];
        Block::Table(Table { title: Some(title.to_owned()), shares, ..table(&columns, rows) })
    };
    vec![
        block("Since the last modification", &ages.modified),
        block("Since the last access", &ages.accessed),
    ]
}

fn items(items: &[Item], title: Option<String>) -> Vec<Block> {
    let cells = |item: &Item| {
        vec![
            human_size(item.bytes),
            human_size(item.disk_bytes),
            date(item.mtime_ns),
            user(item),
            visible(&item.path),
        ]
    };
    let columns =
        [("size", true), ("on disk", true), ("modified", false), ("user", false), ("path", false)];
    vec![Block::Table(Table { title, ..table(&columns, items.iter().map(cells).collect()) })]
}

fn accessed(items: &[Item]) -> Vec<Block> {
    let cells = |item: &Item| {
        vec![human_size(item.bytes), date(item.atime_ns), user(item), visible(&item.path)]
    };
    let columns = [("size", true), ("accessed", false), ("user", false), ("path", false)];
    vec![Block::Table(table(&columns, items.iter().map(cells).collect()))]
}

fn trees(trees: &[Tree]) -> Vec<Block> {
    let cells = |tree: &Tree| {
        vec![
            human_size(tree.disk_bytes),
            human_size(tree.bytes),
            grouped(tree.inodes),
            visible(&tree.path),
        ]
    };
    let most = trees.first().map_or(0, |tree| tree.disk_bytes);
    let shares = trees.iter().map(|tree| share(tree.disk_bytes, most)).collect();
    let columns = [("on disk", true), ("sizes", true), ("inodes", true), ("path", false)];
    vec![Block::Table(Table { shares, ..table(&columns, trees.iter().map(cells).collect()) })]
}

fn outliers(outliers: &[Outlier]) -> Vec<Block> {
    let cells = |row: &Outlier| {
        vec![
            human_size(row.tree.disk_bytes),
            human_size(row.mean_disk_bytes.round() as i64),
            format!("{:+.1}", row.deviations),
            grouped(row.siblings - 1),
            visible(&row.tree.path),
        ]
    };
    let columns = [
        ("on disk", true),
        ("mean", true),
        ("deviations", true),
        ("beside it", true),
        ("path", false),
    ];
    vec![Block::Table(table(&columns, outliers.iter().map(cells).collect()))]
}

fn directories(directories: &Directories) -> Vec<Block> {
    let known = facts(&[
        (grouped(directories.listed), "directories"),
        (format!("{:.1}", directories.mean_entries), "entries each, on average"),
        (format!("{:.1}", directories.stdev_entries), "standard deviation"),
    ]);
    let entries =
        directories.most_entries.iter().map(|row| vec![grouped(row.entries), visible(&row.path)]);
    let bytes =
        directories.most_bytes.iter().map(|row| vec![human_size(row.bytes), visible(&row.path)]);
    let entries = Table {
        title: Some("Most entries".to_owned()),
        ..table(&[("entries", true), ("path", false)], entries.collect())
    };
    let bytes = Table {
        title: Some("Most bytes in files".to_owned()),
        ..table(&[("sizes", true), ("path", false)], bytes.collect())
    };
    vec![known, Block::Table(entries), Block::Table(bytes)]
}

fn deepest(deepest: &[Deep]) -> Vec<Block> {
    let rows = deepest.iter().map(|row| vec![row.depth.to_string(), visible(&row.path)]).collect();
    vec![Block::Table(table(&[("depth", true), ("path", false)], rows))]
}

fn empty(empty: &Empty) -> Vec<Block> {
    let rows = empty.first.iter().map(|path| vec![visible(path)]).collect();
    vec![
        facts(&[(grouped(empty.count), "empty directories")]),
        first(table(&[("path", false)], rows), empty.count),
    ]
}

/// A table with the first rows of so many.
fn first(mut table: Table, count: i64) -> Block {
    if count > table.rows.len() as i64 && !table.rows.is_empty() {
        table.title = Some(format!("The first {}", table.rows.len()));
    }
    Block::Table(table)
}

fn duplicates(duplicates: &Duplicates) -> Vec<Block> {
    let known = facts(&[
        (grouped(duplicates.groups), "groups"),
        (grouped(duplicates.files), "files"),
        (human_size(duplicates.wasted_bytes), "in all but one of each"),
    ]);
    let cells = |group: &DuplicateGroup| {
        let paths: Vec<String> = group.paths.iter().map(|path| visible(path)).collect();
        let more = group.files as usize - paths.len().min(group.files as usize);
        let more =
            if more > 0 { format!("\n(and {} more)", grouped(more as i64)) } else { String::new() };
        vec![
            human_size(group.wasted_bytes),
            human_size(group.bytes),
            grouped(group.files),
            date(group.mtime_ns),
            paths.join("\n") + &more,
        ]
    };
    let columns =
        [("saved", true), ("size", true), ("files", true), ("modified", false), ("paths", false)];
    vec![known, Block::Table(table(&columns, duplicates.largest.iter().map(cells).collect()))]
}

fn links(links: &Links) -> Vec<Block> {
    let known = facts(&[
        (grouped(links.inodes), "inodes with several names here"),
        (grouped(links.names), "names of theirs"),
        (human_size(links.saved_disk_bytes), "that copies would take"),
        (grouped(links.names_elsewhere), "inodes with names elsewhere"),
    ]);
    let cells = |inode: &LinkedInode| {
        vec![
            human_size(inode.saved_disk_bytes),
            human_size(inode.bytes),
            format!("{} of {}", inode.names, inode.nlink),
            visible(&inode.path),
        ]
    };
    let columns = [("saved", true), ("size", true), ("names", true), ("first path", false)];
    vec![known, Block::Table(table(&columns, links.largest.iter().map(cells).collect()))]
}

fn symlinks(links: &Symlinks) -> Vec<Block> {
    let known = facts(&[
        (grouped(links.symlinks), "symbolic links"),
        (grouped(links.broken.count), "broken"),
        (grouped(links.loops.count), "in loops"),
        (grouped(links.unknown), "lead where the index cannot tell"),
    ]);
    let list = |title: &str, flagged: &FlaggedLinks| {
        let rows = flagged
            .first
            .iter()
            .map(|link| vec![visible(&link.target), visible(&link.path)])
            .collect();
        let table = table(&[("target", false), ("path", false)], rows);
        Block::Table(Table { title: Some(title.to_owned()), ..table })
    };
    let mut blocks = vec![known];
    for (title, flagged) in [("Broken", &links.broken), ("Loops", &links.loops)] {
        if !flagged.first.is_empty() {
            blocks.push(list(title, flagged));
        }
    }
    blocks
}

fn sparse(sparse: &Sparse) -> Vec<Block> {
    let known = facts(&[
        (grouped(sparse.count), "files that take less space than their size"),
        (human_size(sparse.saved_bytes), "less"),
    ]);
    let mut blocks = vec![known];
    blocks.extend(items(&sparse.largest, None));
    blocks
}

/// Counts of lists, and the lists.
fn flagged(lists: &[(&'static str, &Flagged)]) -> Vec<Block> {
    let counts: Vec<_> =
        lists.iter().map(|(what, flagged)| (grouped(flagged.count), *what)).collect();
    let mut blocks = vec![facts(&counts)];
    for (what, flagged) in lists.iter().filter(|(_, flagged)| !flagged.first.is_empty()) {
        let cells = |item: &Item| vec![mode_string(item.mode), user(item), visible(&item.path)];
        let rows = flagged.first.iter().map(cells).collect();
        let more = if flagged.count > flagged.first.len() as i64 {
            format!("{what} (the first {})", flagged.first.len())
        } else {
            (*what).to_owned()
        };
        let columns = [("mode", false), ("user", false), ("path", false)];
        blocks.push(Block::Table(Table { title: Some(more), ..table(&columns, rows) }));
    }
    blocks
}

fn permissions(permissions: &Permissions) -> Vec<Block> {
    let mut blocks = flagged(&[
        ("files that everybody may write", &permissions.world_writable_files),
        (
            "directories that everybody may write, not sticky",
            &permissions.world_writable_directories,
        ),
        ("setuid files", &permissions.setuid),
        ("setgid files", &permissions.setgid),
    ]);
    if let Some(Block::Facts(facts)) = blocks.first_mut() {
        let sticky = grouped(permissions.world_writable_sticky);
        facts.insert(2, (sticky, "directories that everybody may write, sticky"));
    }
    blocks
}

fn nameless(owners: &Owners) -> Vec<Block> {
    let cells = |usage: &Usage, what: &str| {
        vec![
            human_size(usage.disk_bytes),
            human_size(usage.bytes),
            grouped(usage.entries),
            what.to_owned(),
        ]
    };
    let rows = vec![
        cells(&owners.without_user, "no such user"),
        cells(&owners.without_group, "no such group"),
    ];
    vec![Block::Table(table(
        &[("on disk", true), ("sizes", true), ("entries", true), ("", false)],
        rows,
    ))]
}

fn odd_names(names: &Names) -> Vec<Block> {
    flagged(&[
        ("with control characters", &names.control),
        ("not UTF-8", &names.not_utf8),
        ("with characters that change the direction of text", &names.direction),
    ])
}

fn future(future: &Flagged) -> Vec<Block> {
    let mut blocks = vec![facts(&[(grouped(future.count), "files")])];
    if !future.first.is_empty() {
        blocks.extend(items(&future.first, None));
    }
    blocks
}
