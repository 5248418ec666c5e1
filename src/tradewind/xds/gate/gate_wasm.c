/* The gate as a proxy-wasm module (ABI 0.2.1). */
#include "gate.h"

#define IMPORT(name) __attribute__((import_module("env"), import_name("proxy_" #name)))
#define EXPORT(name) __attribute__((export_name(#name)))

IMPORT(get_header_map_value) int wasm_get_header(int map, const char *name, size name_size, byte **value, size *length);
IMPORT(replace_header_map_value) int wasm_set_header(int map, const char *name, size name_size, const byte *value, size length);
IMPORT(remove_header_map_value) int wasm_remove_header(int map, const char *name, size name_size);
IMPORT(get_buffer_bytes) int wasm_get_buffer(int buffer, size from, size length, byte **bytes, size *read);
IMPORT(set_buffer_bytes) int wasm_set_buffer(int buffer, size from, size length, const byte *bytes, size new_length);
IMPORT(get_property) int wasm_get_property(const char *path, size path_size, byte **value, size *length);
IMPORT(set_property) int wasm_set_property(const char *path, size path_size, const char *value, size length);
IMPORT(get_current_time_nanoseconds) int wasm_get_time(unsigned long long *time_ns);
IMPORT(define_metric) int wasm_define_metric(int kind, const char *name, size name_size, unsigned *id);
IMPORT(increment_metric) int wasm_increment_metric(unsigned id, long long by);
IMPORT(send_local_response)
int wasm_answer(int status, const char *details, size details_size, const byte *body, size body_size, const char *headers,
                size headers_size, int grpc_status);

enum { OK = 0, COUNTER = 0, RESPONSE_BODY = 1, CONFIGURATION = 7, NO_GRPC_STATUS = -1, MOST_BYTES = 0x7fffffff, PAGE = 65536 };
static const int MAPS[] = {0, 2}; /* of `enum map` */

/* What Envoy hands over lies here until the next call. */
static byte room[MOST_HELD_BYTES + 64] __attribute__((aligned(16)));
static size room_used;

EXPORT(malloc) void *allocate(size length) {
  size at = room_used;
  if (length > sizeof room - at) return 0; /* Envoy then answers the call with an error */
  room_used += (length + 15) & ~15u;
  return room + at;
}

/* The attempts under way, by the number that Envoy gives them. */
struct host {
  unsigned context;
  struct host *next;
  struct attempt attempt;
};

enum { BUCKETS = 1024 };
static struct host *hosts[BUCKETS], *spare;

static struct host **find_host(unsigned context) {
  struct host **link = &hosts[context % BUCKETS];
  while (*link && (*link)->context != context) link = &(*link)->next;
  return link;
}

/* 0 without memory: the attempt then passes. */
static struct host *take_host(void) {
  if (!spare) {
    struct host *page = (struct host *)(__builtin_wasm_memory_size(0) * PAGE);
    if (__builtin_wasm_memory_grow(0, 1) == (size)-1) return 0;
    for (size i = 0; i < PAGE / sizeof *page; i++) page[i].next = spare, spare = page + i;
  }
  struct host *host = spare;
  spare = host->next;
  return host;
}

static struct host *add_host(unsigned context) {
  struct host **link = find_host(context);
  if (*link) return *link;
  struct host *host = take_host();
  if (!host) return 0;
  *host = (struct host){.context = context, .next = *link};
  return *link = host;
}

static void forget_host(unsigned context) {
  struct host **link = find_host(context), *host = *link;
  if (!host) return;
  *link = host->next;
  host->next = spare, spare = host;
}

static size length_of(struct text text) { return (size)(text.end - text.at); }

static struct text get_header(struct host *host, enum map map, const char *name) {
  byte *value;
  size length;
  room_used = 0;
  if (wasm_get_header(MAPS[map], name, length_of(text_of(name)), &value, &length) != OK) return (struct text){0, 0};
  return (struct text){value, value + length};
}

static void set_header(struct host *host, const char *name, struct text value) {
  wasm_set_header(MAPS[RESPONSE], name, length_of(text_of(name)), value.at, length_of(value));
}

static void remove_header(struct host *host, const char *name) {
  wasm_remove_header(MAPS[RESPONSE], name, length_of(text_of(name)));
}

static size get_body(struct host *host, size from, byte **bytes) {
  size read;
  room_used = 0;
  return wasm_get_buffer(RESPONSE_BODY, from, MOST_HELD_BYTES, bytes, &read) == OK ? read : 0;
}

static void set_body(struct host *host, struct text body) {
  wasm_set_buffer(RESPONSE_BODY, 0, MOST_BYTES, body.at, length_of(body));
}

static unsigned metrics[COUNTERS];

static void count(struct host *host, enum counter counter) { wasm_increment_metric(metrics[counter], 1); }

/* A property of the request, which all its attempts share; it can be logged as %FILTER_STATE(wasm.tradewind.deaths)%. */
static const char DEATHS_PATH[] = "tradewind.deaths";

static struct text get_property(const char *path, size path_size) {
  byte *value;
  size length;
  room_used = 0;
  if (wasm_get_property(path, path_size, &value, &length) != OK) return (struct text){0, 0};
  return (struct text){value, value + length};
}

static int get_deaths(struct host *host) { return (int)number_of(get_property(DEATHS_PATH, sizeof DEATHS_PATH - 1)); }

static void set_deaths(struct host *host, int deaths) {
  const char digit = (char)('0' + (deaths < 9 ? deaths : 9));
  wasm_set_property(DEATHS_PATH, sizeof DEATHS_PATH - 1, &digit, 1);
}

static const char SERVED_PATH[] = "tradewind.served";

static void set_served(struct host *host) { wasm_set_property(SERVED_PATH, sizeof SERVED_PATH - 1, "1", 1); }
static int is_served(struct host *host) { return length_of(get_property(SERVED_PATH, sizeof SERVED_PATH - 1)) > 0; }

static int is_connected(struct host *host) {
  static const char path[] = "upstream\0local_address";
  return length_of(get_property(path, sizeof path - 1)) > 0;
}

static int is_client_gone(struct host *host) {
  static const char path[] = "response\0flags";
  struct text flags = get_property(path, sizeof path - 1);                /* 64 bits, little endian */
  return length_of(flags) == 8 && (flags.at[1] & 0x40);                   /* 0x4000: the client left */
}

static unsigned long long now_ms(struct host *host) {
  unsigned long long time_ns = 0;
  wasm_get_time(&time_ns);
  return time_ns / 1000000;
}

static void refuse(struct host *host, struct text body) {
  static const char details[] = "tradewind_request_ends_engines";
  /* One header, as Envoy serialises them: how many, the two lengths, the two texts. */
  static const char headers[] = "\1\0\0\0\14\0\0\0\20\0\0\0content-type\0application/json";
  wasm_answer(422, details, sizeof details - 1, body.at, length_of(body), headers, sizeof headers, NO_GRPC_STATUS);
}

EXPORT(proxy_abi_version_0_2_1) void abi_version(void) {}
EXPORT(_initialize) void initialize(void) {}
EXPORT(proxy_on_context_create) void on_context_create(unsigned context, unsigned parent) {}
/* The configuration is a number: how many engines may end under a request. */
static int configured_deaths = MOST_DEATHS;
static int most_deaths(struct host *host) { return configured_deaths; }

EXPORT(proxy_on_configure) int on_configure(unsigned context, size config_size) {
  byte *bytes;
  size read;
  room_used = 0;
  if (!config_size || wasm_get_buffer(CONFIGURATION, 0, config_size, &bytes, &read) != OK) return 1;
  int deaths = (int)number_of((struct text){bytes, bytes + read});
  if (deaths) configured_deaths = deaths;
  return 1;
}

EXPORT(proxy_on_vm_start) int on_vm_start(unsigned context, size config_size) {
  for (int i = 0; i < COUNTERS; i++)
    wasm_define_metric(COUNTER, COUNTER_NAMES[i], length_of(text_of(COUNTER_NAMES[i])), &metrics[i]);
  return 1;
}

EXPORT(proxy_on_request_headers) int on_request_headers(unsigned context, size headers, int end) {
  struct host *host = add_host(context);
  return host ? on_request(host, &host->attempt) : PASS;
}

EXPORT(proxy_on_response_headers) int on_response_headers(unsigned context, size headers, int end) {
  struct host *host = *find_host(context);
  return host ? on_headers(host, &host->attempt, end) : PASS;
}

EXPORT(proxy_on_response_body) int on_response_body(unsigned context, size length, int end) {
  struct host *host = *find_host(context);
  return host ? on_body(host, &host->attempt, length, end) : PASS;
}

EXPORT(proxy_on_response_trailers) int on_response_trailers(unsigned context, size trailers) {
  struct host *host = *find_host(context);
  return host ? on_trailers(host, &host->attempt) : PASS;
}

EXPORT(proxy_on_done) int on_done(unsigned context) {
  struct host *host = *find_host(context);
  if (host) on_end(host, &host->attempt);
  return 1;
}

EXPORT(proxy_on_log) void on_log(unsigned context) {}
EXPORT(proxy_on_delete) void on_delete(unsigned context) { forget_host(context); }
