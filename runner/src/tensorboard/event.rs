//! TensorBoard's event files: the few messages of its protocol that a run writes, and the frame around each. It reads what was
//! written up to the first record that is not whole, and must never panic on a stranger's bytes.
//!
//! The messages are TensorBoard's `event.proto`, `summary.proto` and `plugin_data.proto` of the hparams plugin, without the fields
//! that nobody here uses. The frame is a TFRecord's: u64 length, masked CRC-32C of the length, payload, masked CRC-32C of the payload,
//! little-endian.

use prost::Message;
use std::collections::BTreeMap;

/// The first event of every file says so.
pub(super) const VERSION: &str = "brain.Event:2";
const LENGTH_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;

/// One event: the file's version, or values.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub(super) wall_time: f64,
    #[prost(int64, tag = "2")]
    pub(super) step: i64,
    #[prost(oneof = "What", tags = "3, 5")]
    pub(super) what: Option<What>,
}

/// What an event is of.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub(super) value: Vec<Tagged>,
}

/// A value under its tag.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Tagged {
    #[prost(string, tag = "1")]
    pub(super) tag: String,
    #[prost(message, optional, tag = "9")]
    pub(super) metadata: Option<Metadata>,
    #[prost(oneof = "Content", tags = "2, 8")]
    pub(super) content: Option<Content>,
}

/// A number, or what a plugin takes.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Content {
    #[prost(float, tag = "2")]
    Number(f32),
    #[prost(message, tag = "8")]
    Tensor(Tensor),
}

/// A tensor of no elements is all that is written: plugins that keep everything in the metadata need one.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Tensor {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<Shape>,
}

#[derive(Clone, PartialEq, Message)]
struct Shape {
    #[prost(message, repeated, tag = "2")]
    dimensions: Vec<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
struct Dimension {
    #[prost(int64, tag = "1")]
    size: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metadata {
    #[prost(message, optional, tag = "1")]
    plugin: Option<Plugin>,
}

#[derive(Clone, PartialEq, Message)]
struct Plugin {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bytes = "vec", tag = "2")]
    content: Vec<u8>,
}

/// What the hparams plugin is told, in the metadata of a value.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Hyperparameters {
    #[prost(message, optional, tag = "3")]
    pub(super) begun: Option<Begun>,
    #[prost(message, optional, tag = "4")]
    pub(super) ended: Option<Ended>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Begun {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) values: BTreeMap<String, Setting>,
    /// Runs of one group are shown as tries of the same values.
    #[prost(string, tag = "4")]
    pub(super) group: String,
    #[prost(double, tag = "5")]
    pub(super) wall_time: f64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Ended {
    /// 1 of one that is done.
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
    #[prost(double, tag = "2")]
    pub(super) wall_time: f64,
}

/// A hyperparameter's value, as protobuf's `Value`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Setting {
    #[prost(oneof = "Given", tags = "2, 3, 4")]
    pub(super) given: Option<Given>,
}

/// How a hyperparameter was given.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Given {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Switch(bool),
}

impl Event {
    /// The first of a file.
    pub(super) fn version(wall_time: f64) -> Event {
        Event { wall_time, step: 0, what: Some(What::FileVersion(VERSION.to_owned())) }
    }

    /// Values at one step. Steps beyond what the protocol counts are its last.
    pub(super) fn values(wall_time: f64, step: u64, value: Vec<Tagged>) -> Event {
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        Event { wall_time, step, what: Some(What::Summary(Summary { value })) }
    }

    /// The event as it stands in a file.
    pub(super) fn framed(&self) -> Vec<u8> {
        framed(&self.encode_to_vec())
    }

    /// The values of an event that has some.
    pub(super) fn summary(&self) -> &[Tagged] {
        match &self.what {
            Some(What::Summary(summary)) => &summary.value,
            _ => &[],
        }
    }
}

impl Tagged {
    /// A number; none where it is none in the precision that the protocol has.
    pub(super) fn number(tag: &str, value: f64) -> Option<Tagged> {
        let value = Some(value as f32).filter(|value| value.is_finite())?;
        Some(Tagged { tag: tag.to_owned(), metadata: None, content: Some(Content::Number(value)) })
    }

    /// What the hparams plugin reads under that tag.
    pub(super) fn of_plugin(tag: &str, content: &Hyperparameters) -> Tagged {
        let plugin = Some(Plugin { name: "hparams".to_owned(), content: content.encode_to_vec() });
        // DT_FLOAT of shape (0).
        let tensor = Tensor { kind: 1, shape: Some(Shape { dimensions: vec![Dimension { size: 0 }] }) };
        let content = Some(Content::Tensor(tensor));
        Tagged { tag: tag.to_owned(), metadata: Some(Metadata { plugin }), content }
    }
}

/// A payload in its frame.
fn framed(payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u64).to_le_bytes();
    [&length[..], &checksum(&length), payload, &checksum(payload)].concat()
}

/// The events of a file up to where it breaks off, or was damaged.
pub(super) fn read(mut bytes: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some((payload, rest)) = unframed(bytes)
        && let Ok(event) = Event::decode(payload)
    {
        events.push(event);
        bytes = rest;
    }
    events
}

/// The first payload, and what follows its frame.
fn unframed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = checked(bytes, LENGTH_BYTES)?;
    let length = u64::from_le_bytes(length.try_into().ok()?);
    checked(rest, usize::try_from(length).ok()?)
}

/// So many bytes, whose checksum follows, and what is behind it.
fn checked(bytes: &[u8], length: usize) -> Option<(&[u8], &[u8])> {
    let (content, rest) = bytes.split_at_checked(length)?;
    let (found, rest) = rest.split_at_checked(CHECKSUM_BYTES)?;
    (found == checksum(content)).then_some((content, rest))
}

/// CRC-32C under the mask of TensorFlow's `crc32c.h`.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hexadecimal(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn loss() -> Event {
        Event::values(1.5, 7, Tagged::number("loss", 0.25).into_iter().collect())
    }

    #[test]
    fn events_have_the_bytes_that_tensorboard_gives_them() {
        // `Event(wall_time=1.5, step=7, summary=Summary(value=[Summary.Value(tag="loss", simple_value=0.25)]))` of TensorBoard 2.21.
        assert_eq!(
            hexadecimal(&loss().encode_to_vec()),
            "09000000000000f83f10072a0d0a0b0a046c6f7373150000803e"
        );
        let version = Event::version(1.5).encode_to_vec();
        assert_eq!(hexadecimal(&version), "09000000000000f83f1a0d627261696e2e4576656e743a32");
        // Its `metadata.NULL_TENSOR` of the hparams plugin.
        let tagged = Tagged::of_plugin("t", &Hyperparameters::default());
        let Some(Content::Tensor(tensor)) = tagged.content else { panic!("{tagged:?}") };
        assert_eq!(hexadecimal(&tensor.encode_to_vec()), "080112021200");
    }

    #[test]
    fn a_record_s_frame_is_the_published_one() {
        // The masked checksum of "123456789" is 0xc78ab0e5: RFC 3720's, rotated, and the mask of the format added.
        assert_eq!(checksum(b"123456789"), 0xc78a_b0e5_u32.to_le_bytes());
        let framed = framed(b"123456789");
        assert_eq!(framed.len(), 8 + 4 + 9 + 4);
        assert_eq!((&framed[..8], &framed[12..21]), (&[9, 0, 0, 0, 0, 0, 0, 0][..], &b"123456789"[..]));
        assert_eq!(framed[21..], 0xc78a_b0e5_u32.to_le_bytes());
    }

    #[test]
    fn what_is_no_finite_number_of_32_bits_is_no_value() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            assert_eq!(Tagged::number("m", value), None);
        }
        assert!(Tagged::number("m", -0.5).is_some());
    }

    #[test]
    fn a_file_is_read_up_to_its_first_record_that_is_damaged_or_cut_short() {
        let (version, loss) = (Event::version(1.0), loss());
        let whole = [version.framed(), loss.framed(), loss.framed()].concat();
        assert_eq!(read(&whole), [version.clone(), loss.clone(), loss.clone()]);
        let (second, third) = (version.framed().len(), version.framed().len() + loss.framed().len());
        for cut in 0..whole.len() {
            let kept = usize::from(cut >= second) + usize::from(cut >= third);
            assert_eq!(read(&whole[..cut]).len(), kept, "cut at {cut}");
        }
        for bit in second * 8..third * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&damaged), std::slice::from_ref(&version), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn a_stranger_s_bytes_are_read_or_not_and_end_nobody(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), is_framed: bool
        ) {
            read(&if is_framed { framed(&bytes) } else { bytes });
        }
    }
}
