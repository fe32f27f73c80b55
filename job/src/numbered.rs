//! Data without files: `records:N` stands where files are named, and means N records, each of which is its own number: the 8 bytes
//! of a little-endian u64 from 0 to N - 1. Nobody reads them: the master pins, and trainers make, what follows from N.

/// What such a name begins with. A path that does is written `./records:…`.
const PREFIX: &str = "records:";
/// The most records, those of 4 Mi chunks: as many as one file may have.
pub const RECORDS_MAX: u64 = 1 << 36;

/// Whether a name means records without files, or nothing. Nothing else has such a name: trainers know files by their paths from the
/// root.
pub fn is_numbered(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// How many records such a name means.
///
/// # Errors
/// What is wrong with it, after the name.
pub fn records(name: &str) -> Result<u64, String> {
    let said = name.strip_prefix(PREFIX).unwrap_or_default();
    if said.is_empty() || !said.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "{name:?}: a number of records is written in digits, as in records:60000; a file that is called so is \
             named ./{name}"
        ));
    }
    match said.parse() {
        Ok(0) => Err(format!("{name}: no record in it: give records:1 at least")),
        Ok(records) if records <= RECORDS_MAX => Ok(records),
        // Digits that are no number are too many.
        _ => Err(format!("{name}: a data set has records:{RECORDS_MAX} at most")),
    }
}

/// What is said of such a name in a list with others.
pub fn not_alone(name: &str) -> String {
    format!(
        "{name}: a number of records stands alone in its list: give files, or one number, the sum of all records that the \
         program has"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_a_number_of_records_or_says_what_to_write() {
        for (name, number) in
            [("records:1", 1), ("records:60000", 60_000), ("records:68719476736", RECORDS_MAX)]
        {
            assert_eq!((is_numbered(name), records(name)), (true, Ok(number)), "{name}");
        }
        for (name, way_out) in [
            ("records:0", "records:1 at least"),
            ("records:000", "records:1 at least"),
            ("records:", "in digits, as in records:60000"),
            ("records: 5", "in digits"),
            ("records:5 ", "in digits"),
            ("records:-1", "in digits"),
            ("records:+1", "in digits"),
            ("records:1e6", "in digits"),
            ("records:60_000", "in digits"),
            ("records:60,000", "in digits"),
            ("records:0x10", "in digits"),
            ("records:1.5", "in digits"),
            ("records:٣", "in digits"),
            ("records:*", "named ./records:*"),
            ("records://5", "named ./records://5"),
            ("records:a/b.recordio", "named ./records:a/b.recordio"),
            ("records:68719476737", "records:68719476736 at most"),
            ("records:18446744073709551616", "at most"),
            ("records:99999999999999999999999999999", "at most"),
        ] {
            let why = records(name).unwrap_err();
            assert!(why.contains(way_out) && why.contains(name), "{name}: {why}");
        }
        for name in
            ["./records:5", "/d/records:5", "record:5", "Records:5", "s3://b/records:5", " records:5", ""]
        {
            assert!(!is_numbered(name), "{name}");
        }
    }
}
