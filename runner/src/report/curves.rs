//! The lower panels, live trainers, steps and loss, and the time axis under them.
//! It must never draw a line over a gap: a sample without a loss, or with one that is no number, breaks the curve.

use super::Sample;
use super::layout::{Layout, Panel};
use super::sheet::MARGIN;
use shoal_figures::text::seconds;
use shoal_figures::{Anchor, Drawing, Scale, TimeUnit, logarithmic_ticks, steps, thinned, tick_text, ticks};

/// From this quotient of largest to smallest loss on, a straight axis would show a flat line.
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

/// The loss, on a logarithmic axis where it falls far.
pub(super) fn draw_loss(samples: &[Sample], layout: &Layout<'_>, drawing: &mut Drawing) {
    let panel = layout.loss_panel;
    let Some((low, high)) = loss_range(samples) else {
        draw_title(&["Mean loss", "per record"], panel, drawing);
        draw_levels(&[], &Scale::linear((0.0, 1.0), panel.bottom, panel.top), layout, drawing);
        draw_not_numbers(samples, layout, drawing);
        return draw_nothing("no loss was measured", panel, layout, drawing);
    };
    let scale = if low > 0.0 && high / low >= LOGARITHMIC_FROM {
        draw_title(&["Mean loss", "per record", "(log scale)"], panel, drawing);
        let range = ((low * 0.9).max(f64::MIN_POSITIVE), (high * 1.1).min(f64::MAX));
        let scale = Scale::logarithmic(range, panel.bottom, panel.top);
        draw_levels(&logarithmic_ticks(range), &scale, layout, drawing);
        scale
    } else {
        draw_title(&["Mean loss", "per record"], panel, drawing);
        let range = (low.min(0.0), if high > low.min(0.0) { high * 1.05 } else { low.min(0.0) + 1.0 });
        let scale = Scale::linear(range, panel.bottom, panel.top);
        draw_levels(&ticks(range, 5), &scale, layout, drawing);
        scale
    };
    let place = |(at, loss): &(f64, f64)| (layout.time.at(*at), scale.at(*loss));
    let runs: Vec<Vec<_>> = loss_runs(samples).iter().map(|run| run.iter().map(place).collect()).collect();
    drawing.path("s-curve", &runs);
    draw_last_loss(samples, &scale, layout, drawing);
    draw_not_numbers(samples, layout, drawing);
}

/// The smallest and largest loss that is a number.
fn loss_range(samples: &[Sample]) -> Option<(f64, f64)> {
    samples.iter().filter_map(finite_loss).fold(None, |range, loss| match range {
        None => Some((loss, loss)),
        Some((low, high)) => Some((loss.min(low), loss.max(high))),
    })
}

/// Points `(seconds, loss)`, cut wherever a sample has no loss, and thinned to what can be seen.
fn loss_runs(samples: &[Sample]) -> Vec<Vec<(f64, f64)>> {
    let runs = samples.split(|sample| finite_loss(sample).is_none()).filter(|run| !run.is_empty());
    runs.map(|run| {
        let points: Vec<_> =
            run.iter().filter_map(|sample| Some((sample.at_seconds, finite_loss(sample)?))).collect();
        thinned(&points, samples.len())
    })
    .collect()
}

fn finite_loss(sample: &Sample) -> Option<f64> {
    sample.loss.filter(|loss| loss.is_finite() && sample.at_seconds.is_finite())
}

/// The number a reader looks for.
fn draw_last_loss(samples: &[Sample], scale: &Scale, layout: &Layout<'_>, drawing: &mut Drawing) {
    let last = samples.iter().rev().find_map(|sample| Some((sample.at_seconds, finite_loss(sample)?)));
    if let Some((at, loss)) = last {
        let (x, y) = (layout.time.at(at), scale.at(loss));
        drawing.path("s-dot", &[vec![(x, y)]]);
        let text =
            if (0.001..1e6).contains(&loss.abs()) { format!("{loss:.3}") } else { format!("{loss:.2e}") };
        drawing.text("s-small s-label s-strong", x, y - 9.0, Anchor::End, &text);
    }
}

fn draw_not_numbers(samples: &[Sample], layout: &Layout<'_>, drawing: &mut Drawing) {
    let first = samples.iter().find(|sample| sample.loss.is_some_and(|loss| !loss.is_finite()));
    if let Some(sample) = first {
        let text = format!("loss is not a number at {}", seconds(sample.at_seconds));
        let (x, y) = (layout.left + 8.0, layout.loss_panel.bottom - 8.0);
        drawing.text("s-small s-label s-kill", x, y, Anchor::Start, &text);
    }
}

/// Ticks and the unit under the lowest panel.
pub(super) fn draw_time_axis(layout: &Layout<'_>, drawing: &mut Drawing) {
    let bottom = layout.loss_panel.bottom;
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
