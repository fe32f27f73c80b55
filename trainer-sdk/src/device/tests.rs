//! What is reduced on a device, over a driver of ours, has the bits of what is reduced here.

#[path = "../../../runtime/src/host/cuda/fake/mod.rs"]
pub(crate) mod fake;

use super::areas::{Areas, SumOnDevice};
use super::*;
use crate::gradient::Gradient;
use crate::names::Names;
use crate::reduce::{LocalTree, NodeSum};
use crate::share::InAreas;
use crate::tables::Keys;
use fake::Fake;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::permutation::mix;
use shoal_runtime::cluster::{BlockId, Metric, Parameter, Precision, Rule, Schedule, StepTree};
use shoal_runtime::host::cuda::{MapLock, SHARED_BYTES};

fn declaration() -> Declaration {
    let dense = |name: &str, elements| {
        Parameter::new(name, &[elements], Rule::ADAM, Schedule::constant(0.1), Initial::Zeros)
    };
    let parameters = vec![
        dense("first", 700),
        Parameter::sum("counter", &[3]),
        dense("second", 5),
        Parameter::metric("accuracy", Metric::Accuracy),
    ];
    Declaration { parameters, block_elements: 64 }
}

fn on_device(parameters: &[&str]) -> OnDevice {
    OnDevice { ordinal: 0, parameters: parameters.iter().map(|name| (*name).to_owned()).collect() }
}

/// Gradients of all sizes: subnormal ones, negative zeros, and those that are rounded to other magnitudes.
fn values(of: u64, elements: usize) -> Vec<f32> {
    let value = |at: usize| {
        let draw = mix(of << 32 | at as u64);
        match at % 3 {
            0 => -0.0,
            1 => f32::from_bits(draw as u32 & 0x81FF_FFFF),
            _ => (draw as i32) as f32 / 1e7,
        }
    };
    (0..elements).map(value).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn sums_on_a_device_have_the_bits_of_sums_here() {
    let _fake = Fake::driver();
    for gradients in Precision::ALL {
        let here = Arc::new(Names::new(declaration(), 7, gradients));
        let device = Device::open(&on_device(&["second", "first"]), &declaration()).unwrap();
        let there = Arc::new(Names::new(declaration(), 7, gradients).with_device(Some(device)));
        let tree = StepTree::new(16, 13);
        let sum = |names: &Arc<Names>| {
            let mut local = LocalTree::new(tree, tree.root(), names.rounded.clone());
            while let Some(slot) = local.next_slot() {
                let mut gradient = Gradient::zeros(names, Keys::new(names), 1).unwrap();
                for (at, elements) in [(0, 700), (1, 3), (2, 5)] {
                    let values = values(u64::from(slot) * 4 + at as u64, elements);
                    match gradient.there.as_ref().filter(|_| names.is_on_device(at)) {
                        Some(tensors) => tensors.slice(at).unwrap().write(&values).unwrap(),
                        None => gradient.values[at].copy_from_slice(&values),
                    }
                }
                let there = gradient.there.map(|tensors| {
                    tensors.settle(&names.rounded).unwrap();
                    Arc::new(SumOnDevice::new(tensors))
                });
                let (values, rows) = (gradient.values, gradient.rows);
                local.push(NodeSum { values, rows, there, weight: 1, exclusions: 0 }).unwrap();
            }
            local.finish().unwrap()
        };
        let (ours, theirs) = (sum(&here), sum(&there));
        let tensors = &theirs.there.as_ref().unwrap().tensors;
        assert_eq!(bits(&tensors.read(0, 0..700).unwrap()), bits(&ours.values[0]), "{gradients:?}");
        assert_eq!(bits(&tensors.read(2, 1..4).unwrap()), bits(&ours.values[2][1..4]), "{gradients:?}");
        assert_eq!(bits(&theirs.values[1]), bits(&ours.values[1]));
        assert!(theirs.values[0].is_empty() && ours.there.is_none());
    }
}

#[test]
fn the_first_value_that_is_not_finite_is_found() {
    let fake = Fake::driver();
    let device = Device::open(&on_device(&["first", "second"]), &declaration()).unwrap();
    let tensors = device.zeros().unwrap();
    let allocations = fake.counts()[3];
    assert_eq!(tensors.first_non_finite(), Ok(None));
    let second = [0.0, f32::MAX, f32::NAN, 1.0, f32::INFINITY];
    tensors.slice(2).unwrap().write(&second).unwrap();
    assert_eq!(tensors.first_non_finite(), Ok(Some((2, 2))));
    // What is rounded to an infinity is none any more.
    tensors.settle(&[0, 0, 2, 0]).unwrap();
    assert_eq!(tensors.first_non_finite(), Ok(Some((2, 1))));
    let mut values = vec![0.0; 700];
    values[699] = f32::NEG_INFINITY;
    tensors.slice(0).unwrap().write(&values).unwrap();
    assert_eq!(tensors.first_non_finite(), Ok(Some((0, 699))));
    drop(tensors);
    assert_eq!(device.zeros().unwrap().first_non_finite(), Ok(None), "memory that is used again is zero");
    assert_eq!(fake.counts()[3], allocations);
}

#[test]
fn what_cannot_be_on_a_device_is_refused_by_name() {
    let _fake = Fake::driver();
    let refused = |parameters: &[&str]| {
        let refused = Device::open(&on_device(parameters), &declaration()).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
        refused.to_string()
    };
    assert_eq!(refused(&["third"]), "parameter \"third\" cannot be on a device: it was not declared");
    assert!(refused(&["accuracy"]).contains("no metrics"));
    assert!(refused(&["first", "first"]).contains("named twice"));
    let absent = Device::open(&OnDevice { ordinal: 3, ..on_device(&["first"]) }, &declaration());
    let said = absent.unwrap_err();
    assert_eq!(said.exit_code(), 1);
    assert!(said.to_string().starts_with("no CUDA device 3: "), "{said}");
}

#[test]
fn a_device_that_is_lost_says_so_to_whoever_computes() {
    let fake = Fake::driver();
    let device = Device::open(&on_device(&["first"]), &declaration()).unwrap();
    let tensors = device.zeros().unwrap();
    fake.set("LOSE_AFTER", "1");
    assert!(matches!(tensors.settle(&[0; 4]), Err(DeviceError::Lost { .. })));
    assert!(matches!(device.zeros(), Err(DeviceError::Lost { .. })));
}

#[test]
fn the_gradient_of_what_is_on_a_device_is_there_and_nowhere_else() {
    let _fake = Fake::driver();
    let device = Device::open(&on_device(&["second"]), &declaration()).unwrap();
    let names = Arc::new(Names::new(declaration(), 7, Precision::F32).with_device(Some(device)));
    let mut gradient = Gradient::zeros(&names, Keys::new(&names), 1).unwrap();
    assert_eq!(gradient.on_device_mut("second").unwrap().elements(), 5);
    assert_eq!(gradient.slice_mut("first").unwrap().len(), 700);
    let here = gradient.on_device_mut("first").unwrap_err().to_string();
    assert!(here.contains("`Model::on_device`"), "{here}");
    let there = gradient.slice_mut("second").unwrap_err().to_string();
    assert!(there.contains("`on_device_mut`"), "{there}");
    assert!(gradient.slice("second").is_err() && gradient.add("second", &[0.0; 5]).is_err());
}

#[test]
fn of_a_block_in_an_area_what_is_on_the_device_goes_there_and_the_rest_to_what_came() {
    let (fake, folder) = (Fake::driver(), tempfile::tempdir().unwrap());
    fake.set("SHARED", folder.path().to_str().unwrap());
    let dense = |name: &str, elements| {
        Parameter::new(name, &[elements], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros)
    };
    // The second block has the end of the first parameter and all of the second.
    let parameters = vec![dense("first", 70), dense("second", 5)];
    let declaration = Declaration { parameters, block_elements: 64 };
    let device = Device::open(&on_device(&["first"]), &declaration).unwrap();
    let names = Names::new(declaration, 7, Precision::F32).with_device(Some(Arc::clone(&device)));
    let context = Context::open(0).unwrap();
    let memory = context.allocate("an area", SHARED_BYTES).unwrap();
    let mapped = device.map(memory.export().unwrap(), SHARED_BYTES).unwrap();
    let places = [(BlockId(0), 0), (BlockId(1), 256)].into_iter().collect();
    let areas = Areas::new(&device);
    let area = areas.area((1, 1), (mapped, MapLock::hold().unwrap()), places);
    let mut in_areas = InAreas::of([(1, String::new(), areas.add(area))]);
    let (given, sent) = (values(1, 11), values(2, 70));
    context.write(&memory, 256, bytemuck::cast_slice(&given)).unwrap();
    in_areas.has(1, BlockId(1));
    let mut came = vec![sent.clone(), vec![0.0; 5]].into();
    let tensors = in_areas.settle(&names, &device, &mut came).unwrap();
    assert_eq!(bits(&came[1]), bits(&given[6..]));
    let first = tensors.slice(0).unwrap().read().unwrap();
    assert_eq!(bits(&first), bits(&[&sent[..64], &given[..6]].concat()));
}
