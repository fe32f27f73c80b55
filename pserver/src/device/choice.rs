//! Where updates run, as a user says it. Pure.

use std::fmt;
use std::str::FromStr;

/// Where updates run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// On the processor.
    #[default]
    Cpu,
    /// On this CUDA device, or not at all.
    Cuda(u32),
    /// On the first CUDA device if it can be used, otherwise on the processor.
    Auto,
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceChoice, String> {
        let ordinal = text.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok());
        match (text, ordinal) {
            ("cpu", _) => Ok(DeviceChoice::Cpu),
            ("auto", _) => Ok(DeviceChoice::Auto),
            ("cuda", _) => Ok(DeviceChoice::Cuda(0)),
            (_, Some(ordinal)) => Ok(DeviceChoice::Cuda(ordinal)),
            _ => Err("not auto, cpu or cuda:N, with N the number of a device".to_owned()),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Cpu => write!(f, "cpu"),
            DeviceChoice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            DeviceChoice::Auto => write!(f, "auto"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_chosen_and_all_else_is_refused() {
        for choice in [DeviceChoice::Cpu, DeviceChoice::Auto, DeviceChoice::Cuda(0), DeviceChoice::Cuda(3)] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CPU", "cuda:4294967296"] {
            assert!(wrong.parse::<DeviceChoice>().is_err(), "{wrong:?}");
        }
    }
}
