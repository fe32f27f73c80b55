//! The top panel: a swim lane for every member, a bar for every process in it, hatched where it stood still.
//! It must never tell by colour alone: how a process ended and where it froze is a mark and a word.

use super::Member;
use super::layout::{Lane, Layout};
use super::sheet::{MARGIN, NAME_CHARACTERS, WIDTH};
use shoal_figures::text::{seconds, shortened, width};
use shoal_figures::{Anchor, Drawing};

const CROSS: &str = "m-4 -4l8 8m0 -8l-8 8";
const ARROW: &str = "m1 -6l9 6l-9 6z";
/// From a bar's end to the word beyond it.
const MARK_ROOM: f64 = 13.0;
/// From a word to the bar's end it stands before.
const WORD_ROOM: f64 = 11.0;

/// Names to the left, bars under the time axis.
pub(super) fn draw(layout: &Layout<'_>, drawing: &mut Drawing) {
    for (index, lane) in layout.lanes.iter().enumerate() {
        let middle = layout.lane_panel.top + (index as f64 + 0.5) * layout.lane_height;
        let name = shortened(lane.name, NAME_CHARACTERS);
        drawing.text("s-small s-text", MARGIN, middle + 4.0, Anchor::Start, &name);
        drawing.line("s-grid", (layout.left, middle), (layout.right, middle));
        for member in &lane.members {
            draw_bar(layout, lane, member, middle, drawing);
        }
        // After all bars of the lane: a successor's bar may begin under the mark.
        for (place, member) in lane.members.iter().enumerate() {
            let room_ends = lane.members.get(place + 1).map(|next| layout.time.at(next.from_seconds));
            draw_end(layout, member, middle, room_ends, drawing);
        }
    }
}

fn draw_bar(layout: &Layout<'_>, lane: &Lane<'_>, member: &Member, middle: f64, drawing: &mut Drawing) {
    let height = (layout.lane_height - 8.0).min(15.0);
    let (from, to) = (layout.time.at(member.from_seconds), layout.time.at(member.to_seconds));
    let class = if lane.role == "trainer" { "s-trainer" } else { "s-other" };
    drawing.bar(class, (from, middle - height / 2.0), ((to - from).max(2.0), height), &life(member));
    for (since, until) in &member.frozen {
        let (since, until) = (layout.time.at(*since).max(from), layout.time.at(*until).min(to));
        draw_frozen(member, since, until, middle, height, drawing);
    }
}

/// The mark of an end, and its word: in the bar where that is plain and long enough, else beyond it where that is
/// free. `room_ends` is where the next bar of the lane begins.
fn draw_end(
    layout: &Layout<'_>,
    member: &Member,
    middle: f64,
    room_ends: Option<f64>,
    drawing: &mut Drawing,
) {
    let Some((mark, class)) = end_mark(&member.end) else { return };
    let to = layout.time.at(member.to_seconds);
    // Once in the card's colour, so that the mark stands out from the bar it touches.
    drawing.mark("s-halo", (to, middle), mark);
    drawing.mark(class, (to, middle), mark);
    let thawed = member.frozen.iter().map(|(_, until)| layout.time.at(*until));
    let plain_from = thawed.fold(layout.time.at(member.from_seconds), f64::max);
    let needed = width(&member.end) + MARK_ROOM + 4.0;
    if to - plain_from > needed {
        drawing.text("s-small s-inside", to - WORD_ROOM, middle + 4.0, Anchor::End, &member.end);
    } else if room_ends.unwrap_or(WIDTH - MARGIN / 2.0) - to > needed {
        drawing.text("s-small s-label s-muted", to + MARK_ROOM, middle + 4.0, Anchor::Start, &member.end);
    }
}

fn draw_frozen(member: &Member, since: f64, until: f64, middle: f64, height: f64, drawing: &mut Drawing) {
    if until <= since {
        return;
    }
    let word = format!("{} frozen", member.name);
    drawing.bar("s-frozen", (since, middle - height / 2.0), (until - since, height), &word);
    if until - since > width("frozen") + 8.0 {
        drawing.text(
            "s-small s-label s-freeze",
            (since + until) / 2.0,
            middle + 4.0,
            Anchor::Middle,
            "frozen",
        );
    }
}

/// A process that lived to the end of its work has no mark.
fn end_mark(end: &str) -> Option<(&'static str, &'static str)> {
    match end {
        "killed" => Some((CROSS, "s-mark s-kill")),
        "left" => Some((ARROW, "s-mark s-left")),
        _ => None,
    }
}

fn life(member: &Member) -> String {
    format!(
        "{} {}, process {}: {} to {}, {}",
        member.role,
        member.name,
        member.process,
        seconds(member.from_seconds),
        seconds(member.to_seconds),
        member.end
    )
}
