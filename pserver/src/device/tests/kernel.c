// The kernel on this processor, a thread after another, for tests that compare it.

struct Index { unsigned int x, y, z; };
static _Thread_local struct Index threadIdx, blockIdx, blockDim;

#include "update.cu"

void run(const struct Piece *pieces, const struct Operand *operands, const struct Chunk *chunks, u32 blocks, u32 threads) {
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
    for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) update(pieces, operands, chunks);
  }
}
