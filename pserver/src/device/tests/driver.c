// A CUDA driver without a device, for tests: libcuda as far as this package calls it. The kernel runs on the processor.
// It must never be friendlier than a device.
//
// Work is queued, and done as late and as mixed as streams and events permit: only while somebody asks about an event, a few
// steps at a time, of streams drawn at random. Memory is poison until it is written, and every address is checked. Settings
// and faults come from shoal_fake_cuda_set, or from the file that SHOAL_FAKE_CUDA names as the process begins: NAME=VALUE.

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Index { unsigned int x, y, z; };
static _Thread_local struct Index threadIdx, blockIdx, blockDim;

#include "../kernels/update.cu"

enum {
  SUCCESS = 0, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200, NO_BINARY = 209, ECC = 214,
  UNSUPPORTED_PTX = 222, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700
};

enum Kind { COPY, LAUNCH, RECORD, WAIT };

struct Event { u64 recorded, done; };

struct Operation {
  struct Operation *next;
  enum Kind kind;
  void *to;
  const void *from;
  size_t bytes;
  u64 arguments[3];
  unsigned int blocks, threads;
  struct Event *event;
  u64 moment;
};

struct Stream { struct Operation *first, *last; struct Stream *next; };

struct Range { char *begin; size_t bytes; int is_device; struct Range *next; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct Stream *streams;
static struct Range *ranges;
static size_t taken;
static u64 draws = 1, launches, copied_in, copied_out, allocations;
static int failed;

static struct { const char *name; char value[32]; } settings[] = {
  {"DEVICES", "1"}, {"CAPABILITY", "9.0"}, {"MEMORY", "1073741824"}, {"LOSE_AFTER", ""}, {"STALL_AFTER", ""}, {"FLUSH", ""},
  {"REFUSE_CUBIN", ""}, {"REFUSE_PTX", ""},
};

static char *setting(const char *name) {
  for (size_t at = 0; at < sizeof settings / sizeof *settings; at++) {
    if (!strcmp(settings[at].name, name)) return settings[at].value;
  }
  fprintf(stderr, "fake CUDA: there is no setting %s\n", name);
  abort();
}

// What was lost or has stalled is there again.
void shoal_fake_cuda_set(const char *name, const char *value) {
  pthread_mutex_lock(&lock);
  launches = 0;
  failed = 0;
  snprintf(setting(name), sizeof settings->value, "%s", value);
  pthread_mutex_unlock(&lock);
}

static void __attribute__((constructor)) begin(void) {
  const char *name = getenv("SHOAL_FAKE_CUDA");
  FILE *file = name ? fopen(name, "r") : NULL;
  char line[64];
  while (file && fgets(line, sizeof line, file)) {
    char *value = strchr(line, '=');
    line[strcspn(line, "\n")] = 0;
    if (!value) continue;
    *value = 0;
    shoal_fake_cuda_set(line, value + 1);
  }
  if (file) fclose(file);
}

void shoal_fake_cuda_counts(u64 counts[4]) {
  pthread_mutex_lock(&lock);
  u64 now[4] = {launches, copied_in, copied_out, allocations};
  memcpy(counts, now, sizeof now);
  pthread_mutex_unlock(&lock);
}

static u64 draw(void) {
  draws ^= draws << 13;
  draws ^= draws >> 7;
  draws ^= draws << 17;
  return draws;
}

static void fault(const char *what) {
  fprintf(stderr, "fake CUDA: %s\n", what);
  abort();
}

static struct Range *range_of(const void *begin, size_t bytes) {
  for (struct Range *range = ranges; range; range = range->next) {
    if ((char *)begin >= range->begin && (char *)begin + bytes <= range->begin + range->bytes) return range;
  }
  return NULL;
}

static int overlaps(struct Range *range, const void *begin, size_t bytes) {
  return (char *)begin < range->begin + range->bytes && (char *)begin + bytes > range->begin;
}

static int is_due(const char *name) {
  const char *after = setting(name);
  return *after && launches >= strtoull(after, NULL, 10);
}

// Whether all that a launch touches is there.
static int is_sound(const struct Operation *launch) {
  const struct Piece *pieces = (const struct Piece *)launch->arguments[0];
  const struct Operand *operands = (const struct Operand *)launch->arguments[1];
  const struct Chunk *chunks = (const struct Chunk *)launch->arguments[2];
  if (!range_of(chunks, launch->blocks * sizeof *chunks)) return 0;
  for (unsigned int block = 0; block < launch->blocks; block++) {
    const struct Chunk *chunk = &chunks[block];
    const struct Piece *piece = &pieces[chunk->piece];
    if (!range_of(piece, sizeof *piece) || piece->parameters % 16) return 0;
    size_t first = 4 * chunk->first, bytes = 4 * (size_t)chunk->elements;
    if (!range_of((char *)piece->parameters + first, bytes)) return 0;
    for (int slot = 0; slot < slots_of(piece->rule); slot++) {
      if (!range_of((char *)piece->slots[slot] + first, bytes)) return 0;
    }
    for (u32 at = 0; at < piece->operands; at++) {
      const struct Operand *operand = &operands[piece->first_operand + at];
      size_t shift = operand->is_half ? 1 : 0;
      if (!range_of(operand, sizeof *operand) || operand->address % 16) return 0;
      if (!range_of((char *)operand->address + (first >> shift), bytes >> shift)) return 0;
    }
  }
  return 1;
}

// A chip that has no subnormals.
static void flush(const struct Operation *launch) {
  const struct Piece *pieces = (const struct Piece *)launch->arguments[0];
  const struct Chunk *chunks = (const struct Chunk *)launch->arguments[2];
  for (unsigned int block = 0; block < launch->blocks; block++) {
    float *values = (float *)pieces[chunks[block].piece].parameters + chunks[block].first;
    for (u32 at = 0; at < chunks[block].elements; at++) {
      if (!(bits_of(values[at]) & 0x7F800000u)) values[at] = 0.0f;
    }
  }
}

static void run(const struct Operation *launch) {
  if (!is_sound(launch)) {
    failed = ILLEGAL_ADDRESS;
    return;
  }
  u64 start = draw() % launch->blocks;
  blockDim.x = launch->threads;
  for (unsigned int block = 0; block < launch->blocks; block++) {
    blockIdx.x = (unsigned int)((start + block) % launch->blocks);
    for (unsigned int thread = launch->threads; thread-- > 0;) {
      threadIdx.x = thread;
      update((void *)launch->arguments[0], (void *)launch->arguments[1], (void *)launch->arguments[2]);
    }
  }
  if (*setting("FLUSH")) flush(launch);
  launches++;
  if (is_due("LOSE_AFTER")) failed = ECC;
}

// Does the next operation of a stream, unless it waits.
static int step(struct Stream *stream) {
  struct Operation *next = stream->first;
  if (!next || failed || is_due("STALL_AFTER")) return 0;
  if (next->kind == WAIT && next->event->done < next->moment) return 0;
  if (next->kind == COPY) memcpy(next->to, next->from, next->bytes);
  if (next->kind == RECORD) next->event->done = next->moment;
  if (next->kind == LAUNCH) run(next);
  stream->first = next->next;
  if (!stream->first) stream->last = NULL;
  free(next);
  return 1;
}

static void work(u64 steps) {
  u64 count = 0;
  for (struct Stream *stream = streams; stream; stream = stream->next) count++;
  while (count && steps-- > 0) {
    struct Stream *stream = streams;
    for (u64 at = draw() % count; at > 0; at--) stream = stream->next;
    step(stream);
  }
}

static int queue(struct Stream *stream, struct Operation operation) {
  pthread_mutex_lock(&lock);
  if (operation.kind == RECORD) operation.moment = ++operation.event->recorded;
  if (operation.kind == WAIT) operation.moment = operation.event->recorded;
  struct Operation *kept = malloc(sizeof *kept);
  *kept = operation;
  if (stream->last) stream->last->next = kept;
  else stream->first = kept;
  stream->last = kept;
  int now = failed;
  pthread_mutex_unlock(&lock);
  return now;
}

static int allocate(void **to, size_t bytes, int is_device) {
  pthread_mutex_lock(&lock);
  int result = failed;
  if (!result && is_device && taken + bytes > strtoull(setting("MEMORY"), NULL, 10)) result = OUT_OF_MEMORY;
  if (!result) {
    struct Range *range = malloc(sizeof *range);
    *range = (struct Range){aligned_alloc(256, (bytes + 255) / 256 * 256), bytes, is_device, ranges};
    memset(range->begin, 0xA5, bytes);
    ranges = range;
    taken += is_device ? bytes : 0;
    allocations++;
    *to = range->begin;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

static int release(void *begin, int is_device) {
  pthread_mutex_lock(&lock);
  for (struct Range **at = &ranges; *at; at = &(*at)->next) {
    struct Range *range = *at;
    if (range->begin != begin || range->is_device != is_device) continue;
    for (struct Stream *stream = streams; stream; stream = stream->next) {
      for (struct Operation *each = stream->first; each; each = each->next) {
        int is_used = each->kind == COPY && (overlaps(range, each->to, each->bytes) || overlaps(range, each->from, each->bytes));
        if (is_used && !failed) fault("memory is freed that a copy in flight needs");
      }
    }
    *at = range->next;
    taken -= is_device ? range->bytes : 0;
    free(range->begin);
    free(range);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
  }
  fault("memory is freed that was not allocated");
  return ILLEGAL_ADDRESS;
}

int cuInit(unsigned int flags) { (void)flags; return SUCCESS; }
int cuDeviceGetCount(int *count) { *count = atoi(setting("DEVICES")); return *count ? SUCCESS : NO_DEVICE; }
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal < atoi(setting("DEVICES")) ? SUCCESS : INVALID_DEVICE;
}
int cuDeviceGetName(char *name, int length, int device) {
  snprintf(name, (size_t)length, "fake device %d", device);
  return SUCCESS;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  const char *capability = setting("CAPABILITY");
  *value = attribute == 75 ? atoi(capability) : attribute == 76 ? atoi(strchr(capability, '.') + 1) : 0;
  return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = &streams; return SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return SUCCESS; }
int cuCtxSetCurrent(void *context) { return context == &streams ? SUCCESS : 201; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  *total = strtoull(setting("MEMORY"), NULL, 10);
  *free_bytes = *total - taken;
  return SUCCESS;
}
int cuMemAlloc_v2(u64 *address, size_t bytes) {
  void *begin = NULL;
  int result = allocate(&begin, bytes, 1);
  *address = (uintptr_t)begin;
  return result;
}
int cuMemFree_v2(u64 address) { return release((void *)address, 1); }
int cuMemHostAlloc(void **begin, size_t bytes, unsigned int flags) { (void)flags; return allocate(begin, bytes, 0); }
int cuMemFreeHost(void *begin) { return release(begin, 0); }

static int copy(void *to, const void *from, size_t bytes, struct Stream *stream, u64 *count) {
  pthread_mutex_lock(&lock);
  if (!range_of(to, bytes) || !range_of(from, bytes)) fault("a copy beyond what is allocated");
  *count += bytes;
  pthread_mutex_unlock(&lock);
  return queue(stream, (struct Operation){.kind = COPY, .to = to, .from = from, .bytes = bytes});
}
int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t bytes, struct Stream *stream) {
  return copy((void *)to, from, bytes, stream, &copied_in);
}
int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t bytes, struct Stream *stream) {
  return copy(to, (void *)from, bytes, stream, &copied_out);
}

int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t bytes, struct Stream *stream) {
  u64 uncounted = 0;
  return copy((void *)to, (void *)from, bytes, stream, &uncounted);
}
int cuMemcpyHtoD_v2(u64 to, const void *from, size_t bytes) {
  memcpy((void *)to, from, bytes);
  return SUCCESS;
}

int cuStreamCreate(struct Stream **stream, unsigned int flags) {
  (void)flags;
  pthread_mutex_lock(&lock);
  *stream = calloc(1, sizeof **stream);
  (*stream)->next = streams;
  streams = *stream;
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}
int cuStreamDestroy_v2(struct Stream *stream) {
  pthread_mutex_lock(&lock);
  if (stream->first && !failed) fault("a stream is destroyed that has work");
  for (struct Stream **at = &streams; *at; at = &(*at)->next) {
    if (*at != stream) continue;
    *at = stream->next;
    free(stream);
    break;
  }
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}
int cuStreamWaitEvent(struct Stream *stream, struct Event *event, unsigned int flags) {
  (void)flags;
  return queue(stream, (struct Operation){.kind = WAIT, .event = event});
}
int cuEventCreate(struct Event **event, unsigned int flags) {
  (void)flags;
  *event = calloc(1, sizeof **event);
  return SUCCESS;
}
int cuEventRecord(struct Event *event, struct Stream *stream) {
  return queue(stream, (struct Operation){.kind = RECORD, .event = event});
}
int cuEventQuery(struct Event *event) {
  pthread_mutex_lock(&lock);
  work(draw() % 16);
  int result = failed ? failed : event->done < event->recorded ? NOT_READY : SUCCESS;
  pthread_mutex_unlock(&lock);
  return result;
}
int cuEventSynchronize(struct Event *event) {
  int result = NOT_READY;
  while (result == NOT_READY) result = cuEventQuery(event);
  return result;
}
// It has no clock of its own.
int cuEventElapsedTime(float *milliseconds, struct Event *from, struct Event *to) {
  (void)from;
  (void)to;
  *milliseconds = 1.0f;
  return SUCCESS;
}
// Kept: a stream may still wait for it.
int cuEventDestroy_v2(struct Event *event) { (void)event; return SUCCESS; }

int cuModuleLoadData(void **module, const char *image) {
  int is_machine_code = !memcmp(image, "\177ELF", 4);
  if (is_machine_code && *setting("REFUSE_CUBIN")) return NO_BINARY;
  if (!is_machine_code && *setting("REFUSE_PTX")) return UNSUPPORTED_PTX;
  if (!is_machine_code && !strstr(image, ".visible .entry update(")) return INVALID_IMAGE;
  *module = &ranges;
  return SUCCESS;
}
int cuModuleUnload(void *module) { (void)module; return SUCCESS; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  *function = (void *)name;
  return strcmp(name, "update") ? NOT_FOUND : SUCCESS;
}
int cuLaunchKernel(void *function, unsigned int x, unsigned int y, unsigned int z, unsigned int tx, unsigned int ty,
                   unsigned int tz, unsigned int shared, struct Stream *stream, void **arguments, void **extra) {
  (void)function;
  if (y != 1 || z != 1 || ty != 1 || tz != 1 || shared || extra || !x) fault("a launch of another shape");
  struct Operation launch = {.kind = LAUNCH, .blocks = x, .threads = tx};
  for (int at = 0; at < 3; at++) launch.arguments[at] = *(u64 *)arguments[at];
  return queue(stream, launch);
}

int cuGetErrorName(int error, const char **name) {
  switch (error) {
    case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
    case NO_BINARY: *name = "CUDA_ERROR_NO_BINARY_FOR_GPU"; break;
    case ECC: *name = "CUDA_ERROR_ECC_UNCORRECTABLE"; break;
    case UNSUPPORTED_PTX: *name = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"; break;
    case ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    default: *name = "CUDA_ERROR_UNKNOWN";
  }
  return SUCCESS;
}
