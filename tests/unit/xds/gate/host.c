/* The gate with a host of plain memory, so that a test can drive one attempt. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gate.h"

enum { MOST_BYTES = MOST_HELD_BYTES + 65536, PAGE_BYTES = 4096 };

struct host {
  struct attempt attempt;
  const char *status, *type, *encoding, *limit;
  char new_status[4], new_type[32];
  int deaths, served, connected, client_gone, refused, length_removed;
  unsigned long long now_ms;
  int counters[COUNTERS];
  byte *held; /* what Envoy holds, and at the end what it passed on */
  size held_bytes, passed_bytes;
  byte *room, *room_end; /* nothing may be read or written from here on */
};

static struct text get_header(struct host *host, enum map map, const char *name) {
  if (map == REQUEST) return text_of(host->limit);
  if (!strcmp(name, ":status")) return text_of(host->status);
  return text_of(strcmp(name, "content-type") ? host->encoding : host->type);
}

static void set_header(struct host *host, const char *name, struct text value) {
  char *to = strcmp(name, ":status") ? host->new_type : host->new_status;
  memcpy(to, value.at, (size_t)(value.end - value.at));
}

static void remove_header(struct host *host, const char *name) { host->length_removed = 1; }

static size get_body(struct host *host, size from, byte **bytes) {
  size length = host->held_bytes - from;
  *bytes = host->room_end - length - 2;
  memcpy(*bytes, host->held + host->passed_bytes + from, length);
  return length;
}

static void set_body(struct host *host, struct text body) {
  host->held_bytes = (size)(body.end - body.at);
  memcpy(host->held + host->passed_bytes, body.at, host->held_bytes);
}

static void count(struct host *host, enum counter counter) { host->counters[counter]++; }
static int most_deaths(struct host *host) { return MOST_DEATHS; }
static int get_deaths(struct host *host) { return host->deaths; }
static void set_deaths(struct host *host, int deaths) { host->deaths = deaths; }
static void set_served(struct host *host) { host->served = 1; }
static int is_served(struct host *host) { return host->served; }
static int is_connected(struct host *host) { return host->connected; }
static int is_client_gone(struct host *host) { return host->client_gone; }
static unsigned long long now_ms(struct host *host) { return host->now_ms; }
static void refuse(struct host *host, struct text body) { host->refused = 1; }

struct host *gate_new(const char *status, const char *type, const char *encoding, const char *limit, int deaths) {
  struct host *host = calloc(1, sizeof *host);
  size rooms = (MOST_BYTES / PAGE_BYTES + 1) * PAGE_BYTES;
  host->status = status, host->type = type, host->encoding = encoding, host->limit = limit, host->deaths = deaths;
  host->held = malloc(MOST_BYTES * 2);
  host->room = mmap(0, rooms + PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  host->room_end = host->room + rooms;
  mprotect(host->room_end, PAGE_BYTES, PROT_NONE);
  host->connected = 1;
  return host;
}

void gate_free(struct host *host) {
  munmap(host->room, (size_t)(host->room_end - host->room) + PAGE_BYTES);
  free(host->held);
  free(host);
}

static int pass(struct host *host, enum action action) {
  if (action == PASS) host->passed_bytes += host->held_bytes, host->held_bytes = 0;
  return action;
}

int gate_request(struct host *host) { return on_request(host, &host->attempt); }
int gate_headers(struct host *host, int end) { return on_headers(host, &host->attempt, end); }
int gate_trailers(struct host *host) { return pass(host, on_trailers(host, &host->attempt)); }

int gate_body(struct host *host, const byte *chunk, size length, int end) {
  memcpy(host->held + host->passed_bytes + host->held_bytes, chunk, length);
  host->held_bytes += length;
  return pass(host, on_body(host, &host->attempt, host->held_bytes, end));
}

void gate_end(struct host *host, unsigned long long now_ms, int connected, int client_gone, int served) {
  host->now_ms = now_ms, host->connected = connected, host->client_gone = client_gone, host->served |= served;
  on_end(host, &host->attempt);
}

const byte *gate_passed(struct host *host, size *length) {
  *length = host->passed_bytes;
  return host->held;
}

int gate_count(struct host *host, int counter) { return host->counters[counter]; }
int gate_deaths(struct host *host) { return host->deaths; }
int gate_refused(struct host *host) { return host->refused; }
const char *gate_status(struct host *host) { return host->new_status; }
const char *gate_type(struct host *host) { return host->new_type; }

/* One text as a whole: the verdict, and how far it was used. */
int gate_judge(const byte *text, size length, size *used) {
  struct host *host = gate_new("", "", "", "", 0);
  struct text data;
  byte *room = host->room_end - length;
  memcpy(room, text, length);
  int verdict = judge(room, length, used, &data);
  gate_free(host);
  return verdict;
}
