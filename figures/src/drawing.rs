//! An SVG under construction: the few shapes that figures need, every text escaped on its way in.
//! It must never take markup from its callers' values, and never write a number that is not finite.

use crate::text::escape;
use std::fmt::Write;

/// Which end of a text its position names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Its first letter.
    Start,
    /// Its middle.
    Middle,
    /// Its last letter.
    End,
}

/// Shapes in the order in which they were drawn, later ones on top.
#[derive(Clone, Debug, Default)]
pub struct Drawing {
    shapes: String,
}

impl Drawing {
    /// A text whose `anchor` is at the place.
    pub fn text(&mut self, class: &str, x: f64, y: f64, anchor: Anchor, text: &str) {
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

    /// A straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (finite(from.0), finite(from.1), finite(to.0), finite(to.1));
        self.push(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    /// A rectangle with a word for whoever rests the pointer on it.
    pub fn bar(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), word: &str) {
        let (x, y, word) = (finite(corner.0), finite(corner.1), escape(word));
        let (width, height) = (finite(size.0).max(0.0), finite(size.1).max(0.0));
        self.push(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="3"><title>{word}</title></rect>"#
        ));
    }

    /// Lines through points, one path for each run of points.
    pub fn path(&mut self, class: &str, runs: &[Vec<(f64, f64)>]) {
        let mut steps = String::new();
        for run in runs {
            through(run, &mut steps);
            if let [(x, y)] = run.as_slice() {
                // A run of one point is drawn as the dot of a round cap.
                let _ = write!(steps, "L{:.1} {:.1}", finite(*x), finite(*y));
            }
        }
        if !steps.is_empty() {
            self.push(format_args!(r#"<path class="{class}" d="{steps}"/>"#));
        }
    }

    /// The area that a line through points encloses.
    pub fn area(&mut self, class: &str, outline: &[(f64, f64)]) {
        let mut steps = String::new();
        through(outline, &mut steps);
        if !steps.is_empty() {
            self.push(format_args!(r#"<path class="{class}" d="{steps}Z"/>"#));
        }
    }

    /// A dot with a word for whoever rests the pointer on it.
    pub fn dot(&mut self, class: &str, at: (f64, f64), radius: f64, word: &str) {
        let (x, y, radius, word) = (finite(at.0), finite(at.1), finite(radius).max(0.0), escape(word));
        self.push(format_args!(
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius}"><title>{word}</title></circle>"#
        ));
    }

    /// A shape given by its own relative path, moved to a point.
    pub fn mark(&mut self, class: &str, at: (f64, f64), steps: &str) {
        let (x, y) = (finite(at.0), finite(at.1));
        self.push(format_args!(r#"<path class="{class}" d="M{x:.1} {y:.1}{steps}"/>"#));
    }

    /// The shapes drawn so far.
    pub fn into_shapes(self) -> String {
        self.shapes
    }

    fn push(&mut self, shape: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.shapes.write_fmt(shape);
        self.shapes.push('\n');
    }
}

/// Steps of a path through points.
fn through(points: &[(f64, f64)], steps: &mut String) {
    for (index, (x, y)) in points.iter().enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        let _ = write!(steps, "{letter}{:.1} {:.1}", finite(*x), finite(*y));
    }
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_never_markup() {
        let mut drawing = Drawing::default();
        drawing.text("a", 1.0, 2.0, Anchor::End, "<script> & \"'");
        drawing.dot("b", (1.0, 2.0), 3.0, "</title>");
        assert_eq!(
            drawing.into_shapes(),
            "<text class=\"a\" x=\"1.0\" y=\"2.0\" text-anchor=\"end\">&lt;script&gt; &amp; &quot;&#39;</text>\n\
             <circle class=\"b\" cx=\"1.0\" cy=\"2.0\" r=\"3\"><title>&lt;/title&gt;</title></circle>\n"
        );
    }

    #[test]
    fn what_is_no_number_is_never_written_and_what_has_no_points_is_no_shape() {
        let mut drawing = Drawing::default();
        drawing.path("a", &[vec![(f64::NAN, f64::INFINITY)]]);
        drawing.path("a", &[]);
        drawing.area("a", &[]);
        drawing.area("a", &[(0.0, 0.0), (1.0, 0.0), (1.0, f64::NEG_INFINITY)]);
        assert_eq!(
            drawing.into_shapes(),
            "<path class=\"a\" d=\"M0.0 0.0L0.0 0.0\"/>\n<path class=\"a\" d=\"M0.0 0.0L1.0 0.0L1.0 0.0Z\"/>\n"
        );
    }
}
