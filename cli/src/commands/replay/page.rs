//! What was inspected, as one page: norms step by step, and the table. Pure.

use shoal_figures::text::escape;
use shoal_figures::{Anchor, Drawing, Page, Picture, Scale, logarithmic_ticks, table, tick_text};

/// One step, as it is drawn.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub(super) step: u64,
    /// Norms of the mean gradients of the step, of its largest microbatch and of its largest record; none where they are not finite.
    pub(super) norms: [Option<f64>; 3],
    /// The largest record and where it lies.
    pub(super) record: String,
}

const SIZE: (f64, f64) = (960.0, 320.0);
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 40.0;
/// What tells the series apart, beside their colours: a line, a broken line, dots.
const NAMES: [&str; 3] = ["step", "largest microbatch", "largest record"];
const STYLE: &str = "
.i-s{fill:none;stroke:#0072b2;stroke-width:2.5}.i-m{fill:none;stroke:#d55e00;stroke-width:2;stroke-dasharray:5 4}
.i-r{fill:#009e73}
";

/// The page. `title`: which run; `lines`: what a terminal is shown before the table.
pub(super) fn html(
    title: &str,
    lines: &[String],
    steps: &[Drawn],
    headings: &[&str],
    rows: &[Vec<String>],
) -> String {
    let words: String = lines.iter().map(|line| format!("<p>{}</p>\n", escape(line))).collect();
    let body = format!(
        "<h1>{}</h1>\n{words}<figure>{}</figure>\n<h2>Steps</h2>\n{}\n\
         <p>Norms are of mean gradients: of a sum over records divided by its weight.</p>\n",
        escape(title),
        picture(steps),
        table(headings, rows)
    );
    Page { title, style: "", body: &body }.html()
}

fn picture(steps: &[Drawn]) -> String {
    let (first, last) =
        (steps.first().map_or(0, |drawn| drawn.step), steps.last().map_or(1, |drawn| drawn.step));
    let norms = || steps.iter().flat_map(|drawn| drawn.norms).flatten().filter(|norm| *norm > 0.0);
    let (low, high) = (norms().fold(f64::INFINITY, f64::min), norms().fold(0.0, f64::max));
    let (low, high) = if low < high { (low / 1.3, high * 1.3) } else { (0.1, 10.0) };
    let x = Scale::linear((first as f64 - 0.5, last as f64 + 0.5), LEFT, SIZE.0 - RIGHT);
    let y = Scale::logarithmic((low, high), SIZE.1 - BOTTOM, TOP);
    let mut drawing = Drawing::default();
    drawing.text("i-title", 20.0, 28.0, Anchor::Start, "Norm of the gradient, step by step");
    for tick in logarithmic_ticks((low, high)) {
        drawing.line("i-grid", (LEFT, y.at(tick)), (SIZE.0 - RIGHT, y.at(tick)));
        drawing.text("i-small i-muted", LEFT - 8.0, y.at(tick) + 4.0, Anchor::End, &tick_text(tick));
    }
    let every = ((last - first) / 20 + 1) as usize;
    for drawn in steps.iter().step_by(every) {
        let at = x.at(drawn.step as f64);
        drawing.text("i-small i-muted", at, SIZE.1 - BOTTOM + 18.0, Anchor::Middle, &drawn.step.to_string());
    }
    for (which, class) in ["i-s", "i-m"].into_iter().enumerate() {
        let points =
            steps.iter().filter_map(|drawn| Some((x.at(drawn.step as f64), y.at(drawn.norms[which]?))));
        drawing.path(class, &[points.collect()]);
    }
    for drawn in steps {
        if let Some(norm) = drawn.norms[2] {
            let word = format!("step {}: {}", drawn.step, drawn.record);
            drawing.dot("i-r", (x.at(drawn.step as f64), y.at(norm)), 4.0, &word);
        }
    }
    legend(&mut drawing);
    let told = format!(
        "Of steps {first} to {last}: the norm of the step's gradient, of its largest microbatch's, of its largest record's"
    );
    let picture = Picture {
        prefix: "i",
        name: "norms",
        size: SIZE,
        title: "Norms",
        told: &told,
        style: STYLE,
        defs: "",
    };
    picture.svg(drawing)
}

fn legend(drawing: &mut Drawing) {
    let mut at = SIZE.0 - RIGHT - 400.0;
    for (name, class) in NAMES.into_iter().zip(["i-s", "i-m", "i-r"]) {
        match class {
            "i-r" => drawing.dot(class, (at + 9.0, 24.0), 4.0, name),
            _ => drawing.path(class, &[vec![(at, 24.0), (at + 18.0, 24.0)]]),
        }
        drawing.text("i-small i-text", at + 24.0, 28.0, Anchor::Start, name);
        at += 48.0 + 7.0 * name.len() as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_drawn_and_nothing_of_a_record_is_taken_for_markup() {
        let drawn = |step: u64, norm: f64| Drawn {
            step,
            norms: [Some(norm), Some(2.0 * norm), Some(9.0 * norm)],
            record: "record 7, <a> chunk 1".to_owned(),
        };
        let steps = [drawn(56, 0.2), drawn(57, 4.0), Drawn { norms: [None; 3], ..drawn(58, 0.0) }];
        let page = html("run <1>", &[], &steps, &["#step"], &[vec!["56".to_owned()]]);
        assert!(
            page.contains("run &lt;1&gt;")
                && page.contains("record 7, &lt;a&gt; chunk 1")
                && !page.contains("<a>")
        );
        assert_eq!(page.matches("<circle class=\"i-r\"").count(), 3, "two steps, and the legend");
        assert!(!page.contains("NaN") && !page.contains("inf"));
        assert!(picture(&[]).contains("</svg>"));
    }
}
