//! A page that stands alone. It must never load or run anything: no script, and a policy in its head that forbids every request.

use crate::text::escape;

/// One self-contained HTML page.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// In the window's bar.
    pub title: &'a str,
    /// What is added to the shared style.
    pub style: &'a str,
    /// What it shows, as markup.
    pub body: &'a str,
}

impl Page<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let Page { style, body, .. } = self;
        let title = escape(self.title);
        format!(
            r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<meta name="viewport" content="width=device-width,initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<title>{title}</title>
<style>{STYLE}{style}</style>
</head>
<body>
<main>
{body}</main>
</body>
</html>
"#
        )
    }
}

/// A table. A heading that begins with `#` is of a column of numbers, which are set to the right.
pub fn table(headings: &[impl AsRef<str>], rows: &[Vec<String>]) -> String {
    let cell = |tag: &str, heading: &str, text: &str| {
        let class = if heading.starts_with('#') { " class=\"number\"" } else { "" };
        format!("<{tag}{class}>{}</{tag}>", escape(text))
    };
    let headings = || headings.iter().map(AsRef::as_ref);
    let head: String =
        headings().map(|heading| cell("th", heading, heading.trim_start_matches('#'))).collect();
    let row = |row: &Vec<String>| {
        let cells: String = headings().zip(row).map(|(heading, text)| cell("td", heading, text)).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let body: String = rows.iter().map(row).collect();
    format!("<div class=\"wide\"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>")
}

const STYLE: &str = "
:root{--ground:#f6f8fa;--card:#fff;--line:#d1d9e0;--text:#1f2328;--muted:#59636e;--good:#00785a;--bad:#c2410c}
@media(prefers-color-scheme:dark){:root{--ground:#0d1117;--card:#161b22;--line:#30363d;--text:#e6edf3;--muted:#9198a1;--good:#3fcfa4;--bad:#ff8b4d}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}
main{max-width:1008px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;line-height:1.25;margin:0 0 8px;overflow-wrap:anywhere}
h2{font-size:17px;margin:32px 0 8px}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:13px}
pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px;overflow:auto}
figure{margin:20px 0;overflow-x:auto}
figure svg{display:block;width:100%;min-width:720px;height:auto}
.wide{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:6px 14px;border-top:1px solid var(--line);vertical-align:top;white-space:nowrap}
thead th{border-top:0;color:var(--muted);font-weight:600;font-size:13px}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_no_markup_in_its_title_and_asks_for_nothing() {
        let page = Page { title: "a</title><script>", style: ".b{}\n", body: "<p>c</p>\n" }.html();
        assert!(page.contains("<title>a&lt;/title&gt;&lt;script&gt;</title>"));
        assert!(page.contains(".b{}") && page.contains("<p>c</p>"));
        for request in ["http:", "https:", "src=", "href=", "@import", "<script", "<link", "url("] {
            assert!(!page.contains(request), "{request}");
        }
    }

    #[test]
    fn numbers_are_set_to_the_right_and_cells_take_no_markup() {
        let table = table(&["Name", "#Count"], &[vec!["<b>".to_owned(), "7".to_owned()]]);
        assert!(table.contains("<tr><th>Name</th><th class=\"number\">Count</th></tr>"), "{table}");
        assert!(table.contains("<tr><td>&lt;b&gt;</td><td class=\"number\">7</td></tr>"), "{table}");
    }
}
