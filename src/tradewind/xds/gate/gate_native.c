/* The gate as a dynamic module of Envoy, for machines whose Envoy runs no WebAssembly. Only what the gate uses of the
 * module interface is declared here; as it may change with Envoy's minor version, tests run it in the pinned one. */
#define _POSIX_C_SOURCE 199309L
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gate.h"

#define HOOK(name) envoy_dynamic_module_on_##name
#define CALL(name) envoy_dynamic_module_callback_##name

/* Values of the interface's enumerations. */
enum { REQUEST_HEADERS = 0, RESPONSE_HEADERS = 2 };
enum { RECEIVED_RESPONSE = 2, BUFFERED_RESPONSE = 3 };
enum { MOST_CHUNKS = 1024 };

struct buffer {
  const byte *at;
  size_t length;
};

struct header {
  struct buffer name, value;
};

bool CALL(http_get_header)(void *filter, int map, struct buffer name, struct buffer *value, size_t index, size_t *count);
bool CALL(http_set_header)(void *filter, int map, struct buffer name, struct buffer value);
size_t CALL(http_get_body_size)(void *filter, int body);
size_t CALL(http_get_body_chunks_size)(void *filter, int body);
bool CALL(http_get_body_chunks)(void *filter, int body, struct buffer *chunks);
bool CALL(http_drain_body)(void *filter, int body, size_t length);
bool CALL(http_append_body)(void *filter, int body, struct buffer bytes);
bool CALL(http_get_filter_state_bytes)(void *filter, struct buffer name, struct buffer *value);
bool CALL(http_set_filter_state_bytes)(void *filter, struct buffer name, struct buffer value);
int CALL(http_filter_config_define_counter)(void *config, struct buffer name, void *labels, size_t count, size_t *id);
int CALL(http_filter_increment_counter)(void *filter, size_t id, void *labels, size_t count, uint64_t by);
void CALL(http_send_response)(void *filter, uint32_t status, struct header *headers, size_t count, struct buffer body,
                              struct buffer details);

struct config {
  size_t counters[COUNTERS];
  int most_deaths;
};

struct host {
  struct attempt attempt;
  const struct config *config;
  void *filter; /* Envoy's */
};

static struct buffer buffer_of(struct text text) { return (struct buffer){text.at, (size_t)(text.end - text.at)}; }
static struct buffer name_of(const char *name) { return buffer_of(text_of(name)); }

static struct text get_header(struct host *host, enum map map, const char *name) {
  int from = map == REQUEST ? REQUEST_HEADERS : RESPONSE_HEADERS;
  struct buffer value = {0, 0};
  if (!CALL(http_get_header)(host->filter, from, name_of(name), &value, 0, 0)) return (struct text){0, 0};
  return (struct text){value.at, value.at + value.length};
}

static void set_header(struct host *host, const char *name, struct text value) {
  CALL(http_set_header)(host->filter, RESPONSE_HEADERS, name_of(name), buffer_of(value));
}

static void remove_header(struct host *host, const char *name) { set_header(host, name, (struct text){0, 0}); }

static _Thread_local byte room[MOST_HELD_BYTES + 64];

/* Appends what lies behind the first `*skip` bytes; 0 if it is in too many pieces. */
static int copy_body(struct host *host, int body, size *skip, size *read) {
  struct buffer chunks[MOST_CHUNKS];
  size_t count = CALL(http_get_body_chunks_size)(host->filter, body);
  if (count > MOST_CHUNKS) return 0;
  if (count && !CALL(http_get_body_chunks)(host->filter, body, chunks)) return 0;
  for (size_t i = 0; i < count; i++) {
    size past = *skip < chunks[i].length ? *skip : (size)chunks[i].length, length = (size)chunks[i].length - past;
    if (length > MOST_HELD_BYTES - *read) return 0;
    memcpy(room + *read, chunks[i].at + past, length);
    *skip -= past, *read += length;
  }
  return 1;
}

static size get_body(struct host *host, size from, byte **bytes) {
  size read = 0;
  *bytes = room;
  if (!copy_body(host, BUFFERED_RESPONSE, &from, &read) || !copy_body(host, RECEIVED_RESPONSE, &from, &read)) return 0;
  return read;
}

static void set_body(struct host *host, struct text body) {
  CALL(http_drain_body)(host->filter, BUFFERED_RESPONSE, SIZE_MAX);
  CALL(http_drain_body)(host->filter, RECEIVED_RESPONSE, SIZE_MAX);
  if (body.at < body.end) CALL(http_append_body)(host->filter, RECEIVED_RESPONSE, buffer_of(body));
}

static void count(struct host *host, enum counter counter) {
  CALL(http_filter_increment_counter)(host->filter, host->config->counters[counter], 0, 0, 1);
}

/* When a filter ends, Envoy no longer lets it see or change its request. So what is held is noted while it is, in the
 * request's filter state, where each name is written once: held.1, held.2 and so on. The next attempt finds out how the
 * one before ended. An engine that ends before its headers is not seen. */
enum { MOST_NOTES = 9 };

static struct buffer note(const char *kind, int number) {
  static _Thread_local char name[32];
  size_t length = strlen(kind);
  memcpy(name, kind, length);
  name[length] = (char)('0' + number);
  return (struct buffer){(const byte *)name, length + 1};
}

static const char HELD_NOTE[] = "tradewind.held.", DEATH_NOTE[] = "tradewind.deaths.", LATE_NOTE[] = "tradewind.late.";

static int count_notes(struct host *host, const char *kind, struct buffer *last) {
  int notes = 0;
  while (notes < MOST_NOTES && CALL(http_get_filter_state_bytes)(host->filter, note(kind, notes + 1), last)) notes++;
  return notes;
}

static void add_note(struct host *host, const char *kind, struct buffer value) {
  struct buffer last;
  int notes = count_notes(host, kind, &last);
  if (notes < MOST_NOTES) CALL(http_set_filter_state_bytes)(host->filter, note(kind, notes + 1), value);
}

static int most_deaths(struct host *host) { return host->config->most_deaths; }

static int get_deaths(struct host *host) {
  struct buffer last;
  return count_notes(host, DEATH_NOTE, &last);
}

/* The last note says how many, for the access log. */
static void set_deaths(struct host *host, int deaths) {
  static const char digits[] = "0123456789";
  add_note(host, DEATH_NOTE, (struct buffer){(const byte *)digits + (deaths < 9 ? deaths : 9), 1});
}

static void set_served(struct host *host) {}
static int is_served(struct host *host) { return 0; }
static int is_connected(struct host *host) { return 0; }
static int is_client_gone(struct host *host) { return 0; }

static unsigned long long now_ms(struct host *host) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (unsigned long long)now.tv_sec * 1000 + (unsigned long long)now.tv_nsec / 1000000;
}

/* Notes the time at which Envoy would end the attempt; 0: at none. */
static void note_held(struct host *host) {
  const struct attempt *attempt = &host->attempt;
  unsigned long long end_ms = attempt->limit_ms ? attempt->begun_ms + attempt->limit_ms : 0;
  add_note(host, HELD_NOTE, (struct buffer){(const byte *)&end_ms, sizeof end_ms});
}

/* There is another attempt after one that was held: its engine ended, unless that is noted or it was late. */
static void judge_last(struct host *host) {
  struct buffer last = {0, 0}, other;
  unsigned long long end_ms = 0;
  int held = count_notes(host, HELD_NOTE, &last);
  if (held <= count_notes(host, DEATH_NOTE, &other) + count_notes(host, LATE_NOTE, &other)) return;
  if (last.length == sizeof end_ms) memcpy(&end_ms, last.at, sizeof end_ms);
  if (end_ms && now_ms(host) + TIMER_SLACK_MS >= end_ms) add_note(host, LATE_NOTE, name_of("1"));
  else add_death(host);
}

static void refuse(struct host *host, struct text body) {
  struct header type = {name_of("content-type"), name_of("application/json")};
  CALL(http_send_response)(host->filter, 422, &type, 1, buffer_of(body), name_of("tradewind_request_ends_engines"));
}

const char *HOOK(program_init)(void) { return "v1.40.0"; }

const void *HOOK(http_filter_config_new)(void *envoy, struct buffer name, struct buffer text) {
  struct config *config = calloc(1, sizeof *config);
  for (int i = 0; config && i < COUNTERS; i++)
    CALL(http_filter_config_define_counter)(envoy, name_of(COUNTER_NAMES[i]), 0, 0, &config->counters[i]);
  int deaths = (int)number_of((struct text){text.at, text.at + text.length});
  if (config) config->most_deaths = deaths ? deaths : MOST_DEATHS;
  return config;
}

void HOOK(http_filter_config_destroy)(const void *config) { free((void *)config); }

const void *HOOK(http_filter_new)(const void *config, void *filter) {
  struct host *host = calloc(1, sizeof *host);
  if (host) host->config = config, host->filter = filter;
  return host;
}

int HOOK(http_filter_request_headers)(void *filter, const void *module, bool end) {
  struct host *host = (struct host *)module;
  judge_last(host);
  return on_request(host, &host->attempt);
}

int HOOK(http_filter_request_body)(void *filter, const void *module, bool end) { return PASS; }
int HOOK(http_filter_request_trailers)(void *filter, const void *module) { return PASS; }

int HOOK(http_filter_response_headers)(void *filter, const void *module, bool end) {
  struct host *host = (struct host *)module;
  enum action action = on_headers(host, &host->attempt, end);
  if (action == HOLD || host->attempt.stage == FAILED) note_held(host);
  return action;
}

int HOOK(http_filter_response_body)(void *filter, const void *module, bool end) {
  struct host *host = (struct host *)module;
  size_t length = CALL(http_get_body_size)(filter, BUFFERED_RESPONSE) + CALL(http_get_body_size)(filter, RECEIVED_RESPONSE);
  return on_body(host, &host->attempt, length > MOST_HELD_BYTES ? MOST_HELD_BYTES + 1 : (size)length, end);
}

int HOOK(http_filter_response_trailers)(void *filter, const void *module) {
  struct host *host = (struct host *)module;
  return on_trailers(host, &host->attempt);
}

/* Envoy asks for these by name, and calls them for what the gate does not do. */
#define UNUSED(name) \
  void HOOK(name)(void) {}
UNUSED(http_filter_stream_complete)
UNUSED(http_filter_scheduled)
UNUSED(http_filter_http_callout_done)
UNUSED(http_filter_http_stream_headers)
UNUSED(http_filter_http_stream_data)
UNUSED(http_filter_http_stream_trailers)
UNUSED(http_filter_http_stream_complete)
UNUSED(http_filter_http_stream_reset)
UNUSED(http_filter_downstream_above_write_buffer_high_watermark)
UNUSED(http_filter_downstream_below_write_buffer_low_watermark)
UNUSED(http_filter_config_scheduled)
UNUSED(http_filter_config_http_callout_done)
UNUSED(http_filter_config_http_stream_headers)
UNUSED(http_filter_config_http_stream_data)
UNUSED(http_filter_config_http_stream_trailers)
UNUSED(http_filter_config_http_stream_complete)
UNUSED(http_filter_config_http_stream_reset)
UNUSED(http_filter_per_route_config_destroy)

int HOOK(http_filter_local_reply)(void) { return 0; }
const void *HOOK(http_filter_per_route_config_new)(void) { return 0; }

void HOOK(http_filter_destroy)(const void *module) {
  struct host *host = (struct host *)module;
  on_end(host, &host->attempt);
  free(host);
}
