// What all device code of ours begins with. It is C as much as CUDA: build.py gives it to the device's compiler, tests to the
// processor's. Every operation is a plain IEEE f32 operation: contraction is off (--fmad=false), division and square root are
// correctly rounded, subnormals are kept.

#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef __CUDACC__
// Four blocks of threads to a multiprocessor: few enough registers that half of its threads are there to wait for memory.
#define KERNEL extern "C" __global__ void __launch_bounds__(256, 4)
#define INSIDE static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#else
// The processor: who includes this file says which thread of which block it is.
#define KERNEL void
#define INSIDE static inline
#define UNROLL
#endif

INSIDE float of_bits(u32 bits) {
  union { u32 bits; float value; } both;
  both.bits = bits;
  return both.value;
}

INSIDE u32 bits_of(float value) {
  union { u32 bits; float value; } both;
  both.value = value;
  return both.bits;
}

// As runtime/cluster/precision has it.
INSIDE float round_bf16(float value) {
  u32 bits = bits_of(value);
  u32 rounded = bits + (0x7FFFu + ((bits >> 16) & 1u));
  if (value != value) rounded = bits | 0x00400000u;
  return of_bits(rounded & 0xFFFF0000u) + 0.0f;
}
