//! The two data sets: which fields they have, and their rows as records. It must never know how a field is used.

use super::{columns, records};
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use std::path::Path;

/// A data set, every field of it categorical.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Set {
    /// Adult: does somebody earn more than 50,000 dollars a year?
    Adult,
    /// MovieLens-100k: does somebody rate a film with 4 or 5 of 5 stars?
    Movielens,
}

/// Without `fnlwgt`, which says how many people a row stands for.
const ADULT: [&str; 13] = [
    "age",
    "workclass",
    "education",
    "educational-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "gender",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
];
const MOVIELENS: [&str; 5] = ["user", "item", "age", "gender", "occupation"];
/// The age groups of MovieLens-1M, each with the age that is too old for it.
const AGES: [(u32, &str); 7] = [
    (18, "under 18"),
    (25, "18-24"),
    (35, "25-34"),
    (45, "35-44"),
    (50, "45-49"),
    (56, "50-55"),
    (u32::MAX, "56 and over"),
];

impl Set {
    /// Names of the fields, in the order of a record's values.
    pub(crate) fn fields(self) -> &'static [&'static str] {
        match self {
            Set::Adult => &ADULT,
            Set::Movielens => &MOVIELENS,
        }
    }

    /// The records of all rows, in the order of the files in `folder`.
    ///
    /// # Errors
    /// A file that is missing or damaged, a row that says something else than is known here, by file and row.
    pub(crate) fn rows(self, folder: &Path) -> anyhow::Result<Vec<String>> {
        match self {
            Set::Adult => adult(&folder.join("adult.parquet.brotli")),
            Set::Movielens => movielens(
                &folder.join("MovieLens100k_data.parquet.brotli"),
                &folder.join("MovieLens100k_users.parquet.brotli"),
            ),
        }
    }
}

fn adult(path: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = ["income"; ADULT.len() + 1];
    names[1..].copy_from_slice(&ADULT);
    each(path, columns::read(path, names)?, |[income, values @ ..]| {
        let is_positive = match income.as_str() {
            ">50K" => true,
            "<=50K" => false,
            other => bail!("an income is >50K or <=50K, and not {other:?}"),
        };
        records::encode(is_positive, &values.each_ref().map(String::as_str))
    })
}

fn movielens(ratings: &Path, users: &Path) -> anyhow::Result<Vec<String>> {
    let people = columns::read(users, ["user_id", "age", "gender", "occupation"])?;
    let people = each(users, people, |[user, age, gender, occupation]| {
        Ok((user, [age_group(&age)?.to_owned(), gender, occupation]))
    })?;
    let people: BTreeMap<String, [String; 3]> = people.into_iter().collect();
    each(ratings, columns::read(ratings, ["rating", "user_id", "movie_id"])?, |[rating, user, item]| {
        let stars: u32 = rating.parse().unwrap_or_default();
        ensure!((1..=5).contains(&stars), "a rating is from 1 to 5, and not {rating}");
        let person = people.get(&user);
        let person = person.with_context(|| format!("user {user} is not in {}", users.display()))?;
        let [age, gender, occupation] = person.each_ref().map(String::as_str);
        records::encode(stars >= 4, &[&user, &item, age, gender, occupation])
    })
}

/// Every row turned into something; what is wrong with one is told by file and row.
fn each<const N: usize, T>(
    path: &Path,
    rows: Vec<[String; N]>,
    turn: impl Fn([String; N]) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    let at = |number: i32| format!("{}, row {number}", path.display());
    (1..).zip(rows).map(|(number, row)| turn(row).with_context(|| at(number))).collect()
}

fn age_group(age: &str) -> anyhow::Result<&'static str> {
    let years: u32 = age.parse().with_context(|| format!("an age is a number of years, and not {age:?}"))?;
    let group = AGES.iter().find(|(too_old, _)| years < *too_old);
    Ok(group.with_context(|| format!("{years} years is no age"))?.1)
}

#[cfg(test)]
mod tests {
    use super::columns::tests::{Made, write};
    use super::*;

    fn refusal(set: Set, folder: &Path) -> String {
        format!("{:#}", set.rows(folder).unwrap_err())
    }

    #[test]
    fn adult_has_every_column_but_the_weight() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("adult.parquet.brotli");
        let values: Vec<[String; 2]> =
            (0..13).map(|field| [format!("{field}"), format!("v{field}")]).collect();
        let values: Vec<[&str; 2]> = values.iter().map(|two| two.each_ref().map(String::as_str)).collect();
        let named = |incomes| {
            let mut columns: Vec<Made<'_>> = vec![("income", incomes), ("fnlwgt", &["7", "8"])];
            columns.extend(ADULT.iter().zip(&values).rev().map(|(name, values)| (*name, values.as_slice())));
            write(&path, &columns);
        };
        named(&["<=50K", ">50K"]);
        let rows = Set::Adult.rows(folder.path()).unwrap();
        let values = |side: usize| values.iter().map(|two| two[side]).collect::<Vec<_>>().join("\t");
        assert_eq!(rows, [format!("0\t{}", values(0)), format!("1\t{}", values(1))]);
        named(&["<=50K", "50K"]);
        let refused = refusal(Set::Adult, folder.path());
        assert!(refused.contains("adult.parquet.brotli, row 2: an income is >50K or <=50K, and not \"50K\""));
    }

    #[test]
    fn movielens_joins_what_is_known_of_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let [ratings, users] =
            ["data", "users"].map(|name| folder.path().join(format!("MovieLens100k_{name}.parquet.brotli")));
        let mut people: Vec<Made<'_>> = vec![
            ("user_id", &["2", "1"]),
            ("age", &["17", "56"]),
            ("gender", &["F", "M"]),
            ("occupation", &["student", "none"]),
        ];
        write(&users, &people);
        let rated = |stars, user| {
            write(
                &ratings,
                &[("user_id", &["1", user]), ("movie_id", &["50", "7"]), ("rating", &["4", stars])],
            );
        };
        rated("3", "2");
        let rows = Set::Movielens.rows(folder.path()).unwrap();
        assert_eq!(rows, ["1\t1\t50\t56 and over\tM\tnone", "0\t2\t7\tunder 18\tF\tstudent"]);
        rated("3", "9");
        assert!(
            refusal(Set::Movielens, folder.path()).contains("data.parquet.brotli, row 2: user 9 is not in")
        );
        rated("6", "2");
        assert!(refusal(Set::Movielens, folder.path()).contains("row 2: a rating is from 1 to 5, and not 6"));
        people[1].1 = &["17", "old"];
        write(&users, &people);
        assert!(refusal(Set::Movielens, folder.path()).contains("users.parquet.brotli, row 2: an age is"));
        people[1].1 = &["-3", "30"];
        write(&users, &people);
        assert!(refusal(Set::Movielens, folder.path()).contains("a number of years, and not \"-3\""));
    }

    #[test]
    fn every_age_is_in_one_group() {
        let groups: Vec<&str> = (0..100).map(|age| age_group(&age.to_string()).unwrap()).collect();
        for (age, group) in [(0, 0), (17, 0), (18, 1), (24, 1), (25, 2), (44, 3), (45, 4), (50, 5), (56, 6)] {
            assert_eq!(groups[age], AGES[group].1);
        }
        assert!(groups.is_sorted_by_key(|group| AGES.iter().position(|(_, name)| name == group)));
    }
}
