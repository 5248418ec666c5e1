/* The gate as a proxy-wasm module (ABI 0.2.1): holds an event stream until its first token, so that Envoy still can retry. */
#include "events.h"

#define IMPORT(name) __attribute__((import_module("env"), import_name(#name)))
#define EXPORT(name) __attribute__((export_name(#name)))

enum { OK = 0 };
enum { REQUEST_HEADERS = 0, RESPONSE_HEADERS = 2 }; /* maps */
enum { RESPONSE_BODY = 1 };                         /* buffers */
enum { CONTINUE = 0, HOLD = 1 };                    /* actions */
enum { COUNTER = 0 };                               /* kinds of metrics */

IMPORT(proxy_get_header_map_value) int get_header(int map, const char *key, size key_size, byte **value, size *length);
IMPORT(proxy_replace_header_map_value) int set_header(int map, const char *key, size key_size, const char *value, size length);
IMPORT(proxy_get_buffer_bytes) int get_buffer(int buffer, size start, size length, byte **bytes, size *read);
IMPORT(proxy_define_metric) int define_metric(int kind, const char *name, size name_size, unsigned *id);
IMPORT(proxy_increment_metric) int increment_metric(unsigned id, long long by);

enum { MOST_HELD_BYTES = 65536 };

/* What Envoy hands over lies here until the next call; Envoy asks for one block at a time. */
static byte room[MOST_HELD_BYTES + 1024] __attribute__((aligned(16)));
static size room_used;

EXPORT(malloc) void *allocate(size length) {
  size at = room_used;
  if (length > sizeof room - at) __builtin_trap();
  room_used += (length + 15) & ~15u;
  return room + at;
}

/* One response: open until the headers say that it is an event stream, then held up to its first token. */
struct stream {
  unsigned context;
  struct stream *next;
  size read; /* bytes of the held body that need not be read again */
  int held;
};

enum { BUCKETS = 1024 };
static struct stream *streams[BUCKETS], *spare;

static struct stream **find_stream(unsigned context) {
  struct stream **link = &streams[context % BUCKETS];
  while (*link && (*link)->context != context) link = &(*link)->next;
  return link;
}

enum { PAGE = 65536 };

static struct stream *take_spare(void) {
  if (!spare) {
    struct stream *page = (struct stream *)(__builtin_wasm_memory_size(0) * PAGE);
    if (__builtin_wasm_memory_grow(0, 1) == (size)-1) return 0;
    for (size i = 0; i < PAGE / sizeof *page; i++) page[i].next = spare, spare = page + i;
  }
  struct stream *stream = spare;
  spare = stream->next;
  return stream;
}

/* None when there is no memory left. */
static struct stream *hold_stream(unsigned context) {
  struct stream **link = find_stream(context), *stream = take_spare();
  if (!stream) return 0;
  *stream = (struct stream){context, *link, 0, 1};
  return *link = stream;
}

static void forget_stream(unsigned context) {
  struct stream **link = find_stream(context), *stream = *link;
  if (!stream) return;
  *link = stream->next;
  stream->next = spare, spare = stream;
}

enum counter { HELD, RELEASED, ERRORS, EMPTY_ENDS, OVER_BOUND, COUNTERS };
static unsigned metrics[COUNTERS];

static void count(enum counter counter) { increment_metric(metrics[counter], 1); }

static size length_of(const char *text) {
  size length = 0;
  while (text[length]) length++;
  return length;
}

static struct text header(int map, const char *name) {
  struct text value = {0, 0};
  byte *at;
  size length;
  room_used = 0;
  if (get_header(map, name, length_of(name), &at, &length) == OK) value.at = at, value.end = at + length;
  return value;
}

static int starts_with(struct text text, const char *name) {
  while (text.at < text.end && *name && (*text.at | 32) == *name) text.at++, name++;
  return !*name;
}

static void set_status(const char *status) { set_header(RESPONSE_HEADERS, ":status", 7, status, 3); }

/* Lets the held answer go: as it is, or with a status on which Envoy retries. */
static int release(unsigned context, enum counter counter, const char *status) {
  if (status) set_status(status);
  count(counter);
  forget_stream(context);
  return CONTINUE;
}

EXPORT(proxy_abi_version_0_2_1) void abi_version(void) {}
EXPORT(_initialize) void initialize(void) {}
EXPORT(proxy_on_context_create) void on_context_create(unsigned context, unsigned parent) {}

EXPORT(proxy_on_vm_start) int on_vm_start(unsigned context, size config_size) {
  static const char *const names[COUNTERS] = {
      "tradewind_gate_held",       "tradewind_gate_released",   "tradewind_gate_errors",
      "tradewind_gate_empty_ends", "tradewind_gate_over_bound",
  };
  for (int i = 0; i < COUNTERS; i++) define_metric(COUNTER, names[i], length_of(names[i]), &metrics[i]);
  return 1;
}

EXPORT(proxy_on_configure) int on_configure(unsigned context, size config_size) { return 1; }

EXPORT(proxy_on_response_headers) int on_response_headers(unsigned context, size count_, int end) {
  if (end || !is(header(RESPONSE_HEADERS, ":status"), "200")) return CONTINUE;
  if (!starts_with(header(RESPONSE_HEADERS, "content-type"), "text/event-stream")) return CONTINUE;
  if (!hold_stream(context)) return CONTINUE;
  count(HELD);
  return HOLD;
}

EXPORT(proxy_on_response_body) int on_response_body(unsigned context, size length, int end) {
  struct stream *stream = *find_stream(context);
  byte *body;
  size read = 0, used = 0;
  if (!stream) return CONTINUE;
  if (length > MOST_HELD_BYTES) return release(context, OVER_BOUND, 0);
  room_used = 0;
  enum verdict verdict = NOTHING;
  if (length > stream->read) {
    if (get_buffer(RESPONSE_BODY, stream->read, length - stream->read, &body, &read) != OK) read = 0;
    verdict = judge(body, read, &used);
    if (end && verdict == NOTHING) verdict = judge_rest(body + used, read - used);
  }
  if (verdict == TOKEN) return release(context, RELEASED, 0);
  if (verdict == ERROR) return release(context, ERRORS, "503");
  stream->read += used;
  if (end) return release(context, EMPTY_ENDS, "502");
  return HOLD;
}

EXPORT(proxy_on_done) int on_done(unsigned context) { return 1; }
EXPORT(proxy_on_log) void on_log(unsigned context) {}
EXPORT(proxy_on_delete) void on_delete(unsigned context) { forget_stream(context); }
