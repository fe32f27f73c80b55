//! The picture: members, live trainers, steps, loss and metrics over one time axis, with every fault across all of them.
//! It must never need anything outside itself: no font, script, style sheet or image is loaded.

use super::layout::Layout;
use super::sheet::{MARGIN, WIDTH};
use super::{Run, curves, lanes, markers};
use shoal_figures::text::{counted, seconds, shortened, width};
use shoal_figures::{Anchor, Drawing, Picture};

const TICK: &str = "m-5 0l4 4l7 -8";
const CROSS: &str = "m-4 -4l8 8m0 -8l-8 8";

/// A standalone SVG, 960 pixels wide.
pub fn svg(run: &Run) -> String {
    let layout = Layout::of(run);
    let mut drawing = Drawing::default();
    draw_header(run, &mut drawing);
    markers::draw_lines(&layout.markers, layout.bottom, &mut drawing);
    lanes::draw(&layout, &mut drawing);
    curves::draw_live(&run.samples, &layout, &mut drawing);
    curves::draw_steps(&run.samples, &layout, &mut drawing);
    curves::draw_loss(&run.samples, &layout, &mut drawing);
    curves::draw_metrics(&run.metrics, &layout, &mut drawing);
    curves::draw_time_axis(&layout, &mut drawing);
    markers::draw_labels(&layout.markers, &mut drawing);
    let picture = Picture {
        prefix: "s",
        name: "run",
        size: (WIDTH, layout.height),
        title: &run.title,
        told: &told(run),
        style: STYLE,
        defs: HATCH,
    };
    picture.svg(drawing)
}

/// The picture in words, for who cannot see it.
fn told(run: &Run) -> String {
    let faults: Vec<String> = run.faults.iter().map(markers::sentence).collect();
    let verdicts: Vec<&str> = run.verdicts.iter().map(|verdict| verdict.text.as_str()).collect();
    format!("{}. {} {}", summary(run), faults.join("; "), verdicts.join("; ")).trim().to_owned()
}

fn summary(run: &Run) -> String {
    let parts = [
        shortened(&run.job, 40),
        seconds(run.seconds),
        counted(run.epochs, "epoch"),
        counted(run.steps, "step"),
        counted(run.faults.len() as u64, "fault"),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
}

fn draw_header(run: &Run, drawing: &mut Drawing) {
    drawing.text("s-title", MARGIN, 32.0, Anchor::Start, &shortened(&run.title, 72));
    drawing.text("s-small s-muted", MARGIN, 51.0, Anchor::Start, &summary(run));
    let held = run.verdicts.iter().filter(|verdict| verdict.holds).count();
    let (text, mark, class) = match run.verdicts.len() {
        0 => return,
        all if held == all => (format!("{held} of {all} checks hold"), TICK, "s-join"),
        all => (format!("{} of {all} checks failed", all - held), CROSS, "s-kill"),
    };
    let right = WIDTH - MARGIN;
    drawing.text(&format!("s-small s-label {class}"), right, 51.0, Anchor::End, &text);
    drawing.mark(&format!("s-mark {class}"), (right - width(&text) - 10.0, 47.0), mark);
}

/// What stood still.
const HATCH: &str = r#"<pattern id="s-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="s-hatch-ground" width="6" height="6"/><rect class="s-hatch-stripe" width="2" height="6"/></pattern>"#;

/// Colours after Okabe and Ito (2008), darkened or lightened until small text in them stands out from the card.
const STYLE: &str = "\
.s-inside{fill:#fff}
.s-label{font-weight:600;stroke:#fff;stroke-width:3.5px;stroke-linejoin:round;paint-order:stroke}
.s-trainer{fill:#0072b2}
.s-other{fill:#6e7781}
.s-frozen{fill:url(#s-hatch)}
.s-hatch-ground{fill:#f7e6f0}
.s-hatch-stripe{fill:#cc79a7}
.s-curve{fill:none;stroke:#0072b2;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.s-dot{stroke:#0072b2;stroke-width:7;stroke-linecap:round}
.s-area{fill:#0072b2;opacity:.12}
.s-fault{stroke-dasharray:3 3;stroke-width:1.2;opacity:.75}
line.s-join{stroke:#00785a}
line.s-leave{stroke:#59636e}
line.s-kill{stroke:#c2410c}
line.s-freeze{stroke:#9c3f76}
text.s-join,rect.s-join{fill:#00785a}
text.s-leave,rect.s-leave{fill:#59636e}
text.s-kill,rect.s-kill{fill:#c2410c}
text.s-freeze,rect.s-freeze{fill:#9c3f76}
.s-mark{fill:none;stroke-width:2.6;stroke-linecap:round;stroke-linejoin:round}
.s-halo{fill:none;stroke:#fff;stroke-width:6.5;stroke-linecap:round;stroke-linejoin:round}
.s-mark.s-kill{stroke:#c2410c}
.s-mark.s-join{stroke:#00785a}
.s-mark.s-left{fill:#59636e}
@media(prefers-color-scheme:dark){
.s-inside{fill:#0d1117}
.s-label{stroke:#161b22}
.s-trainer{fill:#4fa8dc}
.s-other{fill:#8b949e}
.s-hatch-ground{fill:#3a2331}
.s-hatch-stripe{fill:#b3648f}
.s-curve,.s-dot{stroke:#4fa8dc}
.s-area{fill:#4fa8dc}
line.s-join{stroke:#3fcfa4}
line.s-leave{stroke:#9198a1}
line.s-kill{stroke:#ff8b4d}
line.s-freeze{stroke:#e39bc6}
text.s-join,rect.s-join{fill:#3fcfa4}
text.s-leave,rect.s-leave{fill:#9198a1}
text.s-kill,rect.s-kill{fill:#ff8b4d}
text.s-freeze,rect.s-freeze{fill:#f0b3d6}
.s-mark.s-kill{stroke:#ff8b4d}
.s-mark.s-join{stroke:#3fcfa4}
.s-halo{stroke:#161b22}
.s-mark.s-left{fill:#c9d1d9}
}
";
