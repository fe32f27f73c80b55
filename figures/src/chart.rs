//! Lines and stacked areas over time, as figures of a page.

use crate::curve::{steps, thinned};
use crate::drawing::{Anchor, Drawing};
use crate::scale::{Scale, TimeUnit, tick_text, ticks};

/// One thing over time.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// In the legend.
    pub name: String,
    /// Whether it is what the others stand on, and so without a colour.
    pub is_ground: bool,
    /// Seconds and values, in order of time; a value holds until the next.
    pub points: Vec<(f64, f64)>,
}

/// The style of charts, for a page's.
pub const STYLE: &str = "
.chart{background:var(--card);border:1px solid var(--line);border-radius:8px}
.t{font:12px system-ui,sans-serif;fill:var(--muted)}.g{stroke:var(--line);stroke-width:1}
.l{fill:none;stroke-width:2;stroke-linejoin:round}
.s0{stroke:#0072b2}.s1{stroke:#d55e00}.s2{stroke:#009e73}.s3{stroke:#cc79a7}.s4{stroke:#e69f00}.s5{stroke:#56b4e9}
.a0{fill:#0072b2}.a1{fill:#d55e00}.a2{fill:#009e73}.a3{fill:#cc79a7}.a4{fill:#e69f00}.a5{fill:#56b4e9}.a9{fill:#8b93a1}
.a{opacity:.85;stroke:var(--card);stroke-width:.5}
";

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 26.0;
/// Colours, in the order of Okabe and Ito's palette for all kinds of colour vision.
const COLOURS: usize = 6;

struct Frame {
    x: Scale,
    y: Scale,
}

/// Lines until `end` with their names beside them. `highest`: the top of the axis; none is the highest value.
pub fn lines(lines: &[Line], end: f64, highest: Option<f64>) -> String {
    let values = lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
    let highest = highest.unwrap_or_else(|| values.fold(1.0, f64::max));
    let (frame, mut drawing) = frame(end, highest);
    for (index, line) in lines.iter().enumerate() {
        drawing.path(&format!("l s{}", index % COLOURS), &[stepped(&line.points, &frame)]);
        legend(&mut drawing, index, &format!("a{}", index % COLOURS), &line.name);
    }
    document(drawing)
}

/// Areas on top of one another, the first at the bottom; all have their points at the same times.
pub fn areas(areas: &[Line], end: f64, highest: f64) -> String {
    let (frame, mut drawing) = frame(end, highest);
    let mut below: Vec<(f64, f64)> =
        areas.first().map_or_else(Vec::new, |first| first.points.iter().map(|(at, _)| (*at, 0.0)).collect());
    for (index, area) in areas.iter().enumerate() {
        let above: Vec<(f64, f64)> =
            area.points.iter().zip(&below).map(|((at, value), (_, below))| (*at, below + value)).collect();
        let colour = if area.is_ground { "a9".to_owned() } else { format!("a{}", index % COLOURS) };
        let mut outline = stepped(&above, &frame);
        outline.extend(stepped(&below, &frame).into_iter().rev());
        drawing.area(&format!("a {colour}"), &outline);
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
        drawing.text("t", LEFT - 6.0, y.at(tick) + 4.0, Anchor::End, &tick_text(tick));
    }
    let unit = TimeUnit::of(end);
    for (at, number) in unit.moments(end, 8) {
        let told = format!("{number} {}", unit.short);
        drawing.text("t", x.at(at), HEIGHT - 8.0, Anchor::Middle, &told);
    }
    (Frame { x, y }, drawing)
}

/// Corners of the line of values that hold until the next, in pixels.
fn stepped(points: &[(f64, f64)], frame: &Frame) -> Vec<(f64, f64)> {
    let seen = thinned(points, points.len());
    let end = seen.last().map_or(0.0, |(at, _)| frame.x.at(*at));
    steps(seen.iter().map(|(at, value)| (frame.x.at(*at), frame.y.at(*value))), end)
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
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n{}</svg>\n",
        drawing.into_shapes()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, values: &[f64]) -> Line {
        let points = values.iter().enumerate().map(|(at, value)| (at as f64, *value)).collect();
        Line { name: name.to_owned(), is_ground: name == "ground", points }
    }

    #[test]
    fn areas_stand_on_one_another_and_the_ground_has_no_colour() {
        let svg = areas(&[line("ground", &[1.0, 1.0]), line("<b>", &[1.0, 3.0])], 1.0, 4.0);
        // 4 is at 10 pixels and 0 at 194, so that 1 is at 148 and 2 at 102.
        assert!(
            svg.contains("class=\"a a9\" d=\"M52.0 148.0L810.0 148.0L810.0 194.0L52.0 194.0Z\""),
            "{svg}"
        );
        let above = "M52.0 102.0L810.0 102.0L810.0 10.0L810.0 10.0L810.0 148.0L52.0 148.0Z";
        assert!(svg.contains(&format!("class=\"a a1\" d=\"{above}\"")), "{svg}");
        assert!(svg.contains("&lt;b&gt;") && svg.contains(">0.2 s</text>"), "{svg}");
    }

    #[test]
    fn nothing_and_what_is_no_number_are_drawn_as_well() {
        for svg in [
            lines(&[], 0.0, None),
            areas(&[], f64::NAN, f64::NAN),
            lines(&[line("a", &[f64::NAN])], 1.0, None),
        ] {
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
        }
    }
}
