//! What was simulated and what was observed, side by side.

use serde_json::Value;
use shoal_experiments::simulator::scenario::Scenario;

/// Prints the figures of both, and how far what was observed is from what was simulated.
pub(crate) fn print(scenario: &Scenario, simulated: &Value, observed: &Value) {
    println!("| figure | simulated | observed | error, % |\n| --- | ---: | ---: | ---: |");
    let figures = [
        ("mean pending, s", "mean_pending_seconds", 1.0),
        ("mean running, s", "mean_running_seconds", 1.0),
        ("makespan, s", "makespan_seconds", 1.0),
        ("utilisation, %", "utilisation", 100.0),
    ];
    for (name, key, unit) in figures {
        let of = |figures: &Value| figures[key].as_f64().map(|value| unit * value);
        row(name, of(simulated), of(observed));
    }
    let name = "mean wait of serving pods, s";
    let of = |figures: &Value| figures["notes"][name].as_f64();
    if of(simulated).is_some() {
        row(name, of(simulated), of(observed));
    }
    for job in 0..scenario.jobs.len() {
        for key in ["submitted", "started", "ended"] {
            let of = |figures: &Value| figures["jobs_table"][job][key].as_f64();
            row(&format!("{} {key}, s", scenario.jobs[job].name), of(simulated), of(observed));
        }
    }
    for (from, to, load) in loads(scenario) {
        let settled = from + (to - from) / 2.0;
        for (what, key) in [("trainers", "trainers"), ("serving pods", "serving")] {
            let of = |figures: &Value| mean(figures, key, settled, to);
            let name = format!("{what} from {settled:.0} to {to:.0} s, load {load}");
            row(&name, of(simulated), of(observed));
        }
    }
    let notes = observed["notes"].as_object().into_iter().flatten();
    notes.filter(|(note, _)| *note != name).for_each(|(note, value)| println!("{note}: {value}"));
}

fn row(name: &str, simulated: Option<f64>, observed: Option<f64>) {
    let told = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    let error = simulated.zip(observed).filter(|(simulated, _)| *simulated != 0.0);
    let error = error.map(|(simulated, observed)| 100.0 * (observed - simulated) / simulated);
    let error = error.map_or_else(|| "-".to_owned(), |error| format!("{error:+.1}"));
    println!("| {name} | {} | {} | {error} |", told(simulated), told(observed));
}

/// From, to, and how much, of the service whose load changes.
fn loads(scenario: &Scenario) -> Vec<(f64, f64, f64)> {
    let Some(service) = scenario.serving.iter().find(|one| one.load.len() > 1) else { return Vec::new() };
    let ends = service.load.iter().skip(1).map(|(from, _)| *from).chain([scenario.seconds]);
    service.load.iter().zip(ends).map(|((from, load), to)| (*from, to, *load)).collect()
}

/// The mean of a number, or of a sum of numbers, over the samples of a while.
fn mean(figures: &Value, key: &str, from: f64, to: f64) -> Option<f64> {
    let samples = figures["samples"].as_array()?.iter();
    let is_then = |sample: &&Value| sample["at_seconds"].as_f64().is_some_and(|at| (from..to).contains(&at));
    let values: Vec<f64> = samples
        .filter(is_then)
        .map(|sample| match &sample[key] {
            Value::Array(all) => all.iter().filter_map(Value::as_f64).sum(),
            one => one.as_f64().unwrap_or(0.0),
        })
        .collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
