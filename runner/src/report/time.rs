//! What trainers' time went to, as one bar of shares with a legend, and what would help.
//! It must never tell by colour alone: every share has its word and its number.

use super::Time;
use shoal_figures::text::escape;

/// A section of the page; nothing where nothing is known.
pub(super) fn section(time: Option<&Time>) -> String {
    let Some(time) = time.filter(|time| !time.shares.is_empty()) else { return String::new() };
    let percent = |share: f64| if share.is_finite() { (100.0 * share).clamp(0.0, 100.0) } else { 0.0 };
    let part = |(word, share): &(&str, f64)| {
        let (word, percent) = (escape(word), percent(*share));
        format!(
            "<div class=\"part t-{word}\" style=\"width:{percent:.2}%\" title=\"{word} {percent:.1} %\"></div>"
        )
    };
    let entry = |(word, share): &(&str, f64)| {
        let (word, percent) = (escape(word), percent(*share));
        format!(
            "<li><span class=\"key t-{word}\"></span>{word} <b>{percent:.1} %</b> <span class=\"nothing\">{}</span></li>\n",
            meaning(&word)
        )
    };
    let advice =
        time.advice.as_ref().map(|advice| format!("<p>{}</p>\n", escape(advice))).unwrap_or_default();
    let parts: String = time.shares.iter().map(part).collect();
    let entries: String = time.shares.iter().map(entry).collect();
    format!(
        "<section><h2>Where trainers\u{2019} time went</h2>\n<div class=\"bar\">{parts}</div>\n<ul class=\"legend\">\n{entries}</ul>\n{advice}</section>\n"
    )
}

fn meaning(word: &str) -> &'static str {
    match word {
        "compute" => "the step function",
        "pull" => "parameters coming from pservers",
        "push" => "gradients going to pservers",
        "read" => "waiting for records",
        "wait" => "no task, or others yet to complete the step before",
        _ => "",
    }
}

/// The style of what is above.
pub(super) const STYLE: &str = "
.bar{display:flex;height:26px;border-radius:8px;overflow:hidden;border:1px solid var(--line);background:var(--card)}
.part{height:100%;box-shadow:inset -1px 0 0 var(--card)}
.part:last-child{box-shadow:none}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 22px;margin:10px 0 0;padding:0;font-size:14px}
.key{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:7px}
.t-compute{background:#0072b2}.t-pull{background:#56b4e9}.t-push{background:#009e73}.t-read{background:#e69f00}.t-wait{background:#b8c0c8}
";
