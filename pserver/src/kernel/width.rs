//! One loop compiled for registers of several widths, of which the widest that this processor has is taken as the process runs.
//!
//! A wider register holds more elements and changes no operation on any: the bits are those of the plain loop, whose tail runs
//! the same operations one by one. Fused multiply-add is not among the features, and the compiler contracts nothing by itself.

#![allow(unsafe_code, reason = "a function compiled for a feature may be called only where it is there")]

/// A loop. Its `run`, and what that calls, is to be `#[inline(always)]`: else it is compiled for the narrowest alone.
pub trait Loop {
    /// What it gives.
    type Output;
    /// Runs it once.
    fn run(self) -> Self::Output;
}

/// How wide. There is none that this processor has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Width {
    /// Those that this processor has, the narrowest first.
    pub fn all() -> impl Iterator<Item = Width> {
        let plain = [Some(Kind::Plain)];
        #[cfg(target_arch = "x86_64")]
        let wide = [
            std::is_x86_feature_detected!("avx2").then_some(Kind::Avx2),
            std::is_x86_feature_detected!("avx512f").then_some(Kind::Avx512),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let wide = [];
        plain.into_iter().chain(wide).flatten().map(Width)
    }

    /// The narrowest, which every processor has.
    #[inline(always)]
    pub fn plain() -> Width {
        Width(Kind::Plain)
    }

    /// The widest. The processor is asked once in a process.
    #[inline]
    pub fn widest() -> Width {
        Width::all().last().unwrap_or(Width::plain())
    }

    /// Runs a loop at this width.
    #[inline]
    pub fn run<L: Loop>(self, work: L) -> L::Output {
        match self.0 {
            Kind::Plain => work.run(),
            // SAFETY: a `Width` of this kind is made only where the feature was found.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { avx2(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { avx512(work) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<L: Loop>(work: L) -> L::Output {
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512<L: Loop>(work: L) -> L::Output {
    work.run()
}
