//! Faults as labelled vertical lines whose labels never cover each other, however close the faults are.
//! It must never let a line cross a label: a later label that would touch an earlier one goes a row lower.

use super::Fault;
use super::sheet::{MARGIN, NAME_CHARACTERS, WIDTH};
use shoal_figures::text::{seconds, shortened, width};
use shoal_figures::{Anchor, Drawing, Scale};

/// Above so many faults, labels are the numbers of the page's table.
const MOST_NAMED: usize = 24;
const LINE_TO_LABEL: f64 = 5.0;
const BETWEEN_LABELS: f64 = 8.0;

/// A fault with its place.
pub(super) struct Marker<'a> {
    fault: &'a Fault,
    label: String,
    x: f64,
    /// The baseline of its label.
    y: f64,
}

/// The rightmost pixel the time axis may reach so that every label fits to the right of its line.
pub(super) fn right_edge(faults: &[Fault], shown_seconds: f64, left: f64) -> f64 {
    let most = WIDTH - MARGIN - 6.0;
    let edge_for = |(index, fault): (usize, &Fault)| {
        let share = (fault.at_seconds / shown_seconds).clamp(0.0, 1.0);
        let room = WIDTH - MARGIN / 2.0 - LINE_TO_LABEL - width(&label(faults.len(), index, fault)) - left;
        if share > 0.0 { left + room / share } else { most }
    };
    faults.iter().enumerate().map(edge_for).fold(most, f64::min)
}

/// Markers from left to right, and how many rows their labels take.
pub(super) fn place<'a>(
    faults: &'a [Fault],
    time: &Scale,
    top: f64,
    row_height: f64,
) -> (Vec<Marker<'a>>, usize) {
    let mut markers: Vec<Marker<'a>> = faults
        .iter()
        .enumerate()
        .map(|(index, fault)| Marker {
            fault,
            label: label(faults.len(), index, fault),
            x: time.at(fault.at_seconds),
            y: top,
        })
        .collect();
    markers.sort_by(|one, other| one.x.total_cmp(&other.x));
    // The right end of the last label in each row. Descending stairs: below every label that still reaches here.
    let mut ends: Vec<f64> = Vec::new();
    for marker in &mut markers {
        let row = ends.iter().rposition(|end| *end > marker.x).map_or(0, |row| row + 1);
        let end = marker.x + LINE_TO_LABEL + width(&marker.label) + BETWEEN_LABELS;
        if row == ends.len() {
            ends.push(end);
        } else {
            ends[row] = end;
        }
        marker.y = top + (row as f64 + 0.75) * row_height;
    }
    let rows = ends.len();
    (markers, rows)
}

/// The lines, which belong under everything else.
pub(super) fn draw_lines(markers: &[Marker<'_>], bottom: f64, drawing: &mut Drawing) {
    for marker in markers {
        let class = format!("s-fault {}", kind_class(&marker.fault.kind));
        drawing.line(&class, (marker.x, marker.y - 10.0), (marker.x, bottom));
    }
}

/// The labels, which belong above everything else.
pub(super) fn draw_labels(markers: &[Marker<'_>], drawing: &mut Drawing) {
    for marker in markers {
        let class = format!("s-small s-label {}", kind_class(&marker.fault.kind));
        drawing.text(&class, marker.x + LINE_TO_LABEL, marker.y, Anchor::Start, &marker.label);
        let class = format!("s-flag {}", kind_class(&marker.fault.kind));
        drawing.bar(&class, (marker.x - 1.5, marker.y - 10.0), (3.0, 13.0), &sentence(marker.fault));
    }
}

/// All that is known of a fault, for the pointer and for readers of the text alone.
pub(super) fn sentence(fault: &Fault) -> String {
    format!("{} {} {} at {}: {}", fault.kind, fault.role, fault.name, seconds(fault.at_seconds), fault.what)
}

fn label(faults: usize, index: usize, fault: &Fault) -> String {
    if faults > MOST_NAMED {
        return (index + 1).to_string();
    }
    format!("{} {}", shortened(&fault.kind, 12), shortened(&fault.name, NAME_CHARACTERS))
}

fn kind_class(kind: &str) -> &'static str {
    match kind {
        "join" => "s-join",
        "kill" | "lost" => "s-kill",
        "freeze" | "thaw" | "stopped" | "continues" | "memory" | "partition" | "slow" | "disk" | "heal" => {
            "s-freeze"
        }
        _ => "s-leave",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(at_seconds: f64) -> Fault {
        let text = |text: &str| text.to_owned();
        Fault {
            kind: text("kill"),
            role: text("trainer"),
            name: text("trainer-12"),
            at_seconds,
            what: text(""),
        }
    }

    #[test]
    fn no_label_is_crossed_by_another_label_or_line() {
        let times = [0.0, 0.1, 0.2, 3.0, 3.0, 3.1, 9.0, 9.9, 10.0, 10.0];
        let faults: Vec<Fault> = times.map(fault).into();
        let right = right_edge(&faults, 10.0, 124.0);
        let (markers, _) = place(&faults, &Scale::linear((0.0, 10.0), 124.0, right), 0.0, 17.0);
        for (index, marker) in markers.iter().enumerate() {
            let end = marker.x + LINE_TO_LABEL + width(&marker.label);
            assert!(end <= WIDTH - MARGIN / 2.0 + 1e-6, "{end} is outside");
            for later in &markers[index + 1..] {
                assert!(later.x >= end || later.y > marker.y, "{} starts under {}", later.x, marker.x);
            }
        }
    }

    #[test]
    fn rows_are_used_again_once_they_are_free() {
        let faults: Vec<Fault> = [0.0, 0.1, 5.0, 5.1].map(fault).into();
        let (_, rows) = place(&faults, &Scale::linear((0.0, 10.0), 124.0, 900.0), 0.0, 17.0);
        assert_eq!(rows, 2);
    }
}
