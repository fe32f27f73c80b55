// One launch for many updates: sums up what came for each block, runs its rules once, writes the new parameters.
//
// The only source of this arithmetic for devices. It is C as much as CUDA: build.py makes update.*.ptx and update.*.cubin
// of it, tests compile it for the processor and compare it bit for bit with kernel/rules. Every operation is a plain
// IEEE f32 operation in the order that kernel/rules has; contraction is off (--fmad=false), division and square root are
// correctly rounded, subnormals are kept. An element depends on its own values alone: no shared memory, no atomics.
//
// Layout: the buffers of a block begin at multiples of 16 bytes, so that four elements at a time lie alike in all of them.

#include "values.cuh"

#define LANES 4

// Sums that wait for another, at most: of a tree whose deeper side comes first, the logarithm of its leaves.
#define WAITING 24

// Four neighbours, read and written in one go.
struct __attribute__((aligned(16))) Quad { float lanes[LANES]; };
struct __attribute__((aligned(8))) HalfQuad { unsigned short lanes[LANES]; };

// As device/batch.rs lays it out.
// KEEP is what has no rule: it stays as it is.
enum Rule { SGD, MOMENTUM, NESTEROV, ADAGRAD, ADAM, ADAMW, AMSGRAD, FTRL, EMA, SUM, KEEP };

struct Constants {
  float weight;        // records in the sum
  float rate;          // the learning rate as it is scaled for this update
  float plain_rate;    // the learning rate
  float scale;         // what gradients are scaled with where the rate may not be
  float weight_decay;
  float rule[7];       // in the order that each rule below names
};

struct Piece {
  u64 parameters;      // where the block's parameters begin
  u64 next;            // where the new ones do: elsewhere, so that both versions are there to be read
  u64 slots[3];        // where its rule state begins
  u32 first_operand;   // what is summed up: a tree, its leaves in order, a sum after what it is of
  u32 operands;
  u32 rule;
  u32 rounds;          // whether leaves and sums of two are rounded to bf16
  struct Constants constants;
};

struct Operand {
  u64 address;         // where the block's values begin
  u32 is_half;         // whether they are bf16
  u32 joins;           // once it is there, how often the two newest sums become one
};

struct Chunk {
  u32 piece;
  u32 elements;
  u64 first;           // in the block
};

// The lanes from `begin` to `end` of a quad; what is beyond them is not touched.
INSIDE void read_quad(const float *from, u64 quad, int begin, int end, float *to) {
  if (end - begin == LANES) {
    struct Quad whole = ((const struct Quad *)from)[quad];
    UNROLL for (int lane = 0; lane < LANES; lane++) to[lane] = whole.lanes[lane];
    return;
  }
  UNROLL for (int lane = 0; lane < LANES; lane++) {
    to[lane] = lane >= begin && lane < end ? from[quad * LANES + lane] : 0.0f;
  }
}

INSIDE void write_quad(float *to, u64 quad, int begin, int end, const float *from) {
  if (end - begin == LANES) {
    struct Quad whole;
    UNROLL for (int lane = 0; lane < LANES; lane++) whole.lanes[lane] = from[lane];
    ((struct Quad *)to)[quad] = whole;
    return;
  }
  UNROLL for (int lane = 0; lane < LANES; lane++) {
    if (lane >= begin && lane < end) to[quad * LANES + lane] = from[lane];
  }
}

INSIDE void read_halves(const unsigned short *from, u64 quad, int begin, int end, float *to) {
  struct HalfQuad whole = {{0, 0, 0, 0}};
  if (end - begin == LANES) {
    whole = ((const struct HalfQuad *)from)[quad];
  } else {
    UNROLL for (int lane = 0; lane < LANES; lane++) {
      if (lane >= begin && lane < end) whole.lanes[lane] = from[quad * LANES + lane];
    }
  }
  UNROLL for (int lane = 0; lane < LANES; lane++) to[lane] = of_bits((u32)whole.lanes[lane] << 16);
}

// What came, canonical: -0.0 becomes 0.0.
INSIDE void read_leaf(const struct Piece *piece, const struct Operand *operand, u64 quad, int begin, int end, float *to) {
  if (operand->is_half) {
    read_halves((const unsigned short *)operand->address, quad, begin, end, to);
  } else {
    read_quad((const float *)operand->address, quad, begin, end, to);
  }
  UNROLL for (int lane = 0; lane < LANES; lane++) to[lane] = piece->rounds ? round_bf16(to[lane]) : to[lane] + 0.0f;
}

// The sum of two. An addition has the same bits from either side.
INSIDE void join(const struct Piece *piece, const float *other, float *sum) {
  UNROLL for (int lane = 0; lane < LANES; lane++) {
    float both = sum[lane] + other[lane];
    sum[lane] = piece->rounds ? round_bf16(both) : both;
  }
}

// What follows the first leaf is joined to `sum`: the root of the tree. On a straight way up it each leaf joins what all before it
// add up to, and nothing waits.
INSIDE void sum_up(const struct Piece *piece, const struct Operand *operands, u64 quad, int begin, int end, float *sum) {
  float waiting[WAITING][LANES];
  int waits = 0;
  for (u32 at = 1; at < piece->operands; at++) {
    const struct Operand *operand = &operands[piece->first_operand + at];
    u32 joins = operand->joins;
    float leaf[LANES];
    read_leaf(piece, operand, quad, begin, end, leaf);
    if (joins) {
      join(piece, leaf, sum);
      for (joins--; joins > 0; joins--) join(piece, waiting[--waits], sum);
    } else {
      UNROLL for (int lane = 0; lane < LANES; lane++) {
        waiting[waits][lane] = sum[lane];
        sum[lane] = leaf[lane];
      }
      waits++;
    }
  }
}

INSIDE float mean(const struct Constants *with, float sum) { return sum / with->weight; }

INSIDE float gradient(const struct Constants *with, float sum, float parameter) {
  return mean(with, sum) + with->weight_decay * parameter;
}

INSIDE float root(float value) {
#ifdef __CUDACC__
  return sqrtf(value);
#else
  return __builtin_sqrtf(value);
#endif
}

INSIDE float magnitude(float value) { return of_bits(bits_of(value) & 0x7FFFFFFFu); }

INSIDE float with_sign_of(float value, float sign) {
  return of_bits((bits_of(value) & 0x7FFFFFFFu) | (bits_of(sign) & 0x80000000u));
}

// rule: momentum.
INSIDE float heavy_ball(const struct Constants *with, float sum, float parameter, float *velocity) {
  *velocity = with->rule[0] * *velocity + gradient(with, sum, parameter);
  return parameter - with->rate * *velocity;
}

INSIDE float nesterov(const struct Constants *with, float sum, float parameter, float *velocity) {
  float slope = gradient(with, sum, parameter);
  *velocity = with->rule[0] * *velocity + slope;
  return parameter - with->rate * (slope + with->rule[0] * *velocity);
}

// rule: epsilon.
INSIDE float adagrad(const struct Constants *with, float sum, float parameter, float *squares) {
  float slope = gradient(with, sum, parameter);
  *squares = *squares + slope * slope;
  return parameter - (with->rate * slope) / (root(*squares) + with->rule[0]);
}

// rule: beta1, 1 - beta1, beta2, 1 - beta2, epsilon, 1 - beta1^t, 1 - beta2^t.
INSIDE void take_moments(const struct Constants *with, float slope, float *first, float *second) {
  *first = with->rule[0] * *first + with->rule[1] * slope;
  *second = with->rule[2] * *second + with->rule[3] * (slope * slope);
}

INSIDE float adam_change(const struct Constants *with, float first, float second) {
  float corrected = first / with->rule[5];
  float deviation = root(second / with->rule[6]) + with->rule[4];
  return (with->rate * corrected) / deviation;
}

INSIDE float adam(const struct Constants *with, float sum, float parameter, float *first, float *second) {
  take_moments(with, gradient(with, sum, parameter), first, second);
  return parameter - adam_change(with, *first, *second);
}

INSIDE float adamw(const struct Constants *with, float sum, float parameter, float *first, float *second) {
  float shrink = with->rate * with->weight_decay;
  take_moments(with, mean(with, sum), first, second);
  return (parameter - shrink * parameter) - adam_change(with, *first, *second);
}

INSIDE float amsgrad(const struct Constants *with, float sum, float parameter, float *first, float *second, float *largest) {
  take_moments(with, gradient(with, sum, parameter), first, second);
  *largest = *second > *largest ? *second : *largest;
  return parameter - adam_change(with, *first, *largest);
}

// rule: l1, l2, beta.
INSIDE float ftrl(const struct Constants *with, float sum, float parameter, float *linear, float *squares) {
  float l1 = with->rule[0], l2 = with->rule[1], beta = with->rule[2];
  float slope = with->scale * gradient(with, sum, parameter);
  if (*linear == 0.0f && *squares == 0.0f && parameter != 0.0f) {
    *linear = -(parameter * (beta / with->plain_rate + l2) + with_sign_of(l1, parameter));
  }
  float before = root(*squares);
  *squares = *squares + slope * slope;
  float after = root(*squares);
  float sigma = (after - before) / with->plain_rate;
  *linear = *linear + (slope - sigma * parameter);
  if (magnitude(*linear) <= l1) return 0.0f;
  return -(*linear - with_sign_of(l1, *linear)) / ((beta + after) / with->plain_rate + l2);
}

// rule: decay, 1 - decay.
INSIDE float ema(const struct Constants *with, float sum, float parameter) {
  return with->rule[0] * parameter + with->rule[1] * mean(with, sum);
}

// The rounded sum, and exactly what its rounding left out.
INSIDE float two_sum(float a, float b, float *lost) {
  float sum = a + b;
  float of_b = sum - a;
  float of_a = sum - of_b;
  *lost = (a - of_a) + (b - of_b);
  return sum;
}

INSIDE float count(float sum, float parameter, float *remainder) {
  float lost, left;
  float plain = two_sum(parameter, sum, &lost);
  float total = two_sum(plain, lost + *remainder, &left);
  int is_finite = (bits_of(total) & 0x7FFFFFFFu) < 0x7F800000u;
  *remainder = is_finite ? left : 0.0f;
  return is_finite ? total : plain;
}

INSIDE float next(u32 rule, const struct Constants *with, float sum, float parameter, float *s0, float *s1, float *s2) {
  switch (rule) {
    case SGD: return parameter - with->rate * gradient(with, sum, parameter);
    case MOMENTUM: return heavy_ball(with, sum, parameter, s0);
    case NESTEROV: return nesterov(with, sum, parameter, s0);
    case ADAGRAD: return adagrad(with, sum, parameter, s0);
    case ADAM: return adam(with, sum, parameter, s0, s1);
    case ADAMW: return adamw(with, sum, parameter, s0, s1);
    case AMSGRAD: return amsgrad(with, sum, parameter, s0, s1, s2);
    case FTRL: return ftrl(with, sum, parameter, s0, s1);
    case EMA: return ema(with, sum, parameter);
    default: return count(sum, parameter, s0);
  }
}

INSIDE int slots_of(u32 rule) {
  switch (rule) {
    case MOMENTUM: case NESTEROV: case ADAGRAD: case SUM: return 1;
    case ADAM: case ADAMW: case FTRL: return 2;
    case AMSGRAD: return 3;
    default: return 0;
  }
}

// One block of threads' part, by a rule that is known when this is compiled: what all threads have alike is read once, and the
// loads of a quad are under way together.
INSIDE void update_chunk(const struct Piece *piece, const struct Operand *operands, u32 rule, u64 first, u64 last) {
  const struct Operand leaf = operands[piece->first_operand];
  int slots = slots_of(rule);
  for (u64 quad = first / LANES + threadIdx.x; quad * LANES < last; quad += blockDim.x) {
    u64 start = quad * LANES;
    int begin = start < first ? (int)(first - start) : 0;
    int end = last - start < LANES ? (int)(last - start) : LANES;
    float values[LANES], sum[LANES], state[3][LANES] = {{0}, {0}, {0}};
    read_quad((const float *)piece->parameters, quad, begin, end, values);
    if (rule == KEEP) {
      write_quad((float *)piece->next, quad, begin, end, values);
      continue;
    }
    UNROLL for (int slot = 0; slot < 3; slot++) {
      if (slot < slots) read_quad((const float *)piece->slots[slot], quad, begin, end, state[slot]);
    }
    read_leaf(piece, &leaf, quad, begin, end, sum);
    sum_up(piece, operands, quad, begin, end, sum);
    UNROLL for (int lane = 0; lane < LANES; lane++) {
      values[lane] = next(rule, &piece->constants, sum[lane], values[lane], &state[0][lane], &state[1][lane], &state[2][lane]);
    }
    write_quad((float *)piece->next, quad, begin, end, values);
    UNROLL for (int slot = 0; slot < 3; slot++) {
      if (slot < slots) write_quad((float *)piece->slots[slot], quad, begin, end, state[slot]);
    }
  }
}

// One block of threads for each chunk.
KERNEL update(const struct Piece *pieces, const struct Operand *operands, const struct Chunk *chunks) {
  const struct Chunk chunk = chunks[blockIdx.x];
  const struct Piece piece = pieces[chunk.piece];
  u64 first = chunk.first, last = chunk.first + chunk.elements;
  switch (piece.rule) {
#define BY(rule) case rule: update_chunk(&piece, operands, rule, first, last); break;
    BY(SGD) BY(MOMENTUM) BY(NESTEROV) BY(ADAGRAD) BY(ADAM) BY(ADAMW) BY(AMSGRAD) BY(FTRL) BY(EMA) BY(SUM) BY(KEEP)
  }
}
