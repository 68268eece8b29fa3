//! Figures 4, 5, 6, 8 and 10: servers as processes. Their numbers are those of the tables that
//! `canopy-bench cluster` printed and `bench/RESULTS.md` keeps.

use crate::chart::{Area, Axis, Curve, Point, Style, panel};
use anyhow::Context;
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

/// Length of the intervals of Figure 5 in seconds.
const INTERVAL: f64 = 0.1;

/// Draws all five figures into a directory.
pub fn draw(results: &Path, directory: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(results)?;
    let table = |number: u32| Table::find(&text, &format!("### Figure {number}"));
    let file = directory.join("gigaplus-clusters.svg");
    let area = SVGBackend::new(&file, (1000, 1080)).into_drawing_area();
    area.fill(&WHITE)?;
    let panels = area.split_evenly((3, 2));
    let [first, second, third, fourth, fifth, sixth] = &panels[..] else {
        return Ok(());
    };
    scaling(first, second, &table(4)?)?;
    growth(third, &table(5)?)?;
    let servers = "servers";
    let x = Column { name: "partitions a server", label: "partitions a server" };
    let y = Column { name: "us", label: "us of the servers a create" };
    curves(fourth, "6: splitting ends, or goes on", &table(6)?, servers, [x, y])?;
    let x = Column { name: servers, label: servers };
    let y = Column { name: "us a create", label: "us of the servers a create" };
    curves(fifth, "8: cost of splitting", &table(8)?, "partitions a server", [x, y])?;
    let x = Column { name: "partitions a server", label: "partitions a server" };
    let y = Column { name: "us", label: "us of the servers a create" };
    curves(sixth, "10: storage", &table(10)?, "storage", [x, y])?;
    Ok(area.present()?)
}

/// A table of Markdown.
struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns the last table below a heading.
    fn find(text: &str, heading: &str) -> anyhow::Result<Self> {
        let at = text.lines().collect::<Vec<_>>();
        let begin = at.iter().rposition(|line| *line == heading).context(heading.to_owned())?;
        let lines = at.iter().skip(begin + 1).skip_while(|line| !line.starts_with('|'));
        let cells = |line: &&str| {
            Vec::from_iter(line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()))
        };
        let mut lines = lines.take_while(|line| line.starts_with('|')).map(cells);
        let heads = lines.next().context("a table has heads")?;
        Ok(Table { heads, rows: lines.skip(1).collect() })
    }

    fn column(&self, name: &str) -> anyhow::Result<usize> {
        self.heads.iter().position(|head| head == name).with_context(|| name.to_owned())
    }
}

/// A column of a table, and its label on an axis.
struct Column<'a> {
    name: &'a str,
    label: &'a str,
}

/// Draws a curve for each value of a column.
fn curves(
    area: &Area<'_>,
    title: &str,
    table: &Table,
    of: &str,
    [x, y]: [Column<'_>; 2],
) -> anyhow::Result<()> {
    let (of_column, x_column, y_column) =
        (table.column(of)?, table.column(x.name)?, table.column(y.name)?);
    let mut curves: Vec<Curve> = Vec::new();
    let (mut x_max, mut y_max) = (1.0_f64, 1.0_f64);
    for row in &table.rows {
        let [of_value, x, y] = [of_column, x_column, y_column].map(|at| row[at].as_str());
        // A row of a part that was skipped has no numbers.
        let (Ok(x), Ok(y)) = (x.parse::<f64>(), y.parse::<f64>()) else { continue };
        (x_max, y_max) = (x_max.max(x), y_max.max(y));
        let name = if of_value.parse::<f64>().is_ok() {
            format!("{of_value} {of}").replace("1 partitions", "1 partition")
        } else {
            of_value.to_owned()
        };
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(Point::new(x, y)),
            None => curves.push(Curve { name, style: Style::Line, points: vec![Point::new(x, y)] }),
        }
    }
    let x = Axis { label: x.label, range: (1.0..x_max.max(2.0)).log_scale() };
    let y = Axis { label: y.label, range: 0.0..1.6 * y_max };
    panel(area, title, x, y, &curves)
}

/// Draws Figure 4: creates for each core and their cost.
fn scaling(rates: &Area<'_>, costs: &Area<'_>, table: &Table) -> anyhow::Result<()> {
    let [servers, rate, cost] =
        ["servers", "creates/s of a server's core", "us"].map(|name| table.column(name));
    let (servers, rate, cost) = (servers?, rate?, cost?);
    let mut points = BTreeMap::new();
    for row in &table.rows {
        let count = row[servers].parse::<u32>()?;
        points.insert(count, (row[rate].parse::<f64>()? / 1000.0, row[cost].parse::<f64>()?));
    }
    let (_, (first_rate, first_cost)) = points.first_key_value().context("rows")?;
    let of = |value: fn(f64, (f64, f64)) -> f64| {
        let point = |(count, values): (&u32, &(f64, f64))| {
            let count = f64::from(*count);
            Point::new(count, value(count, *values))
        };
        points.iter().map(point).collect()
    };
    let end = points.last_key_value().map_or(1.0, |(count, _)| f64::from(*count));
    let curves = [
        Curve {
            name: "servers, a core each".into(),
            style: Style::Line,
            points: of(|n, (rate, _)| n * rate),
        },
        Curve::limit("linear", [(1.0, *first_rate), (end, end * first_rate)]),
    ];
    let x = Axis { label: "servers", range: 0.0..end + 1.0 };
    let y = Axis { label: "thousands of creates/s", range: 0.0..1.6 * end * first_rate };
    panel(rates, "4: creates by CPU time", x, y, &curves)?;
    let curves = [
        Curve { name: "cost".into(), style: Style::Line, points: of(|_, (_, cost)| cost) },
        Curve::limit("10 % more than of 1", [(1.0, 1.1 * first_cost), (end, 1.1 * first_cost)]),
    ];
    let x = Axis { label: "servers", range: 0.0..end + 1.0 };
    let most = points.values().map(|(_, cost)| *cost).fold(1.1 * first_cost, f64::max);
    let y = Axis { label: "us of the servers a create", range: 0.0..1.6 * most };
    panel(costs, "4: cost of a create", x, y, &curves)
}

/// Draws Figure 5: creates while the directory grows.
fn growth(area: &Area<'_>, table: &Table) -> anyhow::Result<()> {
    let (servers, rates) = (table.column("servers")?, 1);
    let (mut longest, mut highest) = (0.0_f64, 0.0_f64);
    let mut curves = Vec::new();
    for row in &table.rows {
        let mut points = Vec::new();
        for (at, thousands) in row[rates].split_whitespace().enumerate() {
            let rate = thousands.parse::<f64>()? / INTERVAL;
            let at = (at as f64 + 0.5) * INTERVAL;
            (longest, highest) = (longest.max(at), highest.max(rate));
            points.push(Point::new(at, rate));
        }
        let name = format!("{} servers", row[servers]).replace("1 servers", "1 server");
        curves.push(Curve { name, style: Style::Line, points });
    }
    let x = Axis { label: "seconds", range: 0.0..longest + INTERVAL };
    let y = Axis { label: "thousands of creates/s, two cores", range: 0.0..1.6 * highest };
    panel(area, "5: creates while servers split", x, y, &curves)
}
