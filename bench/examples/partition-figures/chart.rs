//! Panels of a figure: curves with axes, a title and a legend.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::ops::Range;

/// Colours of curves that differ for people with colour blindness, too (Okabe and Ito).
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];

/// A place for a panel.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A point of a curve.
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// Half of the width of its confidence interval; 0 draws none.
    pub confidence: f64,
}

impl Point {
    pub fn new(x: f64, y: f64) -> Self {
        Point { x, y, confidence: 0.0 }
    }
}

/// How the points of a curve are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Line,
    Dots,
    /// A thin black line, for a limit that the paper states.
    Limit,
}

/// A curve and its name in the legend.
pub struct Curve {
    pub name: String,
    pub style: Style,
    pub points: Vec<Point>,
}

impl Curve {
    /// Returns a limit that the paper states, between two points.
    pub fn limit(name: &str, points: [(f64, f64); 2]) -> Self {
        let points = points.map(|(x, y)| Point::new(x, y)).into();
        Curve { name: name.to_owned(), style: Style::Limit, points }
    }
}

/// An axis. `R` is the range of its values.
pub struct Axis<'a, R> {
    pub label: &'a str,
    pub range: R,
}

/// Draws a panel.
pub fn panel<X>(
    area: &Area<'_>,
    title: &str,
    x: Axis<'_, X>,
    y: Axis<'_, Range<f64>>,
    curves: &[Curve],
) -> anyhow::Result<()>
where
    X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(10)
        .margin_right(20)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(x.range, y.range)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(x.label)
        .y_desc(y.label)
        .x_label_formatter(&number)
        .y_label_formatter(&number)
        .label_style(("sans-serif", 12))
        .draw()?;
    for (at, curve) in curves.iter().enumerate() {
        let colour = match curve.style {
            Style::Limit => BLACK.stroke_width(1),
            _ => COLOURS[at % COLOURS.len()].stroke_width(2),
        };
        let points = || curve.points.iter().map(|point| (point.x, point.y));
        let series = match curve.style {
            Style::Dots => {
                let dot = |place| Circle::new(place, 3, colour.color.filled());
                chart.draw_series(points().map(dot))?
            }
            _ => chart.draw_series(LineSeries::new(points(), colour))?,
        };
        let sample = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour);
        series.label(&curve.name).legend(sample);
        let bars = curve.points.iter().filter(|point| point.confidence > 0.0);
        chart.draw_series(bars.map(|point| {
            let (from, to) = (point.y - point.confidence, point.y + point.confidence);
            ErrorBar::new_vertical(
                point.x,
                from.max(0.0),
                point.y,
                to,
                colour.color.stroke_width(1),
                4,
            )
        }))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 12))
        .draw()?;
    Ok(())
}

/// Returns the label of a place on an axis, without digits that mean nothing.
fn number(value: &f64) -> String {
    format!("{}", (value * 1000.0).round() / 1000.0)
}
