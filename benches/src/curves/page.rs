//! The page: the figure, then the table behind it. Pure.

use super::figure::svg;
use super::judge::{Judged, Range, Spread};
use super::print::{Row, headline, rows, verdict};
use super::results::{OfSet, Results};
use shoal_figures::text::escape;
use shoal_figures::{Page, table};

/// One self-contained HTML page.
pub(crate) fn html(results: &Results, judged: &[Judged]) -> String {
    let figure = svg(results, judged);
    let sections: String =
        results.sets.iter().zip(judged).map(|(set, judged)| section(set, judged)).collect();
    let load = |load: &Option<String>| escape(load.as_deref().unwrap_or("unknown"));
    let (before, after) = (load(&results.load_before), load(&results.load_after));
    let title = "Convergence with trainers that come and go";
    let body = format!(
        r#"<h1>{title}</h1>
<p>The same training with 2 trainers, with 4, and with a number that goes to and fro between them, judged after every epoch
on images that are held out. Synchronous jobs promise the same bits whoever computes; of asynchronous ones several seeds are
trained. Load averages of the machine before {before}, after {after}.</p>
<figure>{figure}</figure>
{sections}"#
    );
    Page { title, style: STYLE, body: &body }.html()
}

fn section(set: &OfSet, judged: &Judged) -> String {
    let (title, headline) = (escape(judged.set()), escape(&headline(set)));
    let verdict = verdict(judged).map_or_else(String::new, |verdict| {
        let class = if judged.sync_is_equal() { "holds" } else { "fails" };
        format!("<p class=\"{class}\">{}</p>\n", escape(&verdict))
    });
    let head = [
        "Mode",
        "Trainers",
        "#Seeds",
        "#Changes",
        "#Accuracy",
        "#Least to most",
        "#Seconds a job",
        "#sha256",
    ];
    let rows: Vec<Vec<String>> = rows(set).iter().map(cells).collect();
    let ends = table(&head, &rows);
    let epochs = (1..=set.epochs).map(|epoch| format!("#Epoch {epoch}"));
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

const STYLE: &str = "
h3{font-size:15px;margin:20px 0 8px;color:var(--muted)}
p{margin:0 0 12px}
.holds{color:var(--good);font-weight:600}
.fails{color:var(--bad);font-weight:600}
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
            html.contains("<td>async, mean</td><td>2-4 elastic</td><td class=\"number\">90.00</td>"),
            "{html}"
        );
        assert!(html.contains("<th class=\"number\">Epoch 2</th>"), "{html}");
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
