//! Quantities as Kubernetes writes them. Pure.

/// Bytes of a quantity such as `4Gi`, `500M`, `1.5G` or `1e9`; none if it is no quantity.
pub fn bytes(quantity: &str) -> Option<u64> {
    Some(quantity_value(quantity)?.ceil() as u64)
}

/// The number that a quantity such as `250m`, `2`, `4Gi` or `1e9` says; none if it is no quantity, or negative.
///
/// Suffixes as in Kubernetes' serialization format of quantities.
pub fn quantity_value(quantity: &str) -> Option<f64> {
    let digits = quantity.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "Pi" => 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "Ei" => 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0,
        exponent => {
            let exponent = exponent.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
            format!("1e{exponent}").parse().ok()?
        }
    };
    Some(number * factor)
}

/// Twice as many bytes, but not more than `most`; none if that is no more than there was.
pub fn doubled(now: u64, most: u64) -> Option<u64> {
    let next = now.saturating_mul(2).min(most);
    (next > now).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        let known = [
            ("4Gi", 4 << 30),
            ("500M", 500_000_000),
            ("1.5Ki", 1536),
            ("1e9", 1_000_000_000),
            ("12E2", 1200),
            ("128974848", 128_974_848),
            ("100m", 1),
        ];
        for (text, wanted) in known {
            assert_eq!(bytes(text), Some(wanted), "{text}");
        }
        for wrong in ["", "Gi", "4GiB", "four", "1e", "--"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn doubling_ends_at_the_most() {
        assert_eq!(
            (doubled(2, 16), doubled(8, 12), doubled(12, 12), doubled(20, 12)),
            (Some(4), Some(12), None, None)
        );
    }
}
