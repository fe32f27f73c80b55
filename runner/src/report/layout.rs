//! Where everything goes: one time axis shared by all panels, under rows of fault labels.
//! It must never depend on anything but the run, so that a picture can be compared byte for byte.

use super::markers::{self, Marker};
use super::sheet::{MARGIN, NAME_CHARACTERS};
use super::{Member, Run};
use shoal_figures::Scale;
use shoal_figures::text::{shortened, width};

const HEADER_HEIGHT: f64 = 68.0;
const LABEL_ROW_HEIGHT: f64 = 17.0;
const LIVE_HEIGHT: f64 = 66.0;
const STEP_HEIGHT: f64 = 66.0;
const LOSS_HEIGHT: f64 = 140.0;
const METRIC_HEIGHT: f64 = 90.0;
const PANEL_GAP: f64 = 24.0;
const AXIS_HEIGHT: f64 = 52.0;
const NARROWEST_GUTTER: f64 = 124.0;

/// One lane: the processes that had one role and one name, one after another.
pub(super) struct Lane<'a> {
    pub(super) name: &'a str,
    pub(super) role: &'a str,
    pub(super) members: Vec<&'a Member>,
}

/// A panel's top and bottom edge.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// The places of a picture.
pub(super) struct Layout<'a> {
    /// Seconds to pixels.
    pub(super) time: Scale,
    /// Seconds shown, above zero.
    pub(super) seconds: f64,
    /// The left and right edge of all panels.
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) lanes: Vec<Lane<'a>>,
    pub(super) lane_height: f64,
    pub(super) markers: Vec<Marker<'a>>,
    pub(super) lane_panel: Panel,
    pub(super) live_panel: Panel,
    pub(super) step_panel: Panel,
    pub(super) loss_panel: Panel,
    /// One for each metric.
    pub(super) metric_panels: Vec<Panel>,
    /// Of the lowest panel: the time axis is there.
    pub(super) bottom: f64,
    pub(super) height: f64,
}

impl<'a> Layout<'a> {
    pub(super) fn of(run: &'a Run) -> Self {
        let seconds = shown_seconds(run);
        let lanes = lanes_of(&run.members);
        let left = gutter(&lanes);
        let right = markers::right_edge(&run.faults, seconds, left);
        let time = Scale::linear((0.0, seconds), left, right);
        let (markers, rows) = markers::place(&run.faults, &time, HEADER_HEIGHT, LABEL_ROW_HEIGHT);
        let lane_height = if lanes.len() > 12 { 17.0 } else { 24.0 };
        let lane_panel =
            below(HEADER_HEIGHT + rows as f64 * LABEL_ROW_HEIGHT, lanes.len() as f64 * lane_height, 6.0);
        let live_panel = below(lane_panel.bottom, LIVE_HEIGHT, PANEL_GAP);
        let step_panel = below(live_panel.bottom, STEP_HEIGHT, PANEL_GAP);
        let loss_panel = below(step_panel.bottom, LOSS_HEIGHT, PANEL_GAP);
        let metric_panels = run.metrics.iter().scan(loss_panel, |above, _| {
            *above = below(above.bottom, METRIC_HEIGHT, PANEL_GAP);
            Some(*above)
        });
        let metric_panels: Vec<Panel> = metric_panels.collect();
        let bottom = metric_panels.last().unwrap_or(&loss_panel).bottom;
        let height = bottom + AXIS_HEIGHT;
        Self {
            time,
            seconds,
            left,
            right,
            lanes,
            lane_height,
            markers,
            lane_panel,
            live_panel,
            step_panel,
            loss_panel,
            metric_panels,
            bottom,
            height,
        }
    }
}

fn below(edge: f64, height: f64, gap: f64) -> Panel {
    Panel { top: edge + gap, bottom: edge + gap + height }
}

/// Long enough for the run and for everything that is said to have happened in it.
fn shown_seconds(run: &Run) -> f64 {
    let samples = run.samples.iter().map(|sample| sample.at_seconds);
    let faults = run.faults.iter().map(|fault| fault.at_seconds);
    let members = run.members.iter().map(|member| member.to_seconds);
    let all = samples.chain(faults).chain(members).chain([run.seconds]);
    let points = run.metrics.iter().flat_map(|metric| &metric.points).map(|point| point.at_seconds);
    let longest = all.chain(points).filter(|seconds| seconds.is_finite()).fold(0.0, f64::max);
    if longest > 0.0 { longest } else { 1.0 }
}

/// Lanes in the order in which their first processes are listed.
fn lanes_of(members: &[Member]) -> Vec<Lane<'_>> {
    let mut lanes: Vec<Lane<'_>> = Vec::new();
    for member in members {
        match lanes.iter_mut().find(|lane| lane.name == member.name && lane.role == member.role) {
            Some(lane) => lane.members.push(member),
            None => lanes.push(Lane { name: &member.name, role: &member.role, members: vec![member] }),
        }
    }
    lanes
}

fn gutter(lanes: &[Lane<'_>]) -> f64 {
    let widest = lanes.iter().map(|lane| width(&shortened(lane.name, NAME_CHARACTERS))).fold(0.0, f64::max);
    (MARGIN + widest + 16.0).max(NARROWEST_GUTTER)
}
