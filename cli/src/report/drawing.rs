//! An SVG under construction: the few shapes a report needs, every text escaped on its way in.
//! It must never take markup from its callers' values, and never write a number that is not finite.

use std::fmt::Write;

use super::text::escape;

/// Which end of a text its position names.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Shapes in the order in which they were drawn, later ones on top.
#[derive(Default)]
pub(crate) struct Drawing {
    shapes: String,
}

impl Drawing {
    pub(crate) fn text(&mut self, class: &str, x: f64, y: f64, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (finite(x), finite(y), escape(text));
        self.push(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (finite(from.0), finite(from.1), finite(to.0), finite(to.1));
        self.push(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    /// A rectangle with a word for whoever rests the pointer on it.
    pub(crate) fn bar(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), word: &str) {
        let (x, y, word) = (finite(corner.0), finite(corner.1), escape(word));
        let (width, height) = (finite(size.0).max(0.0), finite(size.1).max(0.0));
        self.push(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="3"><title>{word}</title></rect>"#
        ));
    }

    /// Lines through points, one path for each run of points.
    pub(crate) fn path(&mut self, class: &str, runs: &[Vec<(f64, f64)>]) {
        let mut steps = String::new();
        for run in runs {
            for (index, (x, y)) in run.iter().enumerate() {
                let letter = if index == 0 { 'M' } else { 'L' };
                let _ = write!(steps, "{letter}{:.1} {:.1}", finite(*x), finite(*y));
            }
            if let [(x, y)] = run.as_slice() {
                // A run of one point is drawn as the dot of a round cap.
                let _ = write!(steps, "L{:.1} {:.1}", finite(*x), finite(*y));
            }
        }
        if !steps.is_empty() {
            self.push(format_args!(r#"<path class="{class}" d="{steps}"/>"#));
        }
    }

    /// A shape given by its own relative path, moved to a point.
    pub(crate) fn mark(&mut self, class: &str, at: (f64, f64), steps: &str) {
        let (x, y) = (finite(at.0), finite(at.1));
        self.push(format_args!(r#"<path class="{class}" d="M{x:.1} {y:.1}{steps}"/>"#));
    }

    /// The shapes drawn so far.
    pub(crate) fn into_shapes(self) -> String {
        self.shapes
    }

    fn push(&mut self, shape: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.shapes.write_fmt(shape);
        self.shapes.push('\n');
    }
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}
