//! The page: what was promised and whether it held, then the picture, then the tables behind it.

use super::svg::svg;
use super::{Fault, Member, Metric, Point, Run, Sample, Verdict, time};
use crate::exclusions::Excluded;
use shoal_figures::Page;
use shoal_figures::text::{escape, grouped, seconds};

/// One self-contained HTML page.
pub fn html(run: &Run) -> String {
    let (title, job) = (escape(&run.title), escape(&run.job));
    let header = format!("<header><h1>{title}</h1><p>Job <code>{job}</code></p></header>\n");
    let sections = [
        header,
        verdicts(&run.verdicts),
        format!("<figure>{}</figure>\n", svg(run)),
        time::section(run.time.as_ref()),
        evaluations(&run.metrics),
        faults(&run.faults),
        excluded(&run.excluded),
        facts(run),
        members(&run.members),
        samples(&run.samples),
    ]
    .concat();
    Page { title: &run.title, style: &[STYLE, time::STYLE].concat(), body: &sections }.html()
}

fn verdicts(verdicts: &[Verdict]) -> String {
    let item = |verdict: &Verdict| {
        let (class, mark, word) =
            if verdict.holds { ("holds", "✔", "holds") } else { ("fails", "✘", "does not hold") };
        let text = escape(unmarked(&verdict.text));
        format!(
            "<li class=\"{class}\"><span class=\"mark\" role=\"img\" aria-label=\"{word}\">{mark}\u{fe0e}</span><span>{text}</span></li>\n"
        )
    };
    if verdicts.is_empty() {
        return "<p class=\"nothing\">Nothing was checked.</p>\n".to_owned();
    }
    format!("<ul class=\"verdicts\">\n{}</ul>\n", verdicts.iter().map(item).collect::<String>())
}

/// A verdict's sentence without the mark that the reader is shown anyway.
fn unmarked(verdict: &str) -> &str {
    verdict.trim_start_matches(['✔', '✘', '\u{fe0e}', '\u{fe0f}', ' '])
}

fn faults(faults: &[Fault]) -> String {
    let row = |(index, fault): (usize, &Fault)| {
        vec![
            (index + 1).to_string(),
            seconds(fault.at_seconds),
            fault.kind.clone(),
            fault.role.clone(),
            fault.name.clone(),
            fault.what.clone(),
        ]
    };
    let rows: Vec<_> = faults.iter().enumerate().map(row).collect();
    table("Faults", &["#Number", "#At", "Kind", "Role", "Member", "What happened"], &rows)
}

/// A row for each evaluation; nothing of a run that has none.
fn evaluations(metrics: &[Metric]) -> String {
    let Some(first) = metrics.first() else { return String::new() };
    let names = metrics.iter().map(|metric| format!("#{}", metric.name));
    let headings: Vec<String> = ["#Step".to_owned(), "#At".to_owned()].into_iter().chain(names).collect();
    let value = |metric: &Metric, at: usize| {
        let value = metric.points.get(at).and_then(|point| point.value);
        value.map_or_else(|| "-".to_owned(), to_six_digits)
    };
    let row = |(at, point): (usize, &Point)| {
        let values = metrics.iter().map(|metric| value(metric, at));
        [point.step.to_string(), seconds(point.at_seconds)].into_iter().chain(values).collect()
    };
    let rows: Vec<Vec<String>> = first.points.iter().enumerate().map(row).collect();
    table("Evaluations", &headings.iter().map(String::as_str).collect::<Vec<_>>(), &rows)
}

/// As many digits of a metric as people compare. Its curve, and `result.json`, have all.
fn to_six_digits(value: f64) -> String {
    // Digits before the point are never taken for noughts.
    if value.abs() >= 1e5 {
        return format!("{value:.0}");
    }
    format!("{value:.5e}").parse().unwrap_or(value).to_string()
}

/// Nothing of a run that has all its records, as nearly all have.
fn excluded(excluded: &[Excluded]) -> String {
    if excluded.is_empty() {
        return String::new();
    }
    let row = |one: &Excluded| vec![one.from.to_string(), one.what.clone(), one.why.clone()];
    let rows: Vec<_> = excluded.iter().map(row).collect();
    table("Records left out", &["#From step", "Which", "Why"], &rows)
}

fn facts(run: &Run) -> String {
    let own = [
        ("Duration".to_owned(), seconds(run.seconds)),
        ("Epochs".to_owned(), grouped(run.epochs)),
        ("Steps".to_owned(), grouped(run.steps)),
    ];
    let rows: Vec<_> =
        own.iter().chain(&run.facts).map(|(name, value)| vec![name.clone(), value.clone()]).collect();
    table("Facts", &["Fact", "Value"], &rows)
}

fn members(members: &[Member]) -> String {
    let row = |member: &Member| {
        let frozen: Vec<_> = member
            .frozen
            .iter()
            .map(|(from, to)| format!("{} to {}", seconds(*from), seconds(*to)))
            .collect();
        vec![
            member.name.clone(),
            member.role.clone(),
            member.process.to_string(),
            seconds(member.from_seconds),
            seconds(member.to_seconds),
            member.end.clone(),
            frozen.join(", "),
        ]
    };
    let rows: Vec<_> = members.iter().map(row).collect();
    table("Members", &["Member", "Role", "#Process", "#From", "#To", "End", "Frozen"], &rows)
}

fn table(title: &str, headings: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return format!("<section><h2>{title}</h2><p class=\"nothing\">None.</p></section>\n");
    }
    format!("<section><h2>{title}</h2>{}</section>\n", shoal_figures::table(headings, rows))
}

/// One sample a line; a loss that is no number becomes null, for which JSON has no other word.
fn samples(samples: &[Sample]) -> String {
    let line = |sample: &Sample| serde_json::to_string(sample).unwrap_or_else(|error| error.to_string());
    let lines: Vec<String> = samples.iter().map(line).collect();
    let json = escape(&format!("[\n{}\n]", lines.join(",\n")));
    let count = grouped(samples.len() as u64);
    format!("<details><summary>Raw samples as JSON ({count})</summary><pre>{json}</pre></details>\n")
}

const STYLE: &str = "
header h1{margin:0}
header p{margin:4px 0 0;color:var(--muted)}
.verdicts{list-style:none;margin:20px 0;padding:0;display:grid;gap:8px}
.verdicts li{display:flex;gap:12px;font-size:18px;line-height:1.4;padding:10px 16px;background:var(--card);border:1px solid var(--line);border-left:5px solid;border-radius:8px;overflow-wrap:anywhere}
.verdicts .holds{border-left-color:var(--good)}
.verdicts .fails{border-left-color:var(--bad)}
.holds .mark{color:var(--good)}
.fails .mark{color:var(--bad)}
.mark{font-weight:700}
th:last-child,td:last-child{width:100%;white-space:normal;overflow-wrap:break-word}
.nothing{color:var(--muted)}
details{margin-top:32px}
summary{cursor:pointer;font-weight:600}
pre{max-height:480px}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_six_digits_and_all_of_those_before_the_point() {
        for (value, shown) in [
            (0.973_333_333_3, "0.973333"),
            (1.0, "1"),
            (-12.345_678, "-12.3457"),
            (0.000_123_456_789, "0.000123457"),
            (123_456.789, "123457"),
            (1_234_567.8, "1234568"),
        ] {
            assert_eq!(to_six_digits(value), shown);
        }
    }
}
