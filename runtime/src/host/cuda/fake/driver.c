// A CUDA driver without a device, for tests: libcuda as far as we call it. Kernels run on the processor.
// It must never be friendlier than a device.
//
// Work is queued, and done as late and as mixed as streams and events permit: only while somebody asks about an event, a few
// steps at a time, of streams drawn at random. Memory is poison until it is written, and every address is checked. Settings
// and faults come from shoal_fake_cuda_set, or from the file that SHOAL_FAKE_CUDA names as the process begins: NAME=VALUE.

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct Index { unsigned int x, y, z; };
static _Thread_local struct Index threadIdx, blockIdx, blockDim, gridDim;
#define atomicMin(at, value) (*(at) = *(at) < (value) ? *(at) : (value))

#include "update.cu"
#include "reduce.cu"

enum {
  SUCCESS = 0, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200, NO_BINARY = 209, ECC = 214,
  UNSUPPORTED_PTX = 222, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, TIMEOUT = 702,
  NOT_SUPPORTED = 801
};

enum Kind { COPY, LAUNCH, RECORD, WAIT };

struct Event { u64 recorded, done; };

struct Operation {
  struct Operation *next;
  enum Kind kind;
  void *to;
  const void *from;
  size_t bytes;
  const char *kernel;
  u64 arguments[4];
  unsigned int blocks, threads;
  struct Event *event;
  u64 moment;
};

struct Stream { struct Operation *first, *last; struct Stream *next; };

// Memory of this process, of its device, or of another process's device. What is shared is a file, on which those who map it have a
// lock each.
enum Place { HOST, DEVICE, MAPPED };
struct Range { char *begin; size_t bytes; enum Place place; char file[32]; u64 life; struct Range *next; int locked; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// The default stream is always there.
static struct Stream plain;
static struct Stream *streams = &plain;
static struct Range *ranges;
static size_t taken;
static u64 draws = 1, launches, copied_in, copied_out, allocations;
static int failed;
// What was allocated before MEMORY was set is not counted: those who have it may be slow to go, or have lost it.
static u64 life;

static struct { const char *name; char value[256]; } settings[] = {
  {"DEVICES", "1"}, {"CAPABILITY", "9.0"}, {"MEMORY", "1073741824"}, {"LOSE_AFTER", ""}, {"STALL_AFTER", ""}, {"FLUSH", ""},
  {"REFUSE_CUBIN", ""}, {"REFUSE_PTX", ""},
  // This machine has no memory that can be pinned.
  {"REFUSE_PINS", ""},
  // Nobody is told how long an allocation is.
  {"REFUSE_RANGES", ""},
  // A folder: device memory is shared with whoever names the same one.
  {"SHARED", ""},
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
  if (!strcmp(name, "MEMORY")) {
    life++;
    taken = 0;
  }
  snprintf(setting(name), sizeof settings->value, "%s", value);
  pthread_mutex_unlock(&lock);
}

static void __attribute__((constructor)) begin(void) {
  const char *name = getenv("SHOAL_FAKE_CUDA");
  FILE *file = name ? fopen(name, "r") : NULL;
  char line[300];
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
    if (!range_of((char *)piece->parameters + first, bytes) || piece->next % 16) return 0;
    if (!range_of((char *)piece->next + first, bytes)) return 0;
    for (int slot = 0; slot < slots_of(piece->rule); slot++) {
      if (!range_of((char *)piece->slots[slot] + first, bytes)) return 0;
    }
    u32 sums = 0;
    for (u32 at = 0; at < piece->operands; at++) {
      const struct Operand *operand = &operands[piece->first_operand + at];
      size_t shift = operand->is_half ? 1 : 0;
      if (!range_of(operand, sizeof *operand) || operand->address % 16) return 0;
      if (!range_of((char *)operand->address + (first >> shift), bytes >> shift)) return 0;
      if (operand->joins > sums || sums - operand->joins >= WAITING) return 0;
      sums += 1 - operand->joins;
    }
    if (sums != 1) return 0;
  }
  return 1;
}

// A chip that has no subnormals.
static void flush(const struct Operation *launch) {
  const struct Piece *pieces = (const struct Piece *)launch->arguments[0];
  const struct Chunk *chunks = (const struct Chunk *)launch->arguments[2];
  for (unsigned int block = 0; block < launch->blocks; block++) {
    float *values = (float *)pieces[chunks[block].piece].next + chunks[block].first;
    for (u32 at = 0; at < chunks[block].elements; at++) {
      if (!(bits_of(values[at]) & 0x7F800000u)) values[at] = 0.0f;
    }
  }
}

static void update_threads(const struct Operation *launch) {
  u64 start = draw() % launch->blocks;
  for (unsigned int block = 0; block < launch->blocks; block++) {
    blockIdx.x = (unsigned int)((start + block) % launch->blocks);
    for (unsigned int thread = launch->threads; thread-- > 0;) {
      threadIdx.x = thread;
      update((void *)launch->arguments[0], (void *)launch->arguments[1], (void *)launch->arguments[2]);
    }
  }
}

// The kernels of reduce.cu.
static int reduce(const struct Operation *launch) {
  const u64 *with = launch->arguments;
  int is_add = !strcmp(launch->kernel, "add"), is_search = !strcmp(launch->kernel, "find_non_finite");
  size_t bytes = 4 * (size_t)with[is_add ? 2 : 1];
  if (!range_of((char *)with[0], bytes) || (is_add && !range_of((char *)with[1], bytes))) return 0;
  if (is_search && !range_of((char *)with[2], 8)) return 0;
  for (blockIdx.x = 0; blockIdx.x < launch->blocks; blockIdx.x++) {
    for (threadIdx.x = 0; threadIdx.x < launch->threads; threadIdx.x++) {
      if (is_add) add((float *)with[0], (float *)with[1], with[2], with[3]);
      else if (is_search) find_non_finite((float *)with[0], with[1], (u64 *)with[2]);
      else settle((float *)with[0], with[1], with[2]);
    }
  }
  return 1;
}

static void run(const struct Operation *launch) {
  int is_update = !strcmp(launch->kernel, "update");
  blockDim.x = launch->threads;
  gridDim.x = launch->blocks;
  if (is_update ? !is_sound(launch) : !reduce(launch)) {
    failed = ILLEGAL_ADDRESS;
    return;
  }
  if (is_update) update_threads(launch);
  if (is_update && *setting("FLUSH")) flush(launch);
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
  if (!stream) stream = &plain;
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

static int open_shared(const char *file, int flags) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", setting("SHARED"), file);
  return open(path, O_RDWR | O_CLOEXEC | flags, 0600);
}

// A file as memory.
static char *shared(int opened, size_t bytes) {
  void *begin = opened < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  return begin == MAP_FAILED ? NULL : begin;
}

// Whether some process, or this one, has mapped it. Who is gone has not.
static int is_mapped(const char *file) {
  int opened = open_shared(file, 0);
  if (opened < 0) return 0;
  int is_free = !flock(opened, LOCK_EX | LOCK_NB);
  close(opened);
  return !is_free;
}

static int allocate(void **to, size_t bytes, enum Place place) {
  pthread_mutex_lock(&lock);
  int result = failed;
  if (!result && place == DEVICE && taken + bytes > strtoull(setting("MEMORY"), NULL, 10)) result = OUT_OF_MEMORY;
  if (!result && place == HOST && *setting("REFUSE_PINS")) result = OUT_OF_MEMORY;
  if (!result) {
    struct Range *range = malloc(sizeof *range);
    *range = (struct Range){NULL, bytes, place, "", life, ranges, -1};
    if (place == DEVICE && *setting("SHARED")) {
      snprintf(range->file, sizeof range->file, "%d-%llu", getpid(), (unsigned long long)allocations);
      int opened = open_shared(range->file, O_CREAT | O_EXCL);
      if (opened >= 0 && ftruncate(opened, (off_t)bytes)) fault("a shared file cannot be made long enough");
      range->begin = shared(opened, bytes);
      if (!range->begin) fault("there is no shared file");
      close(opened);
    } else {
      range->begin = aligned_alloc(256, (bytes + 255) / 256 * 256);
    }
    memset(range->begin, 0xA5, bytes);
    ranges = range;
    taken += place == DEVICE ? bytes : 0;
    allocations++;
    *to = range->begin;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

static void forget(struct Range *range) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", setting("SHARED"), range->file);
  if (!*range->file) free(range->begin);
  else munmap(range->begin, range->bytes);
  if (*range->file && range->place == DEVICE) unlink(path);
  if (range->locked >= 0) close(range->locked);
  free(range);
}

static int release(void *begin, enum Place place) {
  pthread_mutex_lock(&lock);
  for (struct Range **at = &ranges; *at; at = &(*at)->next) {
    struct Range *range = *at;
    if (range->begin != begin || range->place != place) continue;
    if (place == DEVICE && *range->file && is_mapped(range->file)) fault("memory is freed that another process has mapped");
    for (struct Stream *stream = streams; stream; stream = stream->next) {
      for (struct Operation *each = stream->first; each; each = each->next) {
        int is_used = each->kind == COPY && (overlaps(range, each->to, each->bytes) || overlaps(range, each->from, each->bytes));
        if (is_used && !failed) fault("memory is freed that a copy in flight needs");
      }
    }
    *at = range->next;
    taken -= place == DEVICE && range->life == life ? range->bytes : 0;
    forget(range);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
  }
  fault("memory is freed that was not allocated");
  return ILLEGAL_ADDRESS;
}

struct Handle { char file[32]; size_t bytes; char nothing[24]; };

int cuIpcGetMemHandle(struct Handle *handle, u64 address) {
  int result = NOT_SUPPORTED;
  pthread_mutex_lock(&lock);
  for (struct Range *range = ranges; range; range = range->next) {
    if (range->begin != (char *)address || range->place != DEVICE || !*range->file) continue;
    *handle = (struct Handle){.bytes = range->bytes};
    memcpy(handle->file, range->file, sizeof handle->file);
    result = SUCCESS;
  }
  pthread_mutex_unlock(&lock);
  return result;
}
int cuIpcOpenMemHandle_v2(u64 *address, struct Handle handle, unsigned int flags) {
  (void)flags;
  pthread_mutex_lock(&lock);
  handle.file[sizeof handle.file - 1] = 0;
  int opened = *setting("SHARED") ? open_shared(handle.file, 0) : -1;
  char *begin = shared(opened, handle.bytes);
  if (opened >= 0 && (!begin || flock(opened, LOCK_SH))) fault("a shared file cannot be mapped");
  if (begin) {
    struct Range *range = malloc(sizeof *range);
    *range = (struct Range){begin, handle.bytes, MAPPED, "", life, ranges, opened};
    memcpy(range->file, handle.file, sizeof range->file);
    ranges = range;
    *address = (uintptr_t)begin;
  }
  pthread_mutex_unlock(&lock);
  return begin ? SUCCESS : INVALID_HANDLE;
}
int cuIpcCloseMemHandle(u64 address) { return release((void *)address, MAPPED); }
int cuMemGetAddressRange_v2(u64 *begin, size_t *bytes, u64 address) {
  pthread_mutex_lock(&lock);
  struct Range *range = *setting("REFUSE_RANGES") ? NULL : range_of((void *)address, 1);
  int result = !range ? NOT_FOUND : range->place == HOST ? INVALID_HANDLE : SUCCESS;
  if (!result) {
    *begin = (uintptr_t)range->begin;
    *bytes = range->bytes;
  }
  pthread_mutex_unlock(&lock);
  return result;
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
  int result = allocate(&begin, bytes, DEVICE);
  *address = (uintptr_t)begin;
  return result;
}
int cuMemFree_v2(u64 address) { return release((void *)address, DEVICE); }
int cuMemHostAlloc(void **begin, size_t bytes, unsigned int flags) { (void)flags; return allocate(begin, bytes, HOST); }
int cuMemFreeHost(void *begin) { return release(begin, HOST); }

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

// What is not asynchronous comes after what the default stream has, and beside what others have.
static int at_once(void *to, const void *from, size_t bytes) {
  pthread_mutex_lock(&lock);
  while (step(&plain));
  int result = failed ? failed : plain.first ? TIMEOUT : SUCCESS;
  if (!result && from) memcpy(to, from, bytes);
  else if (!result) memset(to, 0, bytes);
  pthread_mutex_unlock(&lock);
  return result;
}
int cuMemcpyHtoD_v2(u64 to, const void *from, size_t bytes) {
  if (!range_of((void *)to, bytes)) fault("a copy beyond what is allocated");
  return at_once((void *)to, from, bytes);
}
int cuMemcpyDtoH_v2(void *to, u64 from, size_t bytes) {
  if (!range_of((void *)from, bytes)) fault("a copy beyond what is allocated");
  return at_once(to, (void *)from, bytes);
}
int cuMemsetD8_v2(u64 to, unsigned char value, size_t bytes) {
  if (!range_of((void *)to, bytes) || value) fault("memory is filled that is not there, or not with zeros");
  return at_once((void *)to, NULL, bytes);
}
int cuCtxSynchronize(void) {
  int result = NOT_READY;
  while (result == NOT_READY) {
    pthread_mutex_lock(&lock);
    work(16);
    int is_idle = 1;
    for (struct Stream *stream = streams; stream; stream = stream->next) is_idle &= !stream->first;
    result = failed ? failed : is_due("STALL_AFTER") ? TIMEOUT : is_idle ? SUCCESS : NOT_READY;
    pthread_mutex_unlock(&lock);
  }
  return result;
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
  if (!is_machine_code && !strstr(image, ".visible .entry ")) return INVALID_IMAGE;
  *module = &ranges;
  return SUCCESS;
}
int cuModuleUnload(void *module) { (void)module; return SUCCESS; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  static const char *kernels[] = {"update", "settle", "add", "find_non_finite"};
  (void)module;
  for (size_t at = 0; at < sizeof kernels / sizeof *kernels; at++) {
    if (strcmp(name, kernels[at])) continue;
    *function = (void *)kernels[at];
    return SUCCESS;
  }
  return NOT_FOUND;
}
int cuLaunchKernel(void *function, unsigned int x, unsigned int y, unsigned int z, unsigned int tx, unsigned int ty,
                   unsigned int tz, unsigned int shared, struct Stream *stream, void **arguments, void **extra) {
  if (y != 1 || z != 1 || ty != 1 || tz != 1 || shared || extra || !x) fault("a launch of another shape");
  struct Operation launch = {.kind = LAUNCH, .blocks = x, .threads = tx, .kernel = function};
  int count = strcmp(launch.kernel, "add") ? 3 : 4;
  for (int at = 0; at < count; at++) launch.arguments[at] = *(u64 *)arguments[at];
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
