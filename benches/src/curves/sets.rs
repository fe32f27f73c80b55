//! The data sets: what they are called, which files they are, how to get them, and what is trained on them. Pure.

use std::fmt;
use std::path::{Path, PathBuf};

/// A data set of images in ten classes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Set {
    Mnist,
    FashionMnist,
    #[value(name = "cifar-10")]
    #[serde(rename = "cifar-10")]
    Cifar10,
}

/// A set and the folder of its files, as `SET=DIR`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) set: Set,
    pub(crate) folder: PathBuf,
}

/// Whether records are trained on or held out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part {
    Train,
    HeldOut,
}

/// One possible form of a part of a set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Form {
    /// Images and labels, which `shoal recordio pack idx` packs.
    Idx { images: PathBuf, labels: PathBuf },
    /// Records of a label and planes, one after another in files.
    Binary(Vec<PathBuf>),
}

impl Set {
    /// Its example of the SDK, and what that is told.
    pub(crate) fn program(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Set::Mnist => ("mnist", &[]),
            Set::FashionMnist => ("resnet", &["--image", "28x28x1"]),
            Set::Cifar10 => ("resnet", &["--image", "32x32x3"]),
        }
    }

    pub(crate) fn network(self) -> &'static str {
        match self {
            Set::Mnist => "LeNet-5",
            Set::FashionMnist | Set::Cifar10 => "ResNet-8 of 8 filters",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Set::Mnist => "MNIST",
            Set::FashionMnist => "Fashion-MNIST",
            Set::Cifar10 => "CIFAR-10",
        }
    }

    /// Records to train on and epochs that a machine of two cores can do several times.
    pub(crate) fn records_and_epochs(self) -> (u64, u32) {
        match self {
            Set::Mnist => (60_000, 6),
            Set::FashionMnist | Set::Cifar10 => (20_000, 6),
        }
    }

    /// Bytes of a record of the binary version.
    pub(crate) const CIFAR_RECORD: usize = 1 + 3 * 32 * 32;

    /// The forms in which a part may lie in `folder`, the likeliest first.
    pub(crate) fn forms(self, folder: &Path, part: Part) -> Vec<Form> {
        if self == Set::Cifar10 {
            let names: Vec<String> = match part {
                Part::Train => (1..=5).map(|number| format!("data_batch_{number}.bin")).collect(),
                Part::HeldOut => vec!["test_batch.bin".to_owned()],
            };
            return vec![Form::Binary(names.iter().map(|name| folder.join(name)).collect())];
        }
        let name = if part == Part::Train { "train" } else { "t10k" };
        let idx = |ending: &str| {
            let [images, labels] = ["images-idx3", "labels-idx1"]
                .map(|what| folder.join(format!("{name}-{what}-ubyte{ending}")));
            Form::Idx { images, labels }
        };
        vec![idx(""), idx(".gz")]
    }

    /// How to get what is missing.
    pub(crate) fn way_out(self, folder: &Path) -> String {
        let folder = folder.display();
        match self {
            Set::Cifar10 => format!(
                "give the folder of its binary version as --data cifar-10=DIR: data_batch_1.bin to data_batch_5.bin and \
                 test_batch.bin, of records of {} bytes. It is fetched by nothing here",
                Set::CIFAR_RECORD
            ),
            set => format!("get it with `python3 trainer-sdk/examples/fetch.py {set} {folder}`"),
        }
    }
}

impl Form {
    pub(crate) fn files(&self) -> Vec<&Path> {
        match self {
            Form::Idx { images, labels } => vec![images, labels],
            Form::Binary(files) => files.iter().map(PathBuf::as_path).collect(),
        }
    }
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let why = || format!("{text:?} is not SET=DIR with a set of mnist, fashion-mnist, cifar-10");
        let (set, folder) = text.split_once('=').ok_or_else(why)?;
        let set = clap::ValueEnum::from_str(set, false).map_err(|_| why())?;
        Ok(Place { set, folder: folder.into() })
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Set::Mnist => "mnist",
            Set::FashionMnist => "fashion-mnist",
            Set::Cifar10 => "cifar-10",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_names_its_set_and_nonsense_is_refused() {
        let place: Place = "fashion-mnist=a=b".parse().unwrap();
        assert_eq!(place, Place { set: Set::FashionMnist, folder: "a=b".into() });
        assert!("imagenet=a".parse::<Place>().unwrap_err().contains("cifar-10"));
        assert!("mnist".parse::<Place>().is_err());
    }

    #[test]
    fn names_are_those_of_the_command_line_and_of_json() {
        for set in [Set::Mnist, Set::FashionMnist, Set::Cifar10] {
            assert_eq!(serde_json::to_string(&set).unwrap(), format!("\"{set}\""));
            assert_eq!(format!("{set}=x").parse::<Place>().unwrap().set, set);
        }
    }

    #[test]
    fn who_lacks_a_set_is_told_the_command_that_gets_it() {
        assert!(Set::Mnist.way_out(Path::new("data/m")).contains("fetch.py mnist data/m"));
        assert!(Set::Cifar10.way_out(Path::new("x")).contains("data_batch_5.bin"));
    }
}
