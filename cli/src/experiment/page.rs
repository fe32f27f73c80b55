//! Experiments as one self-contained page: the figures side by side, then use, queue and trainers over time. It must never
//! need anything outside itself: no script, font, style sheet or image is loaded.

use super::chart::{self, Line};
use super::series::{Experiment, Published, Sample};
use super::table;
use crate::report::escape;

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1c1e21;--soft:#5c6370;--rule:#d5d9e0;--ground:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#a0a7b4;--rule:#3a4049;--ground:#15181c}}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:980px;margin:0 auto;padding:24px 16px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:16px;margin:28px 0 6px}p{margin:4px 0 12px;color:var(--soft)}
pre{overflow-x:auto;border:1px solid var(--rule);border-radius:8px;padding:12px}
figure{margin:0}figure svg{width:100%;height:auto}
.t{font:12px system-ui,sans-serif;fill:var(--soft)}.g{stroke:var(--rule);stroke-width:1}
.l{fill:none;stroke-width:2;stroke-linejoin:round}
.s0{stroke:#0072b2}.s1{stroke:#d55e00}.s2{stroke:#009e73}.s3{stroke:#cc79a7}.s4{stroke:#e69f00}.s5{stroke:#56b4e9}
.a0{fill:#0072b2}.a1{fill:#d55e00}.a2{fill:#009e73}.a3{fill:#cc79a7}.a4{fill:#e69f00}.a5{fill:#56b4e9}.a9{fill:#8b93a1}
.a{opacity:.85;stroke:var(--ground);stroke-width:.5}
";
/// Jobs that are drawn one by one; of more only the sum.
const JOBS_MAX: usize = 12;

/// The page.
pub(crate) fn html(title: &str, about: &str, experiments: &[Experiment], published: &[Published]) -> String {
    let end = experiments
        .iter()
        .filter_map(|one| one.samples.last())
        .map(|last| last.at_seconds)
        .fold(1.0, f64::max);
    let resource = experiments.first().map_or("cpu", |one| one.resource.as_str());
    let line = |one: &Experiment, of: fn(&Sample) -> f64| Line {
        name: one.policy.clone(),
        points: one.samples.iter().map(|sample| (sample.at_seconds, of(sample))).collect(),
    };
    let lines = |of: fn(&Sample) -> f64| experiments.iter().map(|one| line(one, of)).collect::<Vec<_>>();
    let mut sections = vec![
        format!("<pre>{}</pre>\n", escape(&table::figures(experiments, published))),
        figure(
            &format!("Share of the cluster's {resource} that pods ask for, %"),
            &chart::lines(&lines(|sample| 100.0 * sample.utilisation), end, Some(100.0)),
        ),
        figure(
            "Jobs that wait for their first trainer",
            &chart::lines(&lines(|sample| f64::from(sample.jobs_pending)), end, None),
        ),
    ];
    // One height for all, so that they can be compared.
    let highest = experiments.iter().flat_map(|one| &one.samples).map(all_pods).fold(1.0, f64::max);
    for one in experiments {
        let title = format!("Running trainers by job: {}", one.policy);
        sections.push(figure(&title, &chart::areas(&areas(one), end, highest)));
    }
    let title = escape(title);
    format!(
        r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<meta name="viewport" content="width=device-width,initial-scale=1"/>
<title>{title}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p>{}</p>
{}</main>
</body>
</html>
"#,
        escape(about),
        sections.concat()
    )
}

fn figure(title: &str, svg: &str) -> String {
    format!("<figure><h2>{}</h2>\n{svg}</figure>\n", escape(title))
}

fn all_pods(sample: &Sample) -> f64 {
    f64::from(sample.trainers.iter().sum::<u32>() + sample.serving)
}

/// What is stacked: services below, jobs above them.
fn areas(one: &Experiment) -> Vec<Line> {
    let of = |value: &dyn Fn(&Sample) -> u32| -> Vec<(f64, f64)> {
        one.samples.iter().map(|sample| (sample.at_seconds, f64::from(value(sample)))).collect()
    };
    let mut all = Vec::new();
    if one.samples.iter().any(|sample| sample.serving > 0) {
        all.push(Line { name: "pods of services".to_owned(), points: of(&|sample| sample.serving) });
    }
    if one.jobs.len() > JOBS_MAX {
        let name = format!("{} jobs", one.jobs.len());
        all.push(Line { name, points: of(&|sample| sample.trainers.iter().sum()) });
    } else {
        all.extend(one.jobs.iter().enumerate().map(|(index, job)| Line {
            name: job.name.clone(),
            points: of(&|sample| sample.trainers.get(index).copied().unwrap_or(0)),
        }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::series::JobRow;
    use super::*;

    #[test]
    fn a_page_has_every_figure_and_takes_no_markup() {
        let job = |name: &str| JobRow {
            name: name.to_owned(),
            started: Some(1.0),
            ended: Some(9.0),
            ..JobRow::default()
        };
        let sample = |at_seconds, trainers: &[u32]| Sample {
            at_seconds,
            trainers: trainers.to_vec(),
            serving: 3,
            utilisation: 0.5,
            ..Sample::default()
        };
        let one = Experiment {
            policy: "shoal".to_owned(),
            jobs: vec![job("<b>a</b>"), job("b")],
            samples: vec![sample(0.0, &[0, 0]), sample(10.0, &[4, 2])],
            ..Experiment::default()
        };
        let page = html("A & B", "about <it>", std::slice::from_ref(&one), &[]);
        assert!(page.contains("A &amp; B") && page.contains("about &lt;it&gt;"));
        assert!(!page.contains("<b>") && !page.contains("<script") && !page.contains("http://www.example"));
        assert_eq!(page.matches("<svg").count(), 3);
        assert!(page.contains("pods of services") && page.contains("&lt;b&gt;a&lt;/b&gt;"));
        let crowd = Experiment { jobs: (0..20).map(|_| job("j")).collect(), ..one };
        assert!(html("t", "", &[crowd], &[]).contains("20 jobs"));
        assert!(html("t", "", &[], &[]).contains("</html>"));
    }
}
