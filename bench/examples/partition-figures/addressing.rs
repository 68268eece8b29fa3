//! Figure 9: requests that reach a server which does not hold the name.

use crate::chart::{Area, Axis, Curve, Point, Style, panel};
use crate::growth::{Errors, Rules, grow, new_client};
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

/// Files that each client creates, as in the paper.
const CREATES: u32 = 400_000;

/// Look-ups of a new client.
const LOOKUPS: u32 = 10_000;

/// New clients, each with other names.
const CLIENTS: u64 = 100;

/// Rules that are compared, with their names.
const RULES: [(Rules, &str); 2] = [(Rules::Canopy, "Canopy"), (Rules::Paper, "rules of the paper")];

/// Draws the figure into a file.
pub fn draw(file: &Path) -> anyhow::Result<()> {
    let area = SVGBackend::new(file, (1000, 1080)).into_drawing_area();
    area.fill(&WHITE)?;
    let panels = area.split_evenly((3, 2));
    let (growing, new) = panels.split_at(4);
    for (at, (rules, name)) in RULES.into_iter().enumerate() {
        growth(&growing[at], &format!("9 (a), {name}"), rules)?;
        one_client(&growing[at + 2], &format!("9 (b), {name}"), rules)?;
    }
    new_clients(new)?;
    Ok(area.present()?)
}

/// Draws the part of all requests that are wrong, over the number of servers.
fn growth(area: &Area<'_>, title: &str, rules: Rules) -> anyhow::Result<()> {
    let curve = |each: u32| {
        let points = [1, 2, 4, 8, 12, 16, 20, 24, 28, 30, 32].map(|servers: u32| {
            let (_, errors) = grow(rules, servers, each, servers, CREATES);
            let requests = f64::from(servers) * f64::from(CREATES);
            let percent = 100.0 * errors.requests.len() as f64 / requests;
            println!("{title}: servers {servers}, partitions of each {each}, wrong {percent:.4} %");
            Point::new(f64::from(servers), percent)
        });
        let name = format!("{each} partitions a server").replace("1 partitions", "1 partition");
        Curve { name, style: Style::Line, points: points.into() }
    };
    let mut curves: Vec<Curve> = [1, 4, 16].into_iter().map(curve).collect();
    curves.push(Curve::limit("limit of the paper", [(0.0, 0.05), (33.0, 0.05)]));
    let x = Axis { label: "servers", range: 0.0..33.0 };
    let y = Axis { label: "wrong requests, %", range: 0.0..0.1 };
    panel(area, title, x, y, &curves)
}

/// Draws the errors of each request of one client, with 30 servers and 16 partitions a server.
fn one_client(area: &Area<'_>, title: &str, rules: Rules) -> anyhow::Result<()> {
    let (_, Errors { requests, of_first }) = grow(rules, 30, 16, 30, CREATES);
    if let Some(last) = requests.last() {
        println!("{title}: last error of any client in request {}", last + 1);
    }
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    of_first.iter().for_each(|request| *counts.entry(*request).or_default() += 1);
    let point = |(request, count): (&u32, &u32)| {
        Point::new(f64::from(*request) / 1000.0, f64::from(*count))
    };
    let name = format!("{} errors", of_first.len());
    let errors = Curve { name, style: Style::Dots, points: counts.iter().map(point).collect() };
    let end = f64::from(CREATES) / 1000.0;
    let last = Curve::limit("the paper's last error", [(end / 5.0, 0.0), (end / 5.0, 4.0)]);
    let x = Axis { label: "request of one client, thousands", range: 0.0..end };
    let y = Axis { label: "errors of the request", range: 0.0..4.0 };
    panel(area, title, x, y, &[errors, last])
}

/// Draws errors of new clients of a directory that has stopped splitting.
fn new_clients(areas: &[Area<'_>]) -> anyhow::Result<()> {
    let errors = RULES.map(|(rules, name)| (NewClients::measure(rules), name));
    for (errors, name) in &errors {
        let most = errors.of_request.iter().max().unwrap_or(&0);
        let all = errors.so_far.last().unwrap_or(&0);
        let last = errors.of_request.iter().rposition(|count| *count > 0).map_or(0, |at| at + 1);
        println!("9 (c), {name}: of one request {most}, in all {all}, last in request {last}");
    }
    let curves = |style: Style, points: fn(&NewClients) -> Vec<Point>| {
        let curve = |(errors, name): &(NewClients, &str)| Curve {
            name: (*name).to_owned(),
            style,
            points: points(errors),
        };
        errors.iter().map(curve).collect::<Vec<_>>()
    };
    let x =
        || Axis { label: "request of a new client", range: (1.0..f64::from(LOOKUPS)).log_scale() };
    let last = |top| Curve::limit("request 40: the paper's last error", [(40.0, 0.0), (40.0, top)]);
    let mut each = curves(Style::Dots, NewClients::wrong_requests);
    each.push(last(6.0));
    let y = Axis { label: "errors of the request", range: 0.0..6.0 };
    panel(&areas[0], "9 (c), most errors of one request", x(), y, &each)?;
    let mut all = curves(Style::Line, NewClients::steps);
    all.push(last(40.0));
    all.push(Curve::limit("limit of the paper", [(1.0, 30.0), (f64::from(LOOKUPS), 30.0)]));
    let y = Axis { label: "errors so far", range: 0.0..40.0 };
    panel(&areas[1], "9 (c), most errors so far", x(), y, &all)
}

/// Errors by request, each the most of all new clients.
struct NewClients {
    of_request: Vec<u32>,
    so_far: Vec<u32>,
}

impl NewClients {
    fn measure(rules: Rules) -> Self {
        let (mut directory, _) = grow(rules, 30, 16, 30, CREATES);
        let none = || vec![0; LOOKUPS as usize];
        let mut most = NewClients { of_request: none(), so_far: none() };
        for seed in 0..CLIENTS {
            let mut sum = 0;
            for (at, errors) in new_client(&mut directory, seed, LOOKUPS).into_iter().enumerate() {
                sum += errors;
                most.of_request[at] = most.of_request[at].max(errors);
                most.so_far[at] = most.so_far[at].max(sum);
            }
        }
        most
    }

    /// Returns the requests with errors.
    fn wrong_requests(&self) -> Vec<Point> {
        let all = (1_u32..).zip(&self.of_request).filter(|(_, errors)| **errors > 0);
        all.map(|(request, errors)| Point::new(f64::from(request), f64::from(*errors))).collect()
    }

    /// Returns the ends of the stretches in which the sum of errors is constant.
    fn steps(&self) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::new();
        for same in self.so_far.chunk_by(|one, next| one == next) {
            let first = points.last().map_or(1.0, |last| last.x + 1.0);
            let errors = f64::from(same[0]);
            points.push(Point::new(first, errors));
            points.push(Point::new(first + same.len() as f64 - 1.0, errors));
        }
        points
    }
}
