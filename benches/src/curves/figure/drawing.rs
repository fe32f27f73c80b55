//! An SVG under construction: the few shapes that curves need, every text escaped on its way in. Pure.

use std::fmt::Write;

/// Shapes in the order in which they were drawn, later ones on top.
#[derive(Default)]
pub(super) struct Drawing {
    shapes: String,
}

impl Drawing {
    /// `anchor` is the end of the text that the place names: start, middle or end.
    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text = escape(text);
        self.push(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.push(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    /// A line through points.
    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        self.push(format_args!(r#"<path class="{class}" d="{}"/>"#, steps(points)));
    }

    /// The area inside points.
    pub(super) fn area(&mut self, class: &str, points: &[(f64, f64)]) {
        self.push(format_args!(r#"<path class="{class}" d="{}Z"/>"#, steps(points)));
    }

    /// A dot with a word for whoever rests the pointer on it.
    pub(super) fn dot(&mut self, class: &str, (x, y): (f64, f64), radius: f64, word: &str) {
        let word = escape(word);
        self.push(format_args!(
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius}"><title>{word}</title></circle>"#
        ));
    }

    pub(super) fn into_shapes(self) -> String {
        self.shapes
    }

    fn push(&mut self, shape: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.shapes.write_fmt(shape);
        self.shapes.push('\n');
    }
}

fn steps(points: &[(f64, f64)]) -> String {
    let step = |(index, (x, y)): (usize, &(f64, f64))| {
        format!("{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' })
    };
    points.iter().enumerate().map(step).collect()
}

/// A text as XML and HTML take it.
pub(in super::super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_never_markup() {
        let mut drawing = Drawing::default();
        drawing.text("a", (1.0, 2.0), "end", "<script> & \"");
        assert_eq!(
            drawing.into_shapes(),
            "<text class=\"a\" x=\"1.0\" y=\"2.0\" text-anchor=\"end\">&lt;script&gt; &amp; &quot;</text>\n"
        );
    }
}
