//! Experiments as lines and tables of text.

use crate::series::{Experiment, Published, Sample};
use shoal_figures::aligned;

/// The closing table: a row for each figure, a column for each policy, and what others published below it.
pub fn figures(experiments: &[Experiment], published: &[Published]) -> String {
    let summaries: Vec<_> = experiments.iter().map(Experiment::summary).collect();
    let mut rows = vec![vec![String::new()]];
    rows[0].extend(experiments.iter().map(|one| one.policy.clone()));
    let mut row = |name: String, cell: &dyn Fn(usize) -> String| {
        let cells = (0..summaries.len()).map(cell);
        rows.push([name].into_iter().chain(cells).collect());
    };
    row("mean pending, s".to_owned(), &|of| format!("{:.1}", summaries[of].mean_pending_seconds));
    row("mean running, s".to_owned(), &|of| format!("{:.1}", summaries[of].mean_running_seconds));
    row("makespan, s".to_owned(), &|of| format!("{:.1}", summaries[of].makespan_seconds));
    let resource = experiments.first().map_or("", |one| one.resource.as_str());
    row(format!("utilisation of {resource}, %"), &|of| format!("{:.1}", 100.0 * summaries[of].utilisation));
    row("jobs done".to_owned(), &|of| format!("{}/{}", summaries[of].jobs_done, summaries[of].jobs));
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in experiments.iter().flat_map(|one| &one.notes) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    for name in names {
        let value = |of: usize| experiments[of].notes.iter().find(|(other, _)| other == name);
        row(name.to_owned(), &|of| {
            value(of).map_or_else(|| "-".to_owned(), |(_, value)| format!("{value:.1}"))
        });
    }
    let mut text = aligned(&rows);
    if !published.is_empty() {
        text.push_str("published:\n");
        for one in published {
            let note = if one.note.is_empty() { String::new() } else { format!(": {}", one.note) };
            text.push_str(&format!("  {} {} {}{note}\n", one.policy, one.figure, one.value));
        }
    }
    text
}

/// A job in a line, policy by policy.
pub fn job_table(experiment: &Experiment) -> String {
    let second = |at: Option<f64>| at.map_or_else(|| "-".to_owned(), |at| format!("{at:.0}"));
    let mut rows = vec![["job", "submitted", "started", "ended"].map(str::to_owned).to_vec()];
    rows.extend(experiment.jobs.iter().map(|job| {
        vec![job.name.clone(), second(Some(job.submitted)), second(job.started), second(job.ended)]
    }));
    aligned(&rows)
}

/// What the columns of [`series_line`] are: those of the program of PaddleCloud's experiment, and pods that
/// wait. What is by job is in the order of the jobs, with `|` between.
pub fn series_title() -> &'static str {
    "seconds,utilisation %,running trainers,absent jobs,pending jobs,running jobs,done jobs,serving pods,pending pods,\
     trainers by job,asked by job"
}

/// One moment in a line.
pub fn series_line(sample: &Sample) -> String {
    let trainers: Vec<String> = sample.trainers.iter().map(u32::to_string).collect();
    let asked: Vec<String> = sample.asked.iter().map(f64::to_string).collect();
    format!(
        "{:.0},{:.2},{},{},{},{},{},{},{},{},{}",
        sample.at_seconds,
        100.0 * sample.utilisation,
        sample.trainers.iter().sum::<u32>(),
        sample.jobs_absent,
        sample.jobs_pending,
        sample.jobs_running,
        sample.jobs_done,
        sample.serving,
        sample.pods_pending,
        trainers.join("|"),
        asked.join("|")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::JobRow;

    #[test]
    fn figures_stand_beside_one_another_and_beside_what_was_published() {
        let samples =
            [0.0, 40.0].map(|at_seconds| Sample { at_seconds, utilisation: 0.75, ..Sample::default() });
        let one = |policy: &str, started, notes: &[(&str, f64)]| Experiment {
            policy: policy.to_owned(),
            resource: "cpu".to_owned(),
            samples: samples.to_vec(),
            jobs: vec![JobRow {
                name: "a".to_owned(),
                submitted: 0.0,
                started: Some(started),
                ended: Some(40.0),
            }],
            notes: notes.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ..Experiment::default()
        };
        let published = [Published {
            policy: "edl".to_owned(),
            figure: "utilisation".to_owned(),
            value: 0.76,
            note: "once".to_owned(),
        }];
        assert_eq!(
            figures(&[one("gang", 30.0, &[]), one("shoal", 2.0, &[("preempted", 3.0)])], &published),
            "                       gang  shoal\n\
             mean pending, s        30.0    2.0\n\
             mean running, s        10.0   38.0\n\
             makespan, s            40.0   40.0\n\
             utilisation of cpu, %  75.0   75.0\n\
             jobs done               1/1    1/1\n\
             preempted                 -    3.0\n\
             published:\n  edl utilisation 0.76: once\n"
        );
    }

    #[test]
    fn a_moment_is_a_line_of_the_experiments_columns() {
        let sample = Sample {
            at_seconds: 7.0,
            utilisation: 0.053,
            jobs_absent: 3,
            jobs_running: 1,
            pods_pending: 2,
            serving: 9,
            trainers: vec![7, 0],
            asked: vec![8.5, 0.0],
            ..Sample::default()
        };
        assert_eq!(series_line(&sample), "7,5.30,7,3,0,1,0,9,2,7|0,8.5|0");
        assert_eq!(series_title().split(',').count(), series_line(&sample).split(',').count());
    }
}
