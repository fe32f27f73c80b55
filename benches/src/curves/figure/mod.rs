//! The figure: for each set accuracy over epochs, synchronous jobs at the left, asynchronous ones at the right, and under each
//! how many trainers the elastic job had. It must never need anything outside itself. Pure.

mod panel;

use super::judge::Judged;
use super::print;
use super::results::{Mode, Results, Trainers};
use panel::{Frame, Panel};
use shoal_figures::{Anchor, Drawing, Picture};

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 28.0;
/// The left and right edge of the panels, and what is between them.
const PANELS: [[f64; 2]; 2] = [[68.0, 476.0], [540.0, 932.0]];
const HEADER_HEIGHT: f64 = 88.0;
/// Of one set.
const SET_HEIGHT: f64 = 382.0;

/// A standalone SVG.
pub(crate) fn svg(results: &Results, judged: &[Judged]) -> String {
    let height = HEADER_HEIGHT + SET_HEIGHT * results.sets.len() as f64;
    let mut drawing = Drawing::default();
    draw_header(&mut drawing);
    for (index, (set, judged)) in results.sets.iter().zip(judged).enumerate() {
        let top = HEADER_HEIGHT + SET_HEIGHT * index as f64;
        drawing.text("c-strong", MARGIN, top + 20.0, Anchor::Start, judged.set());
        drawing.text("c-small c-muted", MARGIN, top + 39.0, Anchor::Start, &print::headline(set));
        let modes = [Mode::Sync, Mode::Async].into_iter().filter(|mode| set.has(*mode));
        for (mode, [left, right]) in modes.zip(PANELS) {
            let frame = Frame { left, right, top: top + 62.0 };
            Panel { set, judged, mode, frame }.draw(&mut drawing);
        }
    }
    let picture = Picture {
        prefix: "c",
        name: "figure",
        size: (WIDTH, height),
        title: "Accuracy over epochs with 2, 4, and 2 to 4 trainers",
        told: &told(results, judged),
        style: STYLE,
        defs: "",
    };
    picture.svg(drawing)
}

fn draw_header(drawing: &mut Drawing) {
    let title = "Accuracy on held-out images while trainers come and go";
    drawing.text("c-title", MARGIN, 34.0, Anchor::Start, title);
    let mut x = MARGIN;
    for (trainers, word, width) in [
        (Trainers::Few, "2 trainers", 132.0),
        (Trainers::Many, "4 trainers", 132.0),
        (Trainers::Elastic, "2 to 4 trainers, changing while they train", 0.0),
    ] {
        let class = panel::class(trainers);
        drawing.line(&format!("c-{class} c-nested"), (x + 6.0, 60.0), (x + 36.0, 60.0));
        drawing.text("c-text c-small", x + 48.0, 64.0, Anchor::Start, word);
        x += width;
    }
}

/// The figure in words, for who cannot see it.
fn told(results: &Results, judged: &[Judged]) -> String {
    let of_set = |(set, judged): (_, &Judged)| {
        let row = |row: &print::Row| {
            let mean = 100.0 * row.accuracy.mean;
            format!("{} with {} trainers {mean:.2} %", row.mode, row.trainers)
        };
        let rows: Vec<String> = print::rows(set).iter().map(row).collect();
        let verdict = print::verdict(judged).unwrap_or_default();
        format!("{}, after the last epoch: {}; {verdict}.", judged.set(), rows.join(", "))
    };
    results.sets.iter().zip(judged).map(of_set).collect::<Vec<_>>().join(" ")
}

/// Colours after Okabe and Ito (2008), darkened or lightened until they stand out from the card.
const STYLE: &str = "\
.c-strong{font-size:16px}
.c-small{font-size:12px}
.c-few{--c:#0072b2}
.c-many{--c:#c26a00}
.c-elastic{--c:#00785a}
.c-curve,.c-nested{fill:none;stroke:var(--c);stroke-linejoin:round;stroke-linecap:round}
.c-curve{stroke-width:2}
.c-few.c-nested{stroke-width:13;opacity:.45}
.c-many.c-nested{stroke-width:7}
.c-elastic.c-nested{stroke-width:2.4}
.c-band{fill:var(--c);opacity:.16}
.c-dot{fill:var(--c)}
.c-word{fill:var(--c);font-weight:600}
.c-live{fill:none;stroke:#00785a;stroke-width:1.8;stroke-linejoin:round}
.c-under{fill:#00785a;opacity:.12}
.c-bad{fill:#c2410c;font-weight:650}
@media(prefers-color-scheme:dark){
.c-few{--c:#4fa8dc}
.c-many{--c:#f0a830}
.c-elastic{--c:#3fcfa4}
.c-live{stroke:#3fcfa4}
.c-under{fill:#3fcfa4}
.c-bad{fill:#ff8b4d}
}
";

#[cfg(test)]
mod tests {
    use super::super::judge;
    use super::super::results::samples;
    use super::*;

    fn drawn(results: &Results) -> String {
        svg(results, &judge::all(results))
    }

    #[test]
    fn every_job_has_its_curve_and_the_figure_loads_nothing() {
        let svg = drawn(&samples::results());
        // Three in the legend, three in the panel.
        assert_eq!(svg.matches("c-nested\"").count(), 6, "{svg}");
        assert_eq!(svg.matches("c-curve\"").count(), 3);
        assert_eq!(svg.matches("c-band\"").count(), 3);
        assert_eq!(svg.matches("class=\"c-live\"").count(), 2);
        assert!(svg.contains("equal bit for bit") && !svg.contains("c-bad\""));
        let without_names = svg.replace("http://www.w3.org/2000/svg", "");
        for forbidden in ["<script", "http", "url(", "<image", "@import"] {
            assert!(!without_names.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn what_differs_is_said_in_the_figure() {
        let mut results = samples::results();
        results.sets[0].curves[6].parameters_sha256 = "x".to_owned();
        let svg = drawn(&results);
        assert!(svg.contains("c-bad\"") && svg.contains("NOT equal"));
    }

    #[test]
    fn sets_stand_one_under_the_other_and_a_mode_that_was_not_trained_has_no_panel() {
        let mut results = samples::results();
        let mut other = results.sets[0].clone();
        other.curves.retain(|curve| curve.mode == Mode::Async);
        results.sets.push(other);
        let svg = drawn(&results);
        assert_eq!(svg.matches("class=\"c-live\"").count(), 3);
        assert!(svg.contains("viewBox=\"0 0 960 852\""), "{}", &svg[..200]);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
