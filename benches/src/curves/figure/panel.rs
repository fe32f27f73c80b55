//! One panel: the curves of one set in one mode, and below them how many trainers the elastic job had. Pure.

use super::super::changes::MANY;
use super::super::judge::{Judged, Range, Spread};
use super::super::results::{Curve, Mode, OfSet, Trainers};
use shoal_figures::{Anchor, Drawing, Scale, steps, ticks};

const PLOT_HEIGHT: f64 = 200.0;
const PLOT_TOP: f64 = 14.0;
const STRIP_GAP: f64 = 18.0;
const STRIP_HEIGHT: f64 = 38.0;
/// Epochs with a number of their own at most.
const EPOCHS_NAMED: u32 = 12;

/// Where a panel is.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    /// Of its caption.
    pub(super) top: f64,
}

pub(super) struct Panel<'a> {
    pub(super) set: &'a OfSet,
    pub(super) judged: &'a Judged,
    pub(super) mode: Mode,
    pub(super) frame: Frame,
}

impl Panel<'_> {
    pub(super) fn draw(&self, drawing: &mut Drawing) {
        self.draw_caption(drawing);
        self.draw_grid(drawing);
        match self.mode {
            Mode::Sync => self.draw_nested(drawing),
            Mode::Async => self.draw_spreads(drawing),
        }
        self.draw_strip(drawing);
    }

    fn draw_caption(&self, drawing: &mut Drawing) {
        let Frame { left, top, .. } = self.frame;
        let seeds = self.judged.spreads.iter().map(|spread| spread.seeds).max().unwrap_or(0);
        let (class, caption) = match (self.mode, &self.judged.sync) {
            (Mode::Async, _) if seeds == 1 => ("c-text", "Asynchronous, one seed".to_owned()),
            (Mode::Async, _) => ("c-text", format!("Asynchronous: mean, least and most of {seeds} seeds")),
            (Mode::Sync, Some(sync)) if sync.is_equal => {
                ("c-text", format!("Synchronous: {} curves, equal bit for bit", sync.jobs))
            }
            (Mode::Sync, _) => ("c-bad", "Synchronous: the curves are NOT equal".to_owned()),
        };
        drawing.text(&format!("c-small {class}"), left, top, Anchor::Start, &caption);
    }

    fn plot(&self) -> [f64; 2] {
        let top = self.frame.top + PLOT_TOP;
        [top, top + PLOT_HEIGHT]
    }

    fn epochs(&self) -> Scale {
        Scale::linear((0.0, f64::from(self.set.epochs)), self.frame.left, self.frame.right)
    }

    /// In percent; the same for all panels of a set.
    fn accuracies(&self) -> (f64, f64) {
        let figures = self.set.curves.iter().flat_map(|curve| &curve.evaluations);
        let figures: Vec<f64> = figures.map(|evaluation| 100.0 * evaluation.accuracy).collect();
        let Range { min, max, .. } = Range::of(figures);
        let room = (0.06 * (max - min)).max(0.05);
        ((min - room).max(0.0), (max + room).min(100.0))
    }

    fn heights(&self) -> Scale {
        let [top, bottom] = self.plot();
        Scale::linear(self.accuracies(), bottom, top)
    }

    fn draw_grid(&self, drawing: &mut Drawing) {
        let (epochs, heights, [_, bottom]) = (self.epochs(), self.heights(), self.plot());
        let Frame { left, right, .. } = self.frame;
        let ticks = ticks(self.accuracies(), 6);
        let is_whole = ticks.iter().all(|tick| (tick - libm::round(*tick)).abs() < 1e-9);
        for tick in ticks {
            let y = heights.at(tick);
            drawing.line("c-grid", (left, y), (right, y));
            let text = if is_whole { format!("{tick:.0} %") } else { format!("{tick:.1} %") };
            drawing.text("c-small c-muted", left - 7.0, y + 4.0, Anchor::End, &text);
        }
        drawing.line("c-axis", (left, bottom), (right, bottom));
        let strip = self.strip();
        let every = self.set.epochs.div_ceil(EPOCHS_NAMED).max(1);
        for epoch in (0..=self.set.epochs).step_by(every as usize) {
            let x = epochs.at(f64::from(epoch));
            drawing.line("c-axis", (x, strip[1]), (x, strip[1] + 4.0));
            drawing.text("c-small c-muted", x, strip[1] + 17.0, Anchor::Middle, &epoch.to_string());
        }
        let middle = (left + right) / 2.0;
        drawing.text("c-small c-muted", middle, strip[1] + 33.0, Anchor::Middle, "epochs");
    }

    /// Curves that are equal hide one another: the ones below are wider.
    fn draw_nested(&self, drawing: &mut Drawing) {
        let (epochs, heights) = (self.epochs(), self.heights());
        let at =
            |(index, accuracy): (usize, f64)| (epochs.at((index + 1) as f64), heights.at(100.0 * accuracy));
        let mut last = None;
        for curve in Trainers::ALL.into_iter().flat_map(|trainers| self.set.of(Mode::Sync, trainers)) {
            let figures = curve.evaluations.iter().map(|evaluation| evaluation.accuracy);
            let points: Vec<(f64, f64)> = figures.enumerate().map(at).collect();
            let class = class(curve.trainers);
            drawing.path(&format!("c-{class} c-nested"), std::slice::from_ref(&points));
            if curve.trainers == Trainers::Elastic {
                for (point, evaluation) in points.iter().zip(&curve.evaluations) {
                    let word = format!("{:.2} %", 100.0 * evaluation.accuracy);
                    drawing.dot(&format!("c-{class} c-dot"), *point, 3.4, &word);
                }
            }
            last = Some(curve);
        }
        let Some(Curve { parameters_sha256, .. }) = last else { return };
        let accuracy = last.map_or(0.0, Curve::accuracy);
        let words = match self.judged.sync_is_equal() {
            true => format!("at the end {:.2} %, sha256 {parameters_sha256:.12}…", 100.0 * accuracy),
            false => self.judged.sync.as_ref().and_then(|sync| sync.difference.clone()).unwrap_or_default(),
        };
        let class = if self.judged.sync_is_equal() { "c-small c-text" } else { "c-small c-bad" };
        drawing.text(class, self.frame.right - 6.0, self.plot()[1] - 12.0, Anchor::End, &words);
    }

    fn draw_spreads(&self, drawing: &mut Drawing) {
        let (epochs, heights) = (self.epochs(), self.heights());
        let points = |spread: &Spread, of: fn(&Range) -> f64| -> Vec<(f64, f64)> {
            let at = |(index, range)| (epochs.at((index + 1) as f64), heights.at(100.0 * of(range)));
            spread.accuracy.iter().enumerate().map(at).collect()
        };
        for spread in &self.judged.spreads {
            let mut around = points(spread, |range| range.max);
            around.extend(points(spread, |range| range.min).into_iter().rev());
            drawing.area(&format!("c-{} c-band", class(spread.trainers)), &around);
        }
        for spread in &self.judged.spreads {
            let (class, means) = (class(spread.trainers), points(spread, |range| range.mean));
            drawing.path(&format!("c-{class} c-curve"), std::slice::from_ref(&means));
            for (point, Range { min, mean, max }) in means.into_iter().zip(&spread.accuracy) {
                let [min, mean, max] = [min, mean, max].map(|value| 100.0 * value);
                let word = format!("{} trainers: {mean:.2} % ({min:.2} to {max:.2})", of(spread.trainers));
                drawing.dot(&format!("c-{class} c-dot"), point, 3.0, &word);
            }
        }
        for (row, spread) in self.judged.spreads.iter().rev().enumerate() {
            let Some(Range { min, mean, max }) = spread.accuracy.last() else { continue };
            let [min, mean, max] = [min, mean, max].map(|value| 100.0 * value);
            let range = if spread.seeds > 1 { format!(" ({min:.2} to {max:.2})") } else { String::new() };
            let words = format!("{} trainers: {mean:.2} %{range}", of(spread.trainers));
            let (x, y) = (self.frame.right - 6.0, self.plot()[1] - 12.0 - 17.0 * row as f64);
            drawing.text(&format!("c-small c-word c-{}", class(spread.trainers)), x, y, Anchor::End, &words);
        }
    }

    fn strip(&self) -> [f64; 2] {
        let top = self.plot()[1] + STRIP_GAP;
        [top, top + STRIP_HEIGHT]
    }

    /// The number of trainers of the first elastic job.
    fn draw_strip(&self, drawing: &mut Drawing) {
        let ([top, bottom], epochs) = (self.strip(), self.epochs());
        let Frame { left, right, .. } = self.frame;
        let trainers = Scale::linear((0.0, f64::from(MANY) + 0.5), bottom, top);
        drawing.line("c-axis", (left, bottom), (right, bottom));
        for tick in [2, MANY] {
            let y = trainers.at(f64::from(tick));
            drawing.line("c-grid", (left, y), (right, y));
            drawing.text("c-small c-muted", left - 7.0, y + 4.0, Anchor::End, &tick.to_string());
        }
        let Some(curve) = self.set.of(self.mode, Trainers::Elastic).next() else { return };
        let live = curve.live.iter();
        let place = live.map(|live| (epochs.at(live.epoch), trainers.at(f64::from(live.trainers))));
        let points = steps(place, right);
        let Some(((first, _), (last, _))) = points.first().copied().zip(points.last().copied()) else {
            return;
        };
        drawing.area("c-under", &[&[(first, bottom)], points.as_slice(), &[(last, bottom)]].concat());
        drawing.path("c-live", &[points]);
        drawing.text("c-small c-muted", right, top - 3.0, Anchor::End, "trainers of the elastic job");
    }
}

/// Such a number of trainers in words.
fn of(trainers: Trainers) -> &'static str {
    match trainers {
        Trainers::Few => "2",
        Trainers::Many => "4",
        Trainers::Elastic => "2 to 4",
    }
}

/// What shapes of such jobs are called in the style.
pub(super) fn class(trainers: Trainers) -> &'static str {
    match trainers {
        Trainers::Few => "few",
        Trainers::Many => "many",
        Trainers::Elastic => "elastic",
    }
}
