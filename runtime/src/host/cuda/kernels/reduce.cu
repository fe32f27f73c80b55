// The local reduction on a device: leaves made canonical, sums of two, the first value that is not finite.
//
// The only source of this arithmetic for devices; trainer-sdk/src/reduce.rs is the same for the processor. build.py makes reduce.*.ptx and
// reduce.*.cubin of it, tests compile it for the processor and compare both bit for bit.

#include "values.cuh"

// What a value is in the precision in which it travels: of each parameter the first elements are rounded to bf16.
INSIDE float settled(float value, u64 element, u64 rounded) {
  return element < rounded ? round_bf16(value) : value + 0.0f;
}

#define FOR_EACH(element, elements)                                                    \
  for (u64 element = (u64)blockIdx.x * blockDim.x + threadIdx.x; element < (elements); \
       element += (u64)gridDim.x * blockDim.x)

// A leaf, in place.
KERNEL settle(float *values, u64 elements, u64 rounded) {
  FOR_EACH(at, elements) values[at] = settled(values[at], at, rounded);
}

// left = left + right.
KERNEL add(float *left, const float *right, u64 elements, u64 rounded) {
  FOR_EACH(at, elements) left[at] = settled(left[at] + right[at], at, rounded);
}

// The lowest element that is no finite number, if it is below what is there.
KERNEL find_non_finite(const float *values, u64 elements, u64 *lowest) {
  FOR_EACH(at, elements) {
    if ((bits_of(values[at]) & 0x7F800000u) == 0x7F800000u) atomicMin(lowest, at);
  }
}
