//! Experiments as one self-contained page: the figures side by side, then use, queue and trainers over time.

use crate::series::{Experiment, Published, Sample};
use crate::table;
use shoal_figures::Page;
use shoal_figures::chart::{self, Line};
use shoal_figures::text::escape;

const STYLE: &str = "
h2{margin:28px 0 6px}
main>p{margin:4px 0 12px;color:var(--muted)}
";
/// Jobs that are drawn one by one; of more only the sum.
const JOBS_MAX: usize = 12;

/// The page.
pub fn html(title: &str, about: &str, experiments: &[Experiment], published: &[Published]) -> String {
    let end = experiments
        .iter()
        .filter_map(|one| one.samples.last())
        .map(|last| last.at_seconds)
        .fold(1.0, f64::max);
    let resource = experiments.first().map_or("cpu", |one| one.resource.as_str());
    let line = |one: &Experiment, of: fn(&Sample) -> f64| Line {
        name: one.policy.clone(),
        is_ground: false,
        points: one.samples.iter().map(|sample| (sample.at_seconds, of(sample))).collect(),
    };
    let lines = |of: fn(&Sample) -> f64| experiments.iter().map(|one| line(one, of)).collect::<Vec<_>>();
    let mut sections = vec![
        format!("<h1>{}</h1>\n<p>{}</p>\n", escape(title), escape(about)),
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
    Page { title, style: &[chart::STYLE, STYLE].concat(), body: &sections.concat() }.html()
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
        let name = "pods of services".to_owned();
        all.push(Line { name, is_ground: true, points: of(&|sample| sample.serving) });
    }
    if one.jobs.len() > JOBS_MAX {
        let name = format!("{} jobs", one.jobs.len());
        let points = of(&|sample| sample.trainers.iter().sum());
        all.push(Line { name, is_ground: false, points });
    } else {
        all.extend(one.jobs.iter().enumerate().map(|(index, job)| Line {
            name: job.name.clone(),
            is_ground: false,
            points: of(&|sample| sample.trainers.get(index).copied().unwrap_or(0)),
        }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::JobRow;

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
