//! The page: the figure, then the table behind it. It must never load or run anything: no script, and a policy in its head that
//! forbids every request. Pure.

use super::figure::{escape, svg};
use super::judge::{Judged, Range, Spread};
use super::print::{Row, headline, rows, verdict};
use super::results::{OfSet, Results};

/// One self-contained HTML page.
pub(crate) fn html(results: &Results, judged: &[Judged]) -> String {
    let figure = svg(results, judged);
    let sections: String =
        results.sets.iter().zip(judged).map(|(set, judged)| section(set, judged)).collect();
    let load = |load: &Option<String>| escape(load.as_deref().unwrap_or("unknown"));
    let (before, after) = (load(&results.load_before), load(&results.load_after));
    format!(
        r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<meta name="viewport" content="width=device-width,initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<title>Convergence with trainers that come and go</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>Convergence with trainers that come and go</h1>
<p>The same training with 2 trainers, with 4, and with a number that goes to and fro between them, judged after every epoch
on images that are held out. Synchronous jobs promise the same bits whoever computes; of asynchronous ones several seeds are
trained. Load averages of the machine before {before}, after {after}.</p>
<figure>{figure}</figure>
{sections}</main>
</body>
</html>
"#
    )
}

fn section(set: &OfSet, judged: &Judged) -> String {
    let (title, headline) = (escape(judged.set()), escape(&headline(set)));
    let verdict = verdict(judged).map_or_else(String::new, |verdict| {
        let class = if judged.sync_is_equal() { "holds" } else { "fails" };
        format!("<p class=\"{class}\">{}</p>\n", escape(&verdict))
    });
    let head =
        ["Mode", "Trainers", "Seeds", "Changes", "Accuracy", "Least to most", "Seconds a job", "sha256"];
    let rows: Vec<Vec<String>> = rows(set).iter().map(cells).collect();
    let ends = table(&head.map(str::to_owned), &rows);
    let epochs = (1..=set.epochs).map(|epoch| format!("Epoch {epoch}"));
    let head: Vec<String> = ["Mode", "Trainers"].map(str::to_owned).into_iter().chain(epochs).collect();
    let curves = table(&head, &curves(set, judged));
    format!(
        "<section><h2>{title}</h2><p>{headline}</p>\n{verdict}{ends}\n<h3>After each epoch</h3>\n{curves}</section>\n"
    )
}

fn cells(row: &Row) -> Vec<String> {
    let Range { min, mean, max } = row.accuracy;
    let [min, mean, max] = [min, mean, max].map(|value| 100.0 * value);
    vec![
        row.mode.to_string(),
        row.trainers.to_string(),
        row.seeds.to_string(),
        row.changes.to_string(),
        format!("{mean:.2} %"),
        format!("{min:.2} to {max:.2}"),
        format!("{:.1}", row.seconds),
        row.hash.as_deref().map_or_else(|| "differ".to_owned(), |hash| format!("{hash:.16}…")),
    ]
}

/// Synchronous jobs one by one, asynchronous ones as their means.
fn curves(set: &OfSet, judged: &Judged) -> Vec<Vec<String>> {
    let percent = |value: f64| format!("{:.2}", 100.0 * value);
    let sync = set.curves.iter().filter(|curve| curve.mode == super::results::Mode::Sync).map(|curve| {
        let figures = curve.evaluations.iter().map(|evaluation| percent(evaluation.accuracy));
        ["sync".to_owned(), curve.trainers.to_string()].into_iter().chain(figures).collect()
    });
    let spread = |spread: &Spread| {
        let figures = spread.accuracy.iter().map(|range| percent(range.mean));
        ["async, mean".to_owned(), spread.trainers.to_string()].into_iter().chain(figures).collect()
    };
    sync.chain(judged.spreads.iter().map(spread)).collect()
}

fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let cells = |tag: &str, cells: &[String]| -> String {
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
    };
    let rows: String = rows.iter().map(|row| format!("<tr>{}</tr>\n", cells("td", row))).collect();
    format!(
        "<div class=\"wide\"><table><thead><tr>{}</tr></thead><tbody>\n{rows}</tbody></table></div>",
        cells("th", head)
    )
}

const STYLE: &str = "
:root{--ground:#f6f8fa;--card:#fff;--line:#d1d9e0;--text:#1f2328;--muted:#59636e;--good:#00785a;--bad:#c2410c}
@media(prefers-color-scheme:dark){:root{--ground:#0d1117;--card:#161b22;--line:#30363d;--text:#e6edf3;--muted:#9198a1;--good:#3fcfa4;--bad:#ff8b4d}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}
main{max-width:1008px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;line-height:1.25;margin:0 0 8px}
h2{font-size:19px;margin:36px 0 4px}
h3{font-size:15px;margin:20px 0 8px;color:var(--muted)}
p{margin:0 0 12px}
.holds{color:var(--good);font-weight:600}
.fails{color:var(--bad);font-weight:600}
figure{margin:20px 0;overflow-x:auto}
figure svg{display:block;width:100%;min-width:720px;height:auto}
.wide{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:6px 14px;border-top:1px solid var(--line);white-space:nowrap}
th:nth-child(-n+2),td:nth-child(-n+2){text-align:left}
thead th{border-top:0;color:var(--muted);font-weight:600;font-size:13px}
";

#[cfg(test)]
mod tests {
    use super::super::judge;
    use super::super::results::samples;
    use super::*;

    #[test]
    fn the_page_has_figure_and_tables_and_loads_nothing() {
        let results = samples::results();
        let html = html(&results, &judge::all(&results));
        assert_eq!((html.matches("<svg").count(), html.matches("<table").count()), (1, 2));
        assert!(html.contains("<p class=\"holds\">the 3 synchronous curves are equal bit for bit</p>"));
        assert!(
            html.contains("<td>async, mean</td><td>2-4 elastic</td><td>90.00</td><td>96.00</td>"),
            "{html}"
        );
        for forbidden in ["<script", "src=", "<link", "url("] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn what_differs_fails_on_the_page() {
        let mut results = samples::results();
        results.sets[0].curves[0].evaluations[0].accuracy = 0.5;
        let html = html(&results, &judge::all(&results));
        assert!(html.contains("<p class=\"fails\">synchronous curves DIFFER"));
    }
}
