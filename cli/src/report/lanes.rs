//! The top panel: a swim lane for every member, a bar for every process in it, hatched where it stood still.
//! It must never tell by colour alone: how a process ended and where it froze is a mark and a word.

use super::Member;
use super::drawing::{Anchor, Drawing};
use super::layout::{Lane, Layout, MARGIN, NAME_CHARACTERS};
use super::text::{seconds, shortened, width};

const CROSS: &str = "m-4 -4l8 8m0 -8l-8 8";
const ARROW: &str = "m-3 -5l7 5l-7 5z";
/// From a bar's end to the word beyond it.
const MARK_ROOM: f64 = 9.0;

/// Names to the left, bars under the time axis.
pub(super) fn draw(layout: &Layout<'_>, drawing: &mut Drawing) {
    for (index, lane) in layout.lanes.iter().enumerate() {
        let middle = layout.lane_panel.top + (index as f64 + 0.5) * layout.lane_height;
        let name = shortened(lane.name, NAME_CHARACTERS);
        drawing.text("s-small s-text", MARGIN, middle + 4.0, Anchor::Start, &name);
        drawing.line("s-grid", (layout.left, middle), (layout.right, middle));
        for (place, member) in lane.members.iter().enumerate() {
            let room_ends = lane.members.get(place + 1).map(|next| layout.time.at(next.from_seconds));
            draw_member(layout, lane, member, middle, room_ends, drawing);
        }
    }
}

fn draw_member(
    layout: &Layout<'_>,
    lane: &Lane<'_>,
    member: &Member,
    middle: f64,
    room_ends: Option<f64>,
    drawing: &mut Drawing,
) {
    let height = (layout.lane_height - 8.0).min(15.0);
    let (from, to) = (layout.time.at(member.from_seconds), layout.time.at(member.to_seconds));
    let class = if lane.role == "trainer" { "s-trainer" } else { "s-other" };
    drawing.bar(class, (from, middle - height / 2.0), ((to - from).max(2.0), height), &life(member));
    let mut last_frozen = from;
    for (since, until) in &member.frozen {
        let (since, until) = (layout.time.at(*since).max(from), layout.time.at(*until).min(to));
        draw_frozen(member, since, until, middle, height, drawing);
        last_frozen = last_frozen.max(until);
    }
    let Some((mark, class)) = end_mark(&member.end) else { return };
    drawing.mark(class, (to, middle), mark);
    let needed = width(&member.end) + MARK_ROOM + 4.0;
    if to - last_frozen > needed {
        drawing.text("s-small s-inside", to - MARK_ROOM, middle + 4.0, Anchor::End, &member.end);
    } else if room_ends.is_none_or(|room_ends| room_ends - to > needed) {
        drawing.text("s-small s-muted", to + MARK_ROOM, middle + 4.0, Anchor::Start, &member.end);
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
