//! The sizes of the network and the names and shapes of its parameters: those of PyTorch's residual networks, so that an
//! exported model can be loaded into one built alike. Pure.

use super::convolution::{Convolution, KERNEL};
use super::norm::Channels;

/// Outputs of the network.
pub(crate) const CLASSES: usize = 10;
/// Each has half the side and twice the filters of the one before.
const STAGES: usize = 3;

/// What an image is.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub(crate) enum Image {
    /// MNIST, Fashion-MNIST
    #[value(name = "28x28x1")]
    Gray,
    /// CIFAR-10: a plane each of red, green, blue
    #[value(name = "32x32x3")]
    Coloured,
}

/// What the network is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Planes of an image.
    pub(crate) channels: usize,
    /// Its side, in pixels.
    pub(crate) side: usize,
    /// Filters of the first stage.
    pub(crate) width: usize,
    /// Residual blocks of each stage, of two units each.
    pub(crate) blocks: usize,
}

/// A convolution with its batch norm. The first stands alone, of the others each two are a residual block.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    pub(crate) convolution: Convolution,
    /// Kernel, scale, shift, running mean, running variance.
    pub(crate) names: [String; 5],
}

impl Image {
    pub(crate) fn channels_and_side(self) -> (usize, usize) {
        match self {
            Image::Gray => (1, 28),
            Image::Coloured => (3, 32),
        }
    }
}

impl Unit {
    fn new(convolution: Convolution, prefix: &str, number: usize) -> Unit {
        let norm = |of: &str| format!("{prefix}bn{number}.{of}");
        let kernel = format!("{prefix}conv{number}.weight");
        let [scale, shift] = ["weight", "bias"].map(norm);
        let [mean, variance] = ["running_mean", "running_var"].map(norm);
        Unit { convolution, names: [kernel, scale, shift, mean, variance] }
    }

    /// What is normalised.
    pub(crate) fn channels(&self) -> Channels {
        Channels { count: self.convolution.filters, plane: self.convolution.plane() }
    }

    /// The shape of the kernel, outputs first.
    pub(crate) fn kernel_shape(&self) -> [u64; 4] {
        let Convolution { channels, filters, .. } = self.convolution;
        [filters as u64, channels as u64, KERNEL as u64, KERNEL as u64]
    }
}

impl Sizes {
    /// From the image to the mean over pixels, in the order in which they are gone through.
    pub(crate) fn units(&self) -> Vec<Unit> {
        let Sizes { channels, side, width, .. } = *self;
        let first = Convolution { channels, side, filters: width, stride: 1 };
        let mut units = vec![Unit::new(first, "", 1)];
        let (mut channels, mut side) = (width, side);
        for (stage, block) in (0..STAGES).flat_map(|stage| (0..self.blocks).map(move |block| (stage, block)))
        {
            let filters = width << stage;
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let prefix = format!("layer{}.{block}.", stage + 1);
            let one = Convolution { channels, side, filters, stride };
            let two = Convolution { channels: filters, side: one.side_after(), filters, stride: 1 };
            units.extend([Unit::new(one, &prefix, 1), Unit::new(two, &prefix, 2)]);
            (channels, side) = (filters, two.side);
        }
        units
    }

    /// Channels of the last stage.
    pub(crate) fn features(&self) -> usize {
        self.width << (STAGES - 1)
    }

    /// Values of an image.
    pub(crate) fn pixels(&self) -> usize {
        self.channels * self.side * self.side
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_halve_the_side_and_double_the_filters() {
        let (channels, side) = Image::Coloured.channels_and_side();
        let units = Sizes { channels, side, width: 8, blocks: 2 }.units();
        assert_eq!(units.len(), 13);
        let shown = |unit: &Unit| {
            let Convolution { channels, side, filters, .. } = unit.convolution;
            format!("{} {channels}x{side} {filters}x{}", unit.names[0], unit.convolution.side_after())
        };
        assert_eq!(shown(&units[0]), "conv1.weight 3x32 8x32");
        assert_eq!(shown(&units[5]), "layer2.0.conv1.weight 8x32 16x16");
        assert_eq!(shown(&units[6]), "layer2.0.conv2.weight 16x16 16x16");
        assert_eq!(shown(&units[12]), "layer3.1.conv2.weight 32x8 32x8");
        assert_eq!(units[12].names[3], "layer3.1.bn2.running_mean");
    }
}
