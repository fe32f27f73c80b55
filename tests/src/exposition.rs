//! A strict reader of the text format of Prometheus, and the naming rules that this house keeps. Written from the
//! format's description, not from what the roles write.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>, <https://prometheus.io/docs/practices/naming/>

use std::collections::{BTreeMap, BTreeSet};

/// A family of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// What it means.
    pub help: String,
    /// Each sample: its name (a histogram has three), its labels, its value.
    pub samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

/// The families of a page by name.
pub type Page = BTreeMap<String, Family>;

/// Labels whose values are few, whatever the size of a job.
const LABELS: &[&str] = &["role", "version", "phase", "kind", "mark", "part", "activity", "le"];
/// Units that are not base units, as they would stand in a name.
const DERIVED: &[&str] =
    &["millis", "milliseconds", "micros", "nanos", "minutes", "hours", "kib", "mib", "percent"];

/// Reads a page.
///
/// # Errors
/// The first line that the format does not allow, and why.
pub fn read(text: &str) -> Result<Page, String> {
    if !text.ends_with('\n') {
        return Err("the last line does not end".to_owned());
    }
    let mut page = Page::new();
    let mut present: Option<(String, Family)> = None;
    let mut help: Option<(String, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |why: &str| format!("line {number}: {why}: {line}");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, text) = rest.split_once(' ').ok_or_else(|| wrong("no help"))?;
            close(&mut page, present.take()).map_err(|why| wrong(&why))?;
            let text = unescaped(text, false).ok_or_else(|| wrong("a lonely backslash"))?;
            if help.replace((name.to_owned(), text)).is_some() {
                return Err(wrong("HELP after HELP"));
            }
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(|| wrong("no type"))?;
            let (of, text) = help.take().ok_or_else(|| wrong("TYPE without HELP"))?;
            if of != name || !["counter", "gauge", "histogram"].contains(&kind) {
                return Err(wrong("not the type of what HELP was about"));
            }
            let family = Family { kind: kind.to_owned(), help: text, samples: Vec::new() };
            present = Some((name.to_owned(), family));
        } else {
            let (family, into) = present.as_mut().ok_or_else(|| wrong("a sample before HELP and TYPE"))?;
            let sample = sample(line).ok_or_else(|| wrong("no sample"))?;
            if !belongs(&sample.0, family, &into.kind) {
                return Err(wrong("a sample of another family"));
            }
            if into.samples.iter().any(|(name, labels, _)| (name, labels) == (&sample.0, &sample.1)) {
                return Err(wrong("a sample said twice"));
            }
            into.samples.push(sample);
        }
    }
    close(&mut page, present)?;
    if help.is_some() { Err("HELP without samples".to_owned()) } else { Ok(page) }
}

fn close(page: &mut Page, family: Option<(String, Family)>) -> Result<(), String> {
    let Some((name, family)) = family else { return Ok(()) };
    if family.samples.is_empty() {
        return Err(format!("{name} has no samples"));
    }
    if family.kind == "histogram" {
        check_histogram(&name, &family)?;
    }
    match page.insert(name.clone(), family) {
        Some(_) => Err(format!("{name} is there twice")),
        None => Ok(()),
    }
}

fn belongs(sample: &str, family: &str, kind: &str) -> bool {
    match sample.strip_prefix(family) {
        Some("") => kind != "histogram",
        Some("_bucket" | "_sum" | "_count") => kind == "histogram",
        _ => false,
    }
}

/// Buckets are in order of their bounds, never fall, and the last one holds all.
fn check_histogram(name: &str, family: &Family) -> Result<(), String> {
    let value = |suffix: &str| {
        let name = format!("{name}_{suffix}");
        family.samples.iter().find(|(sample, _, _)| *sample == name).map(|(_, _, value)| *value)
    };
    let bucket = format!("{name}_bucket");
    let buckets: Vec<(f64, f64)> = family
        .samples
        .iter()
        .filter(|(sample, _, _)| *sample == bucket)
        .filter_map(|(_, labels, value)| Some((number(labels.get("le")?)?, *value)))
        .collect();
    let in_order = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
    let last = buckets.last().copied();
    let is_whole = last.is_some_and(|(bound, count)| bound == f64::INFINITY && Some(count) == value("count"));
    if in_order && is_whole && value("sum").is_some() {
        Ok(())
    } else {
        Err(format!("{name} is no histogram"))
    }
}

type Sample = (String, BTreeMap<String, String>, f64);

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let close = closing_quote(after)?;
            let is_name = !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let is_new = labels.insert(label.to_owned(), unescaped(&after[..close], true)?).is_none();
            if !is_name || !is_new {
                return None;
            }
            rest = &after[close + 1..];
            match rest.split_at_checked(1)? {
                (",", more) => rest = more,
                ("}", more) => {
                    rest = more;
                    break;
                }
                _ => return None,
            }
        }
    }
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    Some((name.to_owned(), labels, number(rest.strip_prefix(' ')?)?)).filter(|_| is_name)
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let is_close = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_close.then_some(at)
    })
}

fn unescaped(text: &str, quotes: bool) -> Option<String> {
    let (mut out, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                'n' => out.push('\n'),
                '\\' => out.push('\\'),
                '"' if quotes => out.push('"'),
                _ => return None,
            },
            c => out.push(c),
        }
    }
    Some(out)
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        // Rust reads "inf" and "nan" too; the format knows neither.
        _ if text.contains(|c: char| c.is_ascii_alphabetic() && c != 'e') => None,
        _ => text.parse().ok(),
    }
}

/// What the house's rules say against a page: names, units, labels, kinds.
pub fn faults(page: &Page) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, family) in page {
        let mut say = |what: &str| faults.push(format!("{name}: {what}"));
        let is_total = name.ends_with("_total");
        if !name.starts_with("shoal_") {
            say("does not begin with shoal_");
        }
        if is_total != (family.kind == "counter") {
            say("counters, and they alone, end in _total");
        }
        if name.split('_').any(|word| DERIVED.contains(&word)) {
            say("not a base unit");
        }
        if !family.help.ends_with('.') || family.help.len() < 8 {
            say("its help is no sentence");
        }
        let names = family.samples.iter().flat_map(|(_, labels, _)| labels.keys());
        let strange: BTreeSet<&String> = names.filter(|label| !LABELS.contains(&label.as_str())).collect();
        if !strange.is_empty() {
            say(&format!("labels {strange:?} may have as many values as there are members"));
        }
        if family.kind != "gauge" && family.samples.iter().any(|(_, _, value)| *value < 0.0) {
            say("a count below nothing");
        }
    }
    faults
}

/// The value of a sample without labels, or with this one.
pub fn value(page: &Page, name: &str, label: Option<(&str, &str)>) -> Option<f64> {
    let is_meant = |labels: &BTreeMap<String, String>| match label {
        None => labels.is_empty(),
        Some((key, value)) => labels.get(key).is_some_and(|found| found == value),
    };
    let samples = page.get(name)?.samples.iter();
    samples.filter(|(_, labels, _)| is_meant(labels)).map(|(_, _, value)| *value).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "# HELP shoal_a_total So many \\\\ of them.\n# TYPE shoal_a_total counter\nshoal_a_total 3\n";

    #[test]
    fn a_good_page_is_read_and_found_to_be_good() {
        let more = "# HELP shoal_b What is so.\n# TYPE shoal_b gauge\nshoal_b{kind=\"a\\\"b\\n\",role=\"x\"} -1.5e3\n";
        let page = read(&format!("{GOOD}{more}")).unwrap();
        assert_eq!(page["shoal_a_total"].help, "So many \\ of them.");
        assert_eq!(value(&page, "shoal_b", Some(("kind", "a\"b\n"))), Some(-1500.0));
        assert_eq!((faults(&page), value(&page, "shoal_a_total", None)), (vec![], Some(3.0)));
    }

    #[test]
    fn what_the_format_does_not_allow_is_not_read() {
        let family = |samples: &str| format!("# HELP shoal_b B b b.\n# TYPE shoal_b gauge\n{samples}");
        for wrong in [
            "shoal_a_total 3\n".to_owned(),
            GOOD.trim_end().to_owned(),
            format!("{GOOD}{GOOD}"),
            format!("{GOOD}shoal_a_total 4\n"),
            format!("{GOOD}shoal_c 4\n"),
            format!("# HELP shoal_c C.\n{GOOD}"),
            GOOD.replace("counter", "number"),
            GOOD.replace("\\\\", "\\q"),
            family(""),
            family("shoal_b{kind=\"x} 1\n"),
            family("shoal_b{kind=\"x\"kind=\"y\"} 1\n"),
            family("shoal_b{kind=\"x\",kind=\"y\"} 1\n"),
            family("shoal_b  1\n"),
            family("shoal_b inf\n"),
            family("shoal_b{kind=\"\\q\"} 1\n"),
            family("shoal_b 1\n\n"),
        ] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_histogram_adds_up_to_its_count() {
        let page = |buckets: &str| {
            let head = "# HELP shoal_h How much.\n# TYPE shoal_h histogram\n";
            read(&format!("{head}{buckets}shoal_h_sum 9\nshoal_h_count 4\n"))
        };
        let bucket = |bound: &str, count: u32| format!("shoal_h_bucket{{le=\"{bound}\"}} {count}\n");
        assert!(page(&(bucket("0", 1) + &bucket("3", 3) + &bucket("+Inf", 4))).is_ok());
        assert!(page(&(bucket("3", 3) + &bucket("0", 1) + &bucket("+Inf", 4))).is_err());
        assert!(page(&(bucket("0", 2) + &bucket("3", 1) + &bucket("+Inf", 4))).is_err());
        assert!(page(&(bucket("0", 1) + &bucket("+Inf", 3))).is_err());
        assert!(page(&(bucket("0", 1) + &bucket("3", 4))).is_err());
    }

    #[test]
    fn each_rule_finds_what_breaks_it() {
        let faults_of = |name: &str, kind: &str, help: &str, sample: &str| {
            faults(&read(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{sample}\n")).unwrap())
                .len()
        };
        assert_eq!(faults_of("shoal_a_total", "counter", "So many.", " 3"), 0);
        assert_eq!(faults_of("a_total", "counter", "So many.", " 3"), 1);
        assert_eq!(faults_of("shoal_a", "counter", "So many.", " 3"), 1);
        assert_eq!(faults_of("shoal_a_total", "gauge", "So many.", " 3"), 1);
        assert_eq!(faults_of("shoal_a_millis", "gauge", "So long.", " 3"), 1);
        assert_eq!(faults_of("shoal_a", "gauge", "So long", " 3"), 1);
        assert_eq!(faults_of("shoal_a", "gauge", "So long.", "{trainer=\"t-1\"} 3"), 1);
        assert_eq!(faults_of("shoal_a_total", "counter", "So many.", " -3"), 1);
    }
}
