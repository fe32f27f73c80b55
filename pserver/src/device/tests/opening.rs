//! Which devices are taken, and what is said of those that are not.

use super::super::{Device, DeviceChoice, DeviceError};
use super::fake::Fake;

fn refusal(fake: &Fake, settings: &[(&str, &str)]) -> DeviceError {
    settings.iter().for_each(|(name, value)| fake.set(name, value));
    let refusal = Device::open(DeviceChoice::Cuda(0)).expect_err("it is fit for nothing");
    assert!(matches!(Device::open(DeviceChoice::Auto), Ok(None)), "the processor instead of {settings:?}");
    refusal
}

#[test]
fn the_processor_asks_no_driver() {
    assert!(matches!(Device::open(DeviceChoice::Cpu), Ok(None)));
}

#[test]
fn a_device_that_makes_our_bits_is_taken_with_whichever_code_its_driver_takes() {
    let fake = Fake::driver();
    for settings in [&[][..], &[("CAPABILITY", "8.6")], &[("CAPABILITY", "12.0")], &[("REFUSE_CUBIN", "1")]] {
        settings.iter().for_each(|(name, value)| fake.set(name, value));
        let device = Device::open(DeviceChoice::Auto).unwrap().expect("it is fit");
        assert_eq!(device.name(), "fake device 0");
        assert_eq!(
            (device.usage().blocks, device.take_finished().len()),
            (0, 0),
            "nothing of the test is left"
        );
    }
}

#[test]
fn a_device_that_is_not_there_is_said_to_be_absent() {
    let fake = Fake::driver();
    let why = Device::open(DeviceChoice::Cuda(3)).unwrap_err();
    assert!(matches!(&why, DeviceError::Absent { ordinal: 3, .. }), "{why:?}");
    assert!(why.to_string().contains("this machine has 1") && why.to_string().contains("--device"), "{why}");
    let why = refusal(&fake, &[("DEVICES", "0")]);
    assert!(why.to_string().contains("CUDA_ERROR_NO_DEVICE"), "{why}");
}

#[test]
fn a_device_or_driver_that_is_too_old_is_unsuitable() {
    let fake = Fake::driver();
    let why = refusal(&fake, &[("CAPABILITY", "7.5")]).to_string();
    assert!(why.contains("capability 7.5") && why.contains("fake device 0"), "{why}");
    let why = refusal(&fake, &[("CAPABILITY", "9.0"), ("REFUSE_CUBIN", "1"), ("REFUSE_PTX", "1")]);
    assert!(matches!(why, DeviceError::Unsuitable { .. }) && why.to_string().contains("550"), "{why}");
}

#[test]
fn a_device_that_makes_other_bits_is_unsuitable() {
    let fake = Fake::driver();
    let why = refusal(&fake, &[("FLUSH", "1")]);
    assert!(matches!(why, DeviceError::Unsuitable { .. }), "{why:?}");
    assert!(why.to_string().contains("on the processor"), "{why}");
}

#[test]
fn a_device_without_memory_to_work_with_says_how_much_it_has() {
    let fake = Fake::driver();
    let why = refusal(&fake, &[("MEMORY", "40000000")]);
    assert!(matches!(why, DeviceError::Memory { bytes: 33_554_432, .. }), "{why:?}");
}
