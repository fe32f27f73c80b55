//! Settings that are one word of a few. Their words are the same in flags, manifests and documents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Derives what every word of a setting needs.
macro_rules! words {
    ($(#[$of_all:meta])* $name:ident { $($(#[$of_one:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$of_all])*
        #[derive(
            clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(rename_all = "lowercase")]
        #[value(rename_all = "lowercase")]
        pub enum $name {
            $($(#[$of_one])* $variant,)*
        }

        impl $name {
            /// The word for it.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }
    };
}

words! {
    /// How updates follow one another.
    Mode {
        /// One update for each step.
        #[default]
        Sync = "sync",
        /// One update for each microbatch.
        Async = "async",
    }
}

words! {
    /// How precise gradients travel and are summed.
    Gradients {
        /// As they were computed.
        #[default]
        F32 = "f32",
        /// Rounded, in half the bytes.
        Bf16 = "bf16",
    }
}

words! {
    /// Whether trainers of one job may have environments of their own.
    EnvironmentRule {
        /// Whoever has another than the job's is refused.
        #[default]
        Same = "same",
        /// They are let in, and the difference is logged.
        Warn = "warn",
        /// Nobody compares.
        Any = "any",
    }
}
