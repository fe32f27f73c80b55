//! Text for XML and for eyes: escaping, digit groups, shortening.
//! It must never let a character through that ends a tag or an attribute, or that XML 1.0 forbids.

/// Safe between tags and inside quoted attributes, of XML and of HTML.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(character),
            '\u{0}'..'\u{20}' | '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 step`, `2 steps`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// At most `limit` characters, the last of them an ellipsis where something was cut.
pub fn shortened(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    text.chars().take(limit.saturating_sub(1)).chain(['…']).collect()
}

/// About how wide a text of the small size is at most, in pixels: measured with DejaVu Sans in bold, the widest of
/// the usual system fonts.
pub fn width(text: &str) -> f64 {
    text.chars().count() as f64 * 7.2
}

/// A moment or a duration, to a tenth of a second.
pub fn seconds(value: f64) -> String {
    if value.is_finite() { format!("{value:.1} s") } else { "unknown".to_owned() }
}
