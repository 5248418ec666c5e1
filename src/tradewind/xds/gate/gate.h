/* What the gate does with one attempt of a request, whatever module it is built as. */
#ifndef TRADEWIND_GATE_H
#define TRADEWIND_GATE_H
#include "events.h"

enum action { PASS, HOLD };
enum map { REQUEST, RESPONSE };
enum counter { HELD, RELEASED, ERRORS, EMPTY_ENDS, OVER_BOUND, DEATHS, REFUSED, COUNTERS };

enum {
  MOST_HELD_BYTES = 262144,    /* of a stream without a token; then it is released */
  MOST_READ_BYTES = 16777216,  /* in all, for a stream that comes in very small pieces */
  MOST_DEATHS = 2,             /* under a request, unless configured: no third engine is given it */
  TIMER_SLACK_MS = 10,
};

/* Set by whoever limits an attempt's time: one that ends later than this was ended by Envoy, not by the engine. */
static const char LIMIT_HEADER[] = "x-tw-first-token-ms";

static const char *const COUNTER_NAMES[COUNTERS] = {
    "tradewind_gate_held",       "tradewind_gate_released", "tradewind_gate_errors",  "tradewind_gate_empty_ends",
    "tradewind_gate_over_bound", "tradewind_gate_deaths",   "tradewind_gate_refused",
};

static const char EMPTY_BODY[] =
    "{\"error\":{\"message\":\"The engine ended its answer before the first token.\",\"type\":\"server_error\","
    "\"param\":null,\"code\":\"empty_answer\"}}";
static const char ERROR_BODY[] =
    "{\"error\":{\"message\":\"The engine failed before the first token.\",\"type\":\"server_error\","
    "\"param\":null,\"code\":\"engine_error\"}}";
static const char REFUSED_BODY[] =
    "{\"error\":{\"message\":\"Engines ended or failed under this request; it is given to no other.\","
    "\"type\":\"server_error\",\"param\":null,\"code\":\"request_ends_engines\"}}";

enum stage {
  SENT,   /* no answer yet */
  HOLDING,
  DONE,   /* answered, or released: it passes */
  FAILED, /* its status was changed; Envoy retries, or its answer is the client's */
};

struct attempt {
  enum stage stage;
  size read;            /* bytes of the held body that need not be read again */
  size work;            /* bytes read so far, each as often as it was */
  unsigned long long begun_ms;
  unsigned limit_ms; /* 0: none */
};

/* What the module gives. A text that a function returns holds until the next call of one. */
struct host;
static struct text get_header(struct host *host, enum map map, const char *name);
static void set_header(struct host *host, const char *name, struct text value);
static void remove_header(struct host *host, const char *name);
static size get_body(struct host *host, size from, byte **bytes); /* with room for two more bytes */
static void set_body(struct host *host, struct text body);
static void count(struct host *host, enum counter counter);
static int most_deaths(struct host *host);
static int get_deaths(struct host *host);
static void set_deaths(struct host *host, int deaths);
static void set_served(struct host *host); /* an attempt of this request has its first token */
static int is_served(struct host *host);
static int is_connected(struct host *host);
static int is_client_gone(struct host *host);
static unsigned long long now_ms(struct host *host);
static void refuse(struct host *host, struct text body);

static struct text text_of(const char *string) {
  struct text text = {(const byte *)string, (const byte *)string};
  while (*text.end) text.end++;
  return text;
}

static unsigned number_of(struct text text) {
  unsigned number = 0;
  if (text.end - text.at > 9) return 0;
  for (; text.at < text.end; text.at++) {
    if (*text.at < '0' || *text.at > '9') return 0;
    number = number * 10 + (*text.at - '0');
  }
  return number;
}

static int starts_with(struct text text, const char *name) {
  while (text.at < text.end && *name && (*text.at | 32) == *name) text.at++, name++;
  return !*name;
}

static void add_death(struct host *host) {
  count(host, DEATHS);
  set_deaths(host, get_deaths(host) + 1);
}

/* Makes of a held stream a failed answer, on which Envoy retries. The client gets it if it is the last. */
static enum action fail(struct host *host, struct attempt *attempt, const char *status, struct text body) {
  attempt->stage = FAILED;
  set_body(host, body);
  remove_header(host, "content-length");
  set_header(host, "content-type", text_of("application/json"));
  set_header(host, ":status", text_of(status));
  add_death(host);
  return PASS;
}

static enum action release(struct host *host, struct attempt *attempt, enum counter counter) {
  attempt->stage = DONE;
  count(host, counter);
  set_served(host);
  return PASS;
}

static enum action end_empty(struct host *host, struct attempt *attempt) {
  count(host, EMPTY_ENDS);
  return fail(host, attempt, "502", text_of(EMPTY_BODY));
}

static enum action on_request(struct host *host, struct attempt *attempt) {
  *attempt = (struct attempt){SENT, 0, 0, now_ms(host), number_of(get_header(host, REQUEST, LIMIT_HEADER))};
  if (get_deaths(host) < most_deaths(host)) return PASS;
  attempt->stage = DONE;
  count(host, REFUSED);
  refuse(host, text_of(REFUSED_BODY));
  return HOLD;
}

static int is_event_stream(struct host *host) {
  struct text encoding;
  if (!is(get_header(host, RESPONSE, ":status"), "200")) return 0;
  if (!starts_with(get_header(host, RESPONSE, "content-type"), "text/event-stream")) return 0;
  encoding = get_header(host, RESPONSE, "content-encoding"); /* what is packed cannot be read */
  return encoding.at == encoding.end || is(encoding, "identity");
}

static enum action on_headers(struct host *host, struct attempt *attempt, int end) {
  attempt->stage = DONE;
  if (!is_event_stream(host)) return PASS;
  count(host, HELD);
  if (end) return end_empty(host, attempt);
  attempt->stage = HOLDING;
  return HOLD;
}

/* `length`: of all that is held, with what came now. */
static enum action on_body(struct host *host, struct attempt *attempt, size length, int end) {
  struct text data = {0, 0}, nothing = {0, 0};
  byte *body = 0;
  size used = 0, read = 0;
  enum verdict verdict = NOTHING;
  if (attempt->stage == FAILED) set_body(host, nothing);
  if (attempt->stage != HOLDING) return PASS;
  if (length > MOST_HELD_BYTES || attempt->work > MOST_READ_BYTES) return release(host, attempt, OVER_BOUND);
  if (length > attempt->read) {
    read = get_body(host, attempt->read, &body);
    if (!read) return release(host, attempt, OVER_BOUND);
    attempt->work += read;
    verdict = judge(body, read, &used, &data);
    if (end && verdict == NOTHING) verdict = judge_rest(body + used, read - used, &data);
    attempt->read += used;
  }
  if (verdict == TOKEN) return release(host, attempt, RELEASED);
  if (verdict == ERROR) {
    count(host, ERRORS);
    /* 502, not 503: the engine failed, and 503 says that it is full. */
    return fail(host, attempt, "502", data.at < data.end && *data.at == '{' ? data : text_of(ERROR_BODY));
  }
  return end ? end_empty(host, attempt) : HOLD;
}

/* Trailers are the end of a body. What is held without a token is all there is. */
static enum action on_trailers(struct host *host, struct attempt *attempt) {
  return attempt->stage == HOLDING ? end_empty(host, attempt) : PASS;
}

/* An attempt that got a connection and ends without an answer was ended by its engine, or by Envoy at its time limit, or
 * because another attempt beside it has won, or because the client left. */
static void on_end(struct host *host, struct attempt *attempt) {
  if (attempt->stage == DONE || attempt->stage == FAILED) return;
  if (!is_connected(host) || is_client_gone(host) || is_served(host)) return;
  if (attempt->limit_ms && now_ms(host) - attempt->begun_ms + TIMER_SLACK_MS >= attempt->limit_ms) return;
  add_death(host);
}

#endif
