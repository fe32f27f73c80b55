//! The page: what was promised and whether it held, then the picture, then the tables behind it.
//! It must never load or run anything: no script, and a policy in its head that forbids every request.

use super::svg::svg;
use super::text::{escape, grouped, seconds, unmarked};
use super::{Fault, Member, Run, Sample, Verdict, time};
use crate::exclusions::Excluded;

/// One self-contained HTML page.
pub(crate) fn html(run: &Run) -> String {
    let title = escape(&run.title);
    let job = escape(&run.job);
    let sections = [
        verdicts(&run.verdicts),
        format!("<figure>{}</figure>\n", svg(run)),
        time::section(run.time.as_ref()),
        faults(&run.faults),
        excluded(&run.excluded),
        facts(run),
        members(&run.members),
        samples(&run.samples),
    ]
    .concat();
    format!(
        r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<meta name="viewport" content="width=device-width,initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<title>{title}</title>
<style>{STYLE}{}</style>
</head>
<body>
<main>
<header><h1>{title}</h1><p>Job <code>{job}</code></p></header>
{sections}</main>
</body>
</html>
"#,
        time::STYLE
    )
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

/// A heading that begins with `#` is of a column of numbers, which are set to the right.
fn table(title: &str, headings: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return format!("<section><h2>{title}</h2><p class=\"nothing\">None.</p></section>\n");
    }
    let cell = |tag: &str, heading: &str, text: &str| {
        let class = if heading.starts_with('#') { " class=\"number\"" } else { "" };
        format!("<{tag}{class}>{}</{tag}>", escape(text))
    };
    let head: String =
        headings.iter().map(|heading| cell("th", heading, heading.trim_start_matches('#'))).collect();
    let body: String = rows
        .iter()
        .map(|row| {
            let cells: String =
                headings.iter().zip(row).map(|(heading, text)| cell("td", heading, text)).collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    format!(
        "<section><h2>{title}</h2><div class=\"wide\"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div></section>\n"
    )
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
:root{--ground:#f6f8fa;--card:#fff;--line:#d1d9e0;--text:#1f2328;--muted:#59636e;--good:#00785a;--bad:#c2410c}
@media(prefers-color-scheme:dark){:root{--ground:#0d1117;--card:#161b22;--line:#30363d;--text:#e6edf3;--muted:#9198a1;--good:#3fcfa4;--bad:#ff8b4d}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}
main{max-width:1008px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;line-height:1.25;margin:0;overflow-wrap:anywhere}
header p{margin:4px 0 0;color:var(--muted)}
h2{font-size:17px;margin:32px 0 8px}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:13px}
.verdicts{list-style:none;margin:20px 0;padding:0;display:grid;gap:8px}
.verdicts li{display:flex;gap:12px;font-size:18px;line-height:1.4;padding:10px 16px;background:var(--card);border:1px solid var(--line);border-left:5px solid;border-radius:8px;overflow-wrap:anywhere}
.verdicts .holds{border-left-color:var(--good)}
.verdicts .fails{border-left-color:var(--bad)}
.holds .mark{color:var(--good)}
.fails .mark{color:var(--bad)}
.mark{font-weight:700}
figure{margin:20px 0;overflow-x:auto}
figure svg{display:block;width:100%;min-width:720px;height:auto}
.wide{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:6px 14px;border-top:1px solid var(--line);vertical-align:top;white-space:nowrap}
th:last-child,td:last-child{width:100%;white-space:normal;overflow-wrap:break-word}
thead th{border-top:0;color:var(--muted);font-weight:600;font-size:13px}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.nothing{color:var(--muted)}
details{margin-top:32px}
summary{cursor:pointer;font-weight:600}
pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px;overflow:auto;max-height:480px}
";
