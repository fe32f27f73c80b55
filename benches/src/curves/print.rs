//! The result in letters: a table for people, one object for programs. Pure.

use super::judge::{Judged, Range, Spread};
use super::results::{Curve, Mode, OfSet, Results, Trainers};
use serde_json::{Value, json};

/// A row of the table, of one mode and number of trainers.
pub(crate) struct Row {
    pub(crate) mode: Mode,
    pub(crate) trainers: Trainers,
    pub(crate) seeds: usize,
    /// Changes that arrived, of the job with the fewest.
    pub(crate) changes: usize,
    /// After the last epoch.
    pub(crate) accuracy: Range,
    /// Of one job, on average.
    pub(crate) seconds: f64,
    /// Of the parameters, where all jobs have the same.
    pub(crate) hash: Option<String>,
}

/// The rows of a set.
pub(crate) fn rows(set: &OfSet) -> Vec<Row> {
    let row = |(mode, trainers): (Mode, Trainers)| {
        let curves: Vec<&Curve> = set.of(mode, trainers).collect();
        let first = curves.first()?;
        let hash = curves.iter().all(|curve| curve.parameters_sha256 == first.parameters_sha256);
        let changes = curves.iter().map(|curve| curve.changes()).min().unwrap_or(0);
        Some(Row {
            mode,
            trainers,
            seeds: curves.len(),
            changes: if trainers == Trainers::Elastic { changes } else { 0 },
            accuracy: Range::of(curves.iter().map(|curve| curve.accuracy()).collect()),
            seconds: curves.iter().map(|curve| curve.seconds).sum::<f64>() / curves.len() as f64,
            hash: hash.then(|| first.parameters_sha256.clone()),
        })
    };
    let both = [Mode::Sync, Mode::Async].into_iter();
    both.flat_map(|mode| Trainers::ALL.map(|trainers| (mode, trainers))).filter_map(row).collect()
}

/// What was trained, in a line.
pub(crate) fn headline(set: &OfSet) -> String {
    let (records, held_out) = (grouped(set.records), grouped(set.held_out));
    format!("{}, {records} images, {held_out} held out, {} epochs", set.network, set.epochs)
}

/// With a comma before every three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// What was found of the synchronous jobs, in a line.
pub(crate) fn verdict(judged: &Judged) -> Option<String> {
    let sync = judged.sync.as_ref()?;
    Some(match &sync.difference {
        None if sync.jobs < 2 => "one synchronous job: nothing to compare".to_owned(),
        None => format!("the {} synchronous curves are equal bit for bit", sync.jobs),
        Some(difference) => format!("synchronous curves DIFFER {difference}"),
    })
}

/// For people.
pub(crate) fn table(results: &Results, judged: &[Judged]) -> String {
    let load = |load: &Option<String>| load.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut lines =
        vec![format!("load before {}, after {}", load(&results.load_before), load(&results.load_after))];
    for (set, judged) in results.sets.iter().zip(judged) {
        lines.push(format!("\n{}: {}", judged.set(), headline(set)));
        lines.push(format!(
            "{:<6} {:<12} {:>5} {:>8}  {:>9} {:>15}  {:>7}  parameters sha256",
            "mode", "trainers", "seeds", "changes", "accuracy", "least to most", "seconds"
        ));
        for Row { mode, trainers, seeds, changes, accuracy, seconds, hash } in rows(set) {
            let Range { min, mean, max } = accuracy;
            let [min, mean, max] = [min, mean, max].map(|value| 100.0 * value);
            lines.push(format!(
                "{mode:<6} {trainers:<12} {seeds:>5} {changes:>8}  {mean:>7.2} % {min:>6.2} - {max:>6.2}  {seconds:>7.1}  {}",
                hash.unwrap_or_else(|| "differ".to_owned())
            ));
        }
        lines.extend(verdict(judged));
        lines.extend(judged.spreads.iter().map(by_epoch));
    }
    lines.join("\n") + "\n"
}

/// The means after each epoch.
fn by_epoch(spread: &Spread) -> String {
    let figures = spread.accuracy.iter().map(|range| format!("{:.2}", 100.0 * range.mean));
    let figures: Vec<String> = figures.collect();
    format!("async, {}: mean after each epoch {} %", spread.trainers, figures.join(" "))
}

/// One object on one line: what was trained, and what was found of it.
pub(crate) fn json(results: &Results, judged: &[Judged]) -> anyhow::Result<String> {
    let mut object = serde_json::to_value(results)?;
    let sets = object["sets"].as_array_mut().into_iter().flatten();
    for (set, judged) in sets.zip(judged) {
        set["judged"] = serde_json::to_value(judged)?;
    }
    if let Value::Object(object) = &mut object {
        object.insert("sync_is_equal".to_owned(), json!(judged.iter().all(Judged::sync_is_equal)));
    }
    Ok(object.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::judge;
    use super::super::results::samples;
    use super::*;

    #[test]
    fn every_mode_and_number_of_trainers_has_a_row() {
        let results = samples::results();
        let table = table(&results, &judge::all(&results));
        assert!(table.contains("MNIST: LeNet-5, 60,000 images, 10,000 held out, 2 epochs"), "{table}");
        assert!(table.contains("sync   2-4 elastic      1        2    95.00 %  95.00 -  95.00"), "{table}");
        assert!(table.contains("async  4                2        0    96.00 %  95.00 -  97.00"), "{table}");
        assert!(table.contains("the 3 synchronous curves are equal bit for bit"), "{table}");
        assert!(table.contains("async, 2: mean after each epoch 90.00 96.00 %"), "{table}");
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        assert_eq!(
            [7, 999, 1000, 60_000, 1_234_567].map(grouped),
            ["7", "999", "1,000", "60,000", "1,234,567"]
        );
    }

    #[test]
    fn an_unequal_curve_is_said_so() {
        let mut results = samples::results();
        results.sets[0].curves[3].parameters_sha256 = "x".to_owned();
        let judged = judge::all(&results);
        assert!(table(&results, &judged).contains("synchronous curves DIFFER with 2 and with 4 trainers"));
        let object: Value = serde_json::from_str(&json(&results, &judged).unwrap()).unwrap();
        assert_eq!(object["sync_is_equal"], false);
        assert_eq!(object["sets"][0]["judged"]["sync"]["is_equal"], false);
    }

    #[test]
    fn the_object_is_one_line_and_can_be_read_again() {
        let results = samples::results();
        let line = json(&results, &judge::all(&results)).unwrap();
        assert!(!line.contains('\n') && line.contains("\"sync_is_equal\":true"));
        assert_eq!(serde_json::from_str::<Results>(&line).unwrap(), results);
    }
}
