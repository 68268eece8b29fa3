//! Figure 7: deviation from an even load.

use crate::balance::{Deviation, consistent, dense, random};
use crate::chart::{Axis, Curve, Point, Style, panel};
use plotters::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::path::Path;

/// Largest number of servers.
const SERVERS_MAX: u32 = 32;

/// Draws the figure into a file.
pub fn draw(file: &Path) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(7);
    let area = SVGBackend::new(file, (1260, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let panels = area.split_evenly((1, 3));
    let each = [1, 4, 8, 16];
    let dense = curves(each, dense);
    let random = curves(each, |servers, each| random(servers, each, &mut rng));
    let consistent = curves([8, 32, 64, 128], |servers, each| consistent(servers, each, &mut rng));
    let titles = [
        "Canopy: dense partition numbers",
        "Figure 7 (a) of the paper: random splits",
        "Figure 7 (b) of the paper: consistent hashing",
    ];
    for ((panel_area, title), curves) in panels.iter().zip(titles).zip([dense, random, consistent])
    {
        let x = Axis { label: "servers", range: 0.0..f64::from(SERVERS_MAX + 1) };
        let y = Axis { label: "mean deviation from an even load, %", range: 0.0..60.0 };
        panel(panel_area, title, x, y, &curves)?;
    }
    Ok(area.present()?)
}

/// Returns a curve over the number of servers for each number of partitions of a server.
fn curves(each: [u32; 4], mut deviation: impl FnMut(u32, u32) -> Deviation) -> Vec<Curve> {
    let curve = |each: u32| {
        let point = |servers: u32| {
            let Deviation { mean, confidence } = deviation(servers, each);
            let (y, confidence) = (100.0 * mean, 100.0 * confidence);
            Point { x: f64::from(servers), y, confidence }
        };
        let name = match each {
            1 => "1 partition a server".to_owned(),
            _ => format!("{each} partitions a server"),
        };
        Curve { name, style: Style::Line, points: (1..=SERVERS_MAX).map(point).collect() }
    };
    each.map(curve).into()
}
