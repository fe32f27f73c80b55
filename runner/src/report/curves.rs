//! The lower panels, live trainers, steps, loss and metrics, and the time axis under them.
//! It must never draw a line over a gap: a sample without a value, or with one that is no number, breaks the curve.

use super::layout::{Layout, Panel};
use super::sheet::MARGIN;
use super::{Metric, Sample};
use shoal_figures::text::{seconds, shortened};
use shoal_figures::{Anchor, Drawing, Scale, TimeUnit, logarithmic_ticks, steps, thinned, tick_text, ticks};

/// So much of a metric's name stands beside its panel.
const METRIC_CHARACTERS: usize = 14;
/// From this quotient of largest to smallest value on, a straight axis would show a flat line.
const LOGARITHMIC_FROM: f64 = 8.0;

/// The number of live trainers as a step line from zero.
pub(super) fn draw_live(samples: &[Sample], layout: &Layout<'_>, drawing: &mut Drawing) {
    let panel = layout.live_panel;
    draw_title(&["Live", "trainers"], panel, drawing);
    let most = samples.iter().map(|sample| sample.trainers_live).max().unwrap_or(0).max(1);
    let range = (0.0, f64::from(most));
    let scale = Scale::linear(range, panel.bottom, panel.top);
    let marks = ticks(range, most.min(4)).into_iter().filter(|tick| tick.fract() == 0.0);
    draw_levels(&marks.collect::<Vec<_>>(), &scale, layout, drawing);
    if samples.is_empty() {
        return draw_nothing("no samples were taken", panel, layout, drawing);
    }
    let place =
        |sample: &Sample| (layout.time.at(sample.at_seconds), scale.at(f64::from(sample.trainers_live)));
    let steps = steps(samples.iter().map(place), layout.right);
    let (first, last) = (steps.first().map_or(0.0, |step| step.0), steps.last().map_or(0.0, |step| step.0));
    let ground = [(last, panel.bottom), (first, panel.bottom)];
    drawing.path("s-area", &[steps.iter().copied().chain(ground).collect()]);
    drawing.path("s-curve", &[steps]);
}

/// Steps applied: a line that rises, and falls where the job went back.
pub(super) fn draw_steps(samples: &[Sample], layout: &Layout<'_>, drawing: &mut Drawing) {
    let panel = layout.step_panel;
    draw_title(&["Steps", "applied"], panel, drawing);
    let most = samples.iter().map(|sample| sample.step).max().unwrap_or(0).max(1);
    let range = (0.0, most as f64);
    let scale = Scale::linear(range, panel.bottom, panel.top);
    let marks = ticks(range, 3).into_iter().filter(|tick| tick.fract() == 0.0);
    draw_levels(&marks.collect::<Vec<_>>(), &scale, layout, drawing);
    let counted = samples.iter().filter(|sample| sample.at_seconds.is_finite());
    let points: Vec<(f64, f64)> = counted.map(|sample| (sample.at_seconds, sample.step as f64)).collect();
    if points.is_empty() {
        return draw_nothing("no samples were taken", panel, layout, drawing);
    }
    let place = |(at, step): &(f64, f64)| (layout.time.at(*at), scale.at(*step));
    drawing.path("s-curve", &[thinned(&points, points.len()).iter().map(place).collect()]);
}

/// The loss.
pub(super) fn draw_loss(samples: &[Sample], layout: &Layout<'_>, drawing: &mut Drawing) {
    let points: Vec<Value> = samples.iter().map(|sample| (sample.at_seconds, sample.loss)).collect();
    let titles = ["Mean loss", "per record"];
    draw_values(&points, ("loss", "no loss was measured"), &titles, layout.loss_panel, layout, drawing);
}

/// Each metric of the evaluations in a panel of its own.
pub(super) fn draw_metrics(metrics: &[Metric], layout: &Layout<'_>, drawing: &mut Drawing) {
    for (metric, panel) in metrics.iter().zip(&layout.metric_panels) {
        let points: Vec<Value> = metric.points.iter().map(|point| (point.at_seconds, point.value)).collect();
        let name = shortened(&metric.name, METRIC_CHARACTERS);
        let words = (name.as_str(), "none of its values is a number");
        draw_values(&points, words, &[&name], *panel, layout, drawing);
    }
}

/// Seconds, and a value where there is one.
type Value = (f64, Option<f64>);

/// Values on a logarithmic axis where they fall or rise far, with what they are called and what is said where there is none.
fn draw_values(
    points: &[Value],
    (what, nothing): (&str, &str),
    titles: &[&str],
    panel: Panel,
    layout: &Layout<'_>,
    drawing: &mut Drawing,
) {
    let Some((low, high)) = range_of(points) else {
        draw_title(titles, panel, drawing);
        draw_levels(&[], &Scale::linear((0.0, 1.0), panel.bottom, panel.top), layout, drawing);
        draw_not_numbers(points, what, panel, layout, drawing);
        return draw_nothing(nothing, panel, layout, drawing);
    };
    let scale = if low > 0.0 && high / low >= LOGARITHMIC_FROM {
        draw_title(&[titles, &["(log scale)"]].concat(), panel, drawing);
        let range = ((low * 0.9).max(f64::MIN_POSITIVE), (high * 1.1).min(f64::MAX));
        let scale = Scale::logarithmic(range, panel.bottom, panel.top);
        draw_levels(&logarithmic_ticks(range), &scale, layout, drawing);
        scale
    } else {
        draw_title(titles, panel, drawing);
        let range = (low.min(0.0), if high > low.min(0.0) { high * 1.05 } else { low.min(0.0) + 1.0 });
        let scale = Scale::linear(range, panel.bottom, panel.top);
        draw_levels(&ticks(range, 5), &scale, layout, drawing);
        scale
    };
    let place = |(at, value): &(f64, f64)| (layout.time.at(*at), scale.at(*value));
    let runs: Vec<Vec<_>> = finite_runs(points).iter().map(|run| run.iter().map(place).collect()).collect();
    drawing.path("s-curve", &runs);
    draw_last(points, &scale, layout, drawing);
    draw_not_numbers(points, what, panel, layout, drawing);
}

/// The smallest and largest value that is a number.
fn range_of(points: &[Value]) -> Option<(f64, f64)> {
    points.iter().filter_map(finite).fold(None, |range, (_, value)| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

/// Points `(seconds, value)`, cut wherever there is no value, and thinned to what can be seen.
fn finite_runs(points: &[Value]) -> Vec<Vec<(f64, f64)>> {
    let runs = points.split(|point| finite(point).is_none()).filter(|run| !run.is_empty());
    runs.map(|run| thinned(&run.iter().filter_map(finite).collect::<Vec<_>>(), points.len())).collect()
}

fn finite((at, value): &Value) -> Option<(f64, f64)> {
    let value = value.filter(|value| value.is_finite() && at.is_finite())?;
    Some((*at, value))
}

/// The number a reader looks for.
fn draw_last(points: &[Value], scale: &Scale, layout: &Layout<'_>, drawing: &mut Drawing) {
    if let Some((at, value)) = points.iter().rev().find_map(finite) {
        let (x, y) = (layout.time.at(at), scale.at(value));
        drawing.path("s-dot", &[vec![(x, y)]]);
        let text =
            if (0.001..1e6).contains(&value.abs()) { format!("{value:.3}") } else { format!("{value:.2e}") };
        drawing.text("s-small s-label s-strong", x, y - 9.0, Anchor::End, &text);
    }
}

fn draw_not_numbers(points: &[Value], what: &str, panel: Panel, layout: &Layout<'_>, drawing: &mut Drawing) {
    let first = points.iter().find(|(_, value)| value.is_some_and(|value| !value.is_finite()));
    if let Some((at, _)) = first {
        let text = format!("{what} is not a number at {}", seconds(*at));
        let (x, y) = (layout.left + 8.0, panel.bottom - 8.0);
        drawing.text("s-small s-label s-kill", x, y, Anchor::Start, &text);
    }
}

/// Ticks and the unit under the lowest panel.
pub(super) fn draw_time_axis(layout: &Layout<'_>, drawing: &mut Drawing) {
    let bottom = layout.bottom;
    let unit = TimeUnit::of(layout.seconds);
    for (at, number) in unit.moments(layout.seconds, 8) {
        let x = layout.time.at(at);
        drawing.line("s-axis", (x, bottom), (x, bottom + 4.0));
        drawing.text("s-small s-muted", x, bottom + 17.0, Anchor::Middle, &number);
    }
    let middle = (layout.left + layout.right) / 2.0;
    drawing.text(
        "s-small s-muted",
        middle,
        bottom + 34.0,
        Anchor::Middle,
        &format!("{} since start", unit.name),
    );
}

fn draw_title(lines: &[&str], panel: Panel, drawing: &mut Drawing) {
    for (index, line) in lines.iter().enumerate() {
        let class = if index == 0 { "s-small s-strong" } else { "s-small s-muted" };
        drawing.text(class, MARGIN, panel.top + 8.0 + 15.0 * index as f64, Anchor::Start, line);
    }
}

fn draw_levels(levels: &[f64], scale: &Scale, layout: &Layout<'_>, drawing: &mut Drawing) {
    for level in levels {
        let y = scale.at(*level);
        drawing.line("s-grid", (layout.left, y), (layout.right, y));
        drawing.text("s-small s-muted", layout.left - 8.0, y + 4.0, Anchor::End, &tick_text(*level));
    }
    let ground = scale.at(f64::NEG_INFINITY);
    drawing.line("s-axis", (layout.left, ground), (layout.right, ground));
}

fn draw_nothing(why: &str, panel: Panel, layout: &Layout<'_>, drawing: &mut Drawing) {
    let (x, y) = ((layout.left + layout.right) / 2.0, (panel.top + panel.bottom) / 2.0 + 4.0);
    drawing.text("s-small s-label s-muted", x, y, Anchor::Middle, why);
}
