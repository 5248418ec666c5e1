/* Reads a stream of server-sent events up to the first one that may hold a token. No libc, no state of its own. */
#ifndef TRADEWIND_EVENTS_H
#define TRADEWIND_EVENTS_H

typedef unsigned char byte;
typedef unsigned int size;

enum verdict {
  NOTHING, /* no event so far holds a token */
  TOKEN,   /* an event that may hold one, or that is for the client to read */
  ERROR,   /* the engine says in-band that it failed */
};

/* How much of a JSON value says something: null, "", {}, [] and what is built of them say nothing. */
enum content { BROKEN, EMPTY, FULL };

/* What a JSON object is, which decides which of its members may be full and still hold no token. */
enum kind { PLAIN, CHOICE, DELTA, PART, MESSAGE, REPLY, FAULT };

enum { MOST_DEPTH = 32 }; /* deeper JSON is BROKEN, and so a TOKEN */

struct text {
  const byte *at, *end;
};

struct json {
  const byte *at, *end;
  int clients_fault; /* an "error" was read that another engine would give as well */
};

static int is(struct text text, const char *name) {
  while (text.at < text.end && *name && *text.at == (byte)*name) text.at++, name++;
  return text.at == text.end && !*name;
}

static int is_one_of(struct text text, const char *const *names) {
  while (*names && !is(text, *names)) names++;
  return *names != 0;
}

/* An event's name, or the type in its data; most servers write both. */
enum type { OTHER, FAILURE, OPENING };

static enum type type_of(struct text name) {
  static const char *const opening[] = {
      "ping",
      "message_start",
      "content_block_start",
      "response.created",
      "response.in_progress",
      "response.queued",
      "response.output_item.added",
      "response.content_part.added",
      0,
  };
  return is(name, "error") ? FAILURE : is_one_of(name, opening) ? OPENING : OTHER;
}

static void skip_space(struct json *json) {
  while (json->at < json->end && (*json->at == ' ' || (*json->at >= '\t' && *json->at <= '\r'))) json->at++;
}

static int next_is(struct json *json, byte mark) {
  skip_space(json);
  if (json->at >= json->end || *json->at != mark) return 0;
  json->at++;
  return 1;
}

/* A string after its opening quote, escapes as they stand: an escaped key is then an unknown one. */
static enum content read_string(struct json *json, struct text *string) {
  string->at = json->at;
  while (json->at < json->end && *json->at != '"') json->at += *json->at == '\\' ? 2 : 1;
  if (json->at >= json->end) return BROKEN;
  string->end = json->at++;
  return string->at == string->end ? EMPTY : FULL;
}

static struct text read_word(struct json *json) {
  struct text word = {json->at, json->at};
  while (json->at < json->end && *json->at > ' ' && *json->at != ',' && *json->at != '}' && *json->at != ']')
    json->at++;
  word.end = json->at;
  return word;
}

static enum kind kind_of(enum kind parent, struct text key) {
  return parent == CHOICE && is(key, "delta") ? DELTA : PLAIN;
}

/* Members that may be full in an event without a token. */
static int says_nothing(enum kind kind, struct text key) {
  static const char *const of_part[] = {"type", "id", "status", "role", 0};
  switch (kind) {
  case CHOICE: return is(key, "index");
  case DELTA: return is(key, "role");
  case PART: return is_one_of(key, of_part);
  case MESSAGE: return !is(key, "content");
  case REPLY: return !is(key, "output");
  default: return 0;
  }
}

/* Codes of HTTP that say the request is wrong: a retry would only repeat the answer. */
static int is_clients_fault(struct text key, struct text value) {
  static const char *const types[] = {"invalid_request_error", "BadRequestError", 0};
  if (is(key, "type")) return is_one_of(value, types);
  return is(key, "code") && value.end - value.at == 3 && *value.at == '4' && !is(value, "408") && !is(value, "429");
}

static enum content read_value(struct json *json, enum kind kind, int depth);

static enum content read_array(struct json *json, enum kind kind, int depth) {
  enum kind inner = kind == CHOICE && depth == 1 ? CHOICE : PLAIN; /* only the list of choices is one of a kind */
  enum content all = EMPTY;
  if (next_is(json, ']')) return EMPTY;
  do {
    enum content one = read_value(json, inner, depth + 1);
    if (one == BROKEN) return BROKEN;
    if (one == FULL) all = FULL;
  } while (next_is(json, ','));
  return next_is(json, ']') ? all : BROKEN;
}

static int read_key(struct json *json, struct text *key) {
  return next_is(json, '"') && read_string(json, key) != BROKEN && next_is(json, ':');
}

static enum content read_object(struct json *json, enum kind kind, int depth) {
  enum content all = EMPTY;
  if (next_is(json, '}')) return EMPTY;
  do {
    struct text key, value;
    if (!read_key(json, &key)) return BROKEN;
    skip_space(json);
    value.at = json->at;
    enum content one = read_value(json, kind_of(kind, key), depth + 1);
    if (one == BROKEN) return BROKEN;
    value.end = json->at;
    if (*value.at == '"') value.at++, value.end--;
    if (kind == FAULT && is_clients_fault(key, value)) json->clients_fault = 1;
    if (one == FULL && !says_nothing(kind, key)) all = FULL;
  } while (next_is(json, ','));
  return next_is(json, '}') ? all : BROKEN;
}

static enum content read_value(struct json *json, enum kind kind, int depth) {
  struct text string;
  if (depth > MOST_DEPTH) return BROKEN;
  if (next_is(json, '{')) return read_object(json, kind, depth);
  if (next_is(json, '[')) return read_array(json, kind, depth);
  if (next_is(json, '"')) return read_string(json, &string);
  string = read_word(json);
  return string.at == string.end ? BROKEN : is(string, "null") ? EMPTY : FULL;
}

/* What the top level of an event's JSON says. */
struct event {
  enum type type;
  int failed;          /* it has an error */
  enum content part;   /* of the message, response, block, item or part that it opens */
  enum content choice; /* of chat and completions; BROKEN: it has none */
  enum content usage;
  int no_choice; /* the list of choices has no entry */
};

static enum content read_member(struct json *json, struct text key, struct event *event) {
  static const char *const parts[] = {"content_block", "item", "part", 0};
  skip_space(json);
  const byte *at = json->at;
  enum kind kind = is(key, "choices")    ? CHOICE
                   : is(key, "error")    ? FAULT
                   : is(key, "message")  ? MESSAGE
                   : is(key, "response") ? REPLY
                   : is_one_of(key, parts) ? PART
                                           : PLAIN;
  enum content content = read_value(json, kind, 1);
  if (content == BROKEN) return BROKEN;
  struct text string = {at + 1, json->at - 1};
  if (kind == CHOICE) {
    struct json list = {at + 1, json->at, 0};
    event->no_choice = *at != '[' || next_is(&list, ']');
    if (event->choice != FULL) event->choice = *at == '[' ? content : FULL;
  } else if (kind == FAULT) {
    event->failed |= *at == '{' || (*at == '"' && content == FULL);
  } else if (kind != PLAIN) {
    if (content == FULL) event->part = FULL;
  } else if (is(key, "usage")) {
    event->usage = content;
  } else if (*at == '"' && is(key, "type")) {
    event->type = type_of(string);
  } else if (*at == '"' && is(key, "object") && is(string, "error")) {
    event->failed = 1;
  }
  return content;
}

static int read_event(struct json *json, struct event *event) {
  struct text key;
  if (!next_is(json, '{')) return 0;
  if (!next_is(json, '}')) {
    do {
      if (!read_key(json, &key) || read_member(json, key, event) == BROKEN) return 0;
    } while (next_is(json, ','));
    if (!next_is(json, '}')) return 0;
  }
  skip_space(json);
  return json->at == json->end;
}

static enum verdict judge_event(enum type name, struct text data) {
  struct json json = {data.at, data.end, 0};
  struct event event = {name, 0, EMPTY, BROKEN, EMPTY, 0};
  skip_space(&json);
  if (json.at == json.end) return name == FAILURE ? ERROR : NOTHING;
  int whole = read_event(&json, &event);
  if (name == FAILURE || event.type == FAILURE || event.failed) return json.clients_fault ? TOKEN : ERROR;
  if (!whole) return TOKEN;
  if (event.type == OPENING) return event.part == FULL ? TOKEN : NOTHING;
  if (event.choice != EMPTY) return TOKEN;
  return event.no_choice && event.usage == FULL ? TOKEN : NOTHING;
}

/* The line at `from`, without its end; where the next begins, or 0 if the line has no end yet. */
static byte *read_line(byte *from, byte *end, struct text *line) {
  byte *at = from;
  while (at < end && *at != '\n' && *at != '\r') at++;
  line->at = from, line->end = at;
  if (at == end) return 0;
  return at + (*at == '\r' && at + 1 < end && at[1] == '\n' ? 2 : 1);
}

/* Cuts `name:` and one space off a line; 0 if the line is another field. */
static int take_field(struct text *line, const char *name) {
  const byte *at = line->at;
  while (at < line->end && *name && *at == (byte)*name) at++, name++;
  if (*name || (at < line->end && *at != ':')) return 0;
  if (at < line->end) at++;
  if (at < line->end && *at == ' ') at++;
  line->at = at;
  return 1;
}

/* Comments begin with the colon. Any other text is not of an event stream, whatever its type says. */
static int is_known(struct text line) {
  static const char *const fields[] = {"", "data", "event", "id", "retry", 0};
  for (const char *const *field = fields; *field; field++)
    if (take_field(&line, *field)) return 1;
  return 0;
}

static byte *append_line(byte *to, struct text line) {
  while (line.at < line.end) *to++ = *line.at++;
  *to++ = '\n';
  return to;
}

static byte *skip_mark(byte *from, byte *end) {
  static const byte mark[] = {0xef, 0xbb, 0xbf}; /* of the order of bytes, at the beginning of a stream */
  for (int i = 0; i < 3; i++)
    if (from + i >= end || from[i] != mark[i]) return from;
  return from + 3;
}

/* Where the event at `from` ends; 0 if it is not whole. Stops at a line of no event, with `*known` 0. */
static byte *find_end(byte *from, byte *end, int *known) {
  struct text line;
  while ((from = read_line(from, end, &line)) && line.at != line.end)
    if (!(*known = is_known(line))) return 0;
  return from;
}

/* Reads the lines of a whole event. Its data lines are moved to where it begins, each with a line end. */
static void read_lines(byte *from, byte *end, enum type *name, struct text *data) {
  struct text line;
  byte *to = from;
  data->at = from;
  while ((from = read_line(from, end, &line)) && line.at != line.end) {
    if (take_field(&line, "event")) *name = type_of(line);
    else if (take_field(&line, "data")) to = append_line(to, line);
  }
  data->end = to;
}

/* Judges the whole events of a text up to the first that is not NOTHING. `*used` is how far they reach: they need not be
 * read again, and what follows them is untouched. `*data` is what the last of them carries. */
static enum verdict judge(byte *text, size length, size *used, struct text *data) {
  byte *at = text, *end = text + length, *next;
  enum verdict verdict = NOTHING;
  int known = 1;
  while (verdict == NOTHING) {
    enum type name = OTHER;
    byte *begin = skip_mark(at, end);
    next = find_end(begin, end, &known);
    if (!known) verdict = TOKEN;
    if (!next) break;
    read_lines(begin, next, &name, data);
    verdict = judge_event(name, *data);
    at = next;
  }
  *used = (size)(at - text);
  return verdict;
}

/* Judges what a stream ends with as if an empty line followed; two more bytes at `text` must be there to be written. */
static enum verdict judge_rest(byte *text, size length, struct text *data) {
  size used;
  text[length] = text[length + 1] = '\n';
  return judge(text, length + 2, &used, data);
}

#endif
