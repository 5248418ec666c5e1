/* A gate that breaks on demand, for tests: holds every event stream until the first byte of its body, and traps when an
 * answer has the header x-trap ("headers": at once, "body": with its body). Built to trap.wasm with
 *   clang-14 --target=wasm32 -Oz -nostdlib -Wl,--no-entry -Wl,--strip-all -o trap.wasm trap.c
 */
#define IMPORT(name) __attribute__((import_module("env"), import_name(#name)))
#define EXPORT(name) __attribute__((export_name(#name)))

enum { CONTINUE = 0, HOLD = 1, RESPONSE_HEADERS = 2 };

IMPORT(proxy_get_header_map_value) int get_header(int map, const char *key, int size, char **value, int *length);

static char room[65536];
static int used;

EXPORT(malloc) void *allocate(int length) {
  void *at = room + used;
  used += (length + 15) & ~15;
  return used <= (int)sizeof room ? at : 0;
}

static int header_begins(const char *name, int size, char first) {
  char *value;
  int length = 0;
  used = 0;
  return !get_header(RESPONSE_HEADERS, name, size, &value, &length) && length && *value == first;
}

EXPORT(proxy_abi_version_0_2_1) void abi_version(void) {}
EXPORT(proxy_on_context_create) void on_context_create(int context, int parent) {}
EXPORT(proxy_on_vm_start) int on_vm_start(int context, int size) { return 1; }
EXPORT(proxy_on_configure) int on_configure(int context, int size) { return 1; }
EXPORT(proxy_on_done) int on_done(int context) { return 1; }
EXPORT(proxy_on_delete) void on_delete(int context) {}

EXPORT(proxy_on_response_headers) int on_response_headers(int context, int count, int end) {
  if (header_begins("x-trap", 6, 'h')) __builtin_trap();
  return header_begins("content-type", 12, 't') && !end ? HOLD : CONTINUE;
}

EXPORT(proxy_on_response_body) int on_response_body(int context, int length, int end) {
  if (header_begins("x-trap", 6, 'b')) __builtin_trap();
  return CONTINUE;
}
