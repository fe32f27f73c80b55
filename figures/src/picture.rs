//! A picture that stands alone: its card, its words for who cannot see it, and the style that pictures share.

use crate::drawing::Drawing;
use crate::text::escape;

/// A standalone SVG that reads well on light and on dark ground.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// All classes and ids of the picture begin with it and a dash: pictures with different ones can be in one page.
    pub prefix: &'a str,
    /// The rest of the class of the whole.
    pub name: &'a str,
    /// Width and height, in pixels; it is drawn smaller where there is less room.
    pub size: (f64, f64),
    /// In a few words.
    pub title: &'a str,
    /// What is in the picture, for who cannot see it.
    pub told: &'a str,
    /// What is added to the shared style.
    pub style: &'a str,
    /// What shapes refer to, as markup.
    pub defs: &'a str,
}

impl Picture<'_> {
    /// The picture, with these shapes on its card.
    pub fn svg(&self, drawing: Drawing) -> String {
        let Picture { prefix, name, size: (width, height), style, .. } = self;
        let (title, told, shapes) = (escape(self.title), escape(self.told), drawing.into_shapes());
        let (shared, inner_width, inner_height) = (STYLE.replace('%', prefix), width - 1.0, height - 1.0);
        let defs = if self.defs.is_empty() { String::new() } else { format!("<defs>{}</defs>\n", self.defs) };
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="{prefix}-{name}" width="{width}" height="{height:.0}" viewBox="0 0 {width} {height:.0}" role="img" aria-labelledby="{prefix}-title {prefix}-told">
<title id="{prefix}-title">{title}</title>
<desc id="{prefix}-told">{told}</desc>
<style>
.{prefix}-{name}{{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}}
{shared}{style}</style>
{defs}<rect class="{prefix}-card" x="0.5" y="0.5" width="{inner_width}" height="{inner_height:.0}" rx="10"/>
{shapes}</svg>
"#
        )
    }
}

/// With the prefix for each percent sign. Colours after Okabe and Ito (2008), which colour-blind readers can tell apart, are each
/// picture's own; these are of what all have.
const STYLE: &str = "\
.%-title{font-size:19px;font-weight:650;fill:#1f2328}
.%-small{font-size:11.5px}
.%-strong{font-weight:650;fill:#1f2328}
.%-text{fill:#1f2328}
.%-muted{fill:#59636e}
.%-card{fill:#fff;stroke:#d1d9e0}
.%-grid{stroke:#e6eaef}
.%-axis{stroke:#8c959f}
@media(prefers-color-scheme:dark){
.%-title,.%-strong,.%-text{fill:#e6edf3}
.%-muted{fill:#9198a1}
.%-card{fill:#161b22;stroke:#30363d}
.%-grid{stroke:#262c36}
.%-axis{stroke:#6e7681}
}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_takes_no_markup_and_nothing_of_it_has_another_prefix() {
        let picture = Picture {
            prefix: "p",
            name: "run",
            size: (960.0, 88.4),
            title: "<b>",
            told: "a & b",
            style: ".p-own{fill:red}\n",
            defs: "",
        };
        let svg = picture.svg(Drawing::default());
        assert!(svg.contains("<title id=\"p-title\">&lt;b&gt;</title>") && svg.contains("a &amp; b"));
        assert!(svg.contains("viewBox=\"0 0 960 88\"") && svg.contains(".p-own{fill:red}"));
        assert!(!svg.contains('%') && !svg.contains("<defs>"));
    }
}
