//! `du --tree`: lines as a tree for people, from the top, with bars for the shares of the whole.

use super::lines::Line;
use super::{DuOptions, Order};
use crate::error::Result;
use canopy_text::bar;
use canopy_text::safe::terminal_name;
use rustc_hash::FxHashMap;
use std::io::Write;

/// How branches are drawn, with blocks and with ASCII: a directory before others and the last one,
/// and what stands below them.
const BRANCHES: [[&str; 4]; 2] = [["├─ ", "└─ ", "│  ", "   "], ["|- ", "`- ", "|  ", "   "]];

/// A directory or file in the tree.
struct Node {
    line: Line,
    /// Its children, by number.
    children: Vec<usize>,
    /// How many entries it stands for that have no lines of their own.
    others: usize,
}

/// Prints the lines of an argument, of which each directory comes after what is in it.
pub(super) fn print(lines: Vec<Line>, options: &DuOptions, output: &mut dyn Write) -> Result<()> {
    let (nodes, roots) = nodes(lines, options);
    let form = options.shown_form();
    let sizes: Vec<String> = nodes.iter().map(|node| form.show(node.line.size)).collect();
    let width = sizes.iter().map(String::len).max().unwrap_or(0);
    let columns = options.tree.unwrap_or(0);
    let branches = &BRANCHES[usize::from(options.ascii)];
    for root in roots {
        let whole = nodes[root].line.size.max(1) as f64;
        // The number of a node, what stands before it, and before what is in it.
        let mut left = vec![(root, String::new(), String::new())];
        while let Some((at, branch, below)) = left.pop() {
            let node = &nodes[at];
            let share = node.line.size as f64 / whole;
            let drawn = bar(share, columns, options.ascii);
            write!(output, "{:>width$} {drawn:<columns$} {:>4.0}% ", sizes[at], share * 100.0)?;
            let path = node.line.path.as_slice();
            let name = if branch.is_empty() { path } else { last_name(path) };
            output.write_all(branch.as_bytes())?;
            match node.others {
                0 => output.write_all(&terminal_name(name, options.terminal))?,
                1 => output.write_all(b"(1 other)")?,
                others => write!(output, "({others} others)")?,
            }
            output.write_all(b"\n")?;
            let last = node.children.last();
            left.extend(node.children.iter().rev().map(|child| {
                let end = usize::from(last == Some(child));
                let prefix = |drawn: &str| format!("{below}{drawn}");
                (*child, prefix(branches[end]), prefix(branches[2 + end]))
            }));
        }
    }
    Ok(())
}

/// Puts lines below those of their directories. Returns all, and those that are in none.
fn nodes(lines: Vec<Line>, options: &DuOptions) -> (Vec<Node>, Vec<usize>) {
    let mut nodes: Vec<Node> = Vec::with_capacity(lines.len());
    let mut waiting: FxHashMap<Vec<u8>, Vec<usize>> = FxHashMap::default();
    for line in lines {
        let mut children = waiting.remove(trimmed(&line.path)).unwrap_or_default();
        let order = options.order.unwrap_or(Order::Size);
        children.sort_by(|a, b| nodes[*a].line.compare(&nodes[*b].line, order));
        let rest = children.split_off(options.top.unwrap_or(usize::MAX).min(children.len()));
        if !rest.is_empty() {
            let size = rest.iter().map(|child| nodes[*child].line.size).sum();
            let line = Line { size, time_ns: None, key: None, path: Vec::new() };
            children.push(nodes.len());
            nodes.push(Node { line, children: Vec::new(), others: rest.len() });
        }
        let directory = trimmed(&line.path);
        let end = directory.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        waiting.entry(directory[..end].to_vec()).or_default().push(nodes.len());
        nodes.push(Node { line, children, others: 0 });
    }
    let mut roots: Vec<usize> = waiting.into_values().flatten().collect();
    roots.sort_unstable();
    (nodes, roots)
}

/// A path without slashes at its end, so that all in it begin with it and a slash.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

fn last_name(path: &[u8]) -> &[u8] {
    let path = trimmed(path);
    path.iter().rposition(|byte| *byte == b'/').map_or(path, |at| &path[at + 1..])
}
