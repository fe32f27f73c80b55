//! Lines and stacked areas over time, as SVG. Panics on no input.

use crate::report::{Anchor, Drawing, Scale, ticks};

/// One thing over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) name: String,
    /// Seconds and values, in order of time; a value holds until the next.
    pub(super) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 26.0;
/// Colours, in the order of Okabe and Ito's palette for all kinds of colour vision.
const COLOURS: usize = 6;
/// More points than that are more than there are pixels.
const POINTS_MAX: usize = 1800;

struct Frame {
    x: Scale,
    y: Scale,
}

/// Lines with their names beside them. `highest`: the top of the axis, if it is given.
pub(super) fn lines(lines: &[Line], end: f64, highest: Option<f64>) -> String {
    let values = lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
    let highest = highest.unwrap_or_else(|| values.fold(1.0, f64::max));
    let (frame, mut drawing) = frame(end, highest);
    for (index, line) in lines.iter().enumerate() {
        let steps = stepped(&thinned(&line.points), &frame);
        drawing.path(&format!("l s{}", index % COLOURS), &[steps]);
        legend(&mut drawing, index, &format!("a{}", index % COLOURS), &line.name);
    }
    document(drawing)
}

/// Areas on top of one another, the first at the bottom.
pub(super) fn areas(areas: &[Line], end: f64, highest: f64) -> String {
    let (frame, mut drawing) = frame(end, highest);
    let points: Vec<Vec<(f64, f64)>> = areas.iter().map(|area| thinned(&area.points)).collect();
    let mut below: Vec<(f64, f64)> =
        points.first().map_or_else(Vec::new, |first| first.iter().map(|(at, _)| (*at, 0.0)).collect());
    for (index, area) in areas.iter().enumerate() {
        let above: Vec<(f64, f64)> =
            points[index].iter().zip(&below).map(|((at, value), (_, below))| (*at, below + value)).collect();
        let colour =
            if area.name == "pods of services" { "a9".to_owned() } else { format!("a{}", index % COLOURS) };
        let mut outline = stepped(&above, &frame);
        outline.extend(stepped(&below, &frame).into_iter().rev());
        drawing.path(&format!("a {colour}"), &[outline]);
        legend(&mut drawing, index, &colour, &area.name);
        below = above;
    }
    document(drawing)
}

fn frame(end: f64, highest: f64) -> (Frame, Drawing) {
    let x = Scale::linear((0.0, end), LEFT, WIDTH - RIGHT);
    let y = Scale::linear((0.0, highest), HEIGHT - BOTTOM, TOP);
    let mut drawing = Drawing::default();
    for tick in ticks((0.0, highest), 4) {
        drawing.line("g", (LEFT, y.at(tick)), (WIDTH - RIGHT, y.at(tick)));
        drawing.text("t", LEFT - 6.0, y.at(tick) + 4.0, Anchor::End, &format!("{tick}"));
    }
    for tick in ticks((0.0, end), 8) {
        let told = if end >= 7200.0 { format!("{:.1} h", tick / 3600.0) } else { format!("{tick:.0} s") };
        drawing.text("t", x.at(tick), HEIGHT - 8.0, Anchor::Middle, &told);
    }
    (Frame { x, y }, drawing)
}

/// Not more points than can be seen.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points.iter().step_by(points.len().div_ceil(POINTS_MAX).max(1)).copied().collect()
}

/// A value holds until the next.
fn stepped(points: &[(f64, f64)], frame: &Frame) -> Vec<(f64, f64)> {
    let mut steps = Vec::with_capacity(2 * points.len());
    let mut last = None;
    for (at, value) in points {
        let x = frame.x.at(*at);
        steps.extend(last.map(|before| (x, before)));
        last = Some(frame.y.at(*value));
        steps.extend(last.map(|now| (x, now)));
    }
    steps
}

fn legend(drawing: &mut Drawing, index: usize, class: &str, name: &str) {
    let y = TOP + 8.0 + 16.0 * index as f64;
    if y < HEIGHT - BOTTOM {
        drawing.bar(class, (WIDTH - RIGHT + 14.0, y - 5.0), (10.0, 10.0), name);
        let short: String = name.chars().take(18).collect();
        drawing.text("t", WIDTH - RIGHT + 30.0, y + 4.0, Anchor::Start, &short);
    }
}

fn document(drawing: Drawing) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n{}</svg>\n",
        drawing.into_shapes()
    )
}
