/* json_plain.c: a parser of our own, for builds without jansson.
 *
 * Accepts, refuses and keeps what json_jansson.c does (tests/io/test_json_both.py),
 * only messages differ.  Members and items are arrays; an object has a second one
 * sorted by key, for lookups and to find a key given twice.  Recursion is as deep
 * as the caller allows.  Disadvantage: an allocation for each value and string. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/json_tree.h"

struct member {
  char *key; /* NULL: an array's item */
  struct pen_json_node *value;
};

struct pen_json_node {
  enum pen_json_type type;
  union {
    bool truth;
    int64_t integer;
    double real;
    char *string;
    struct {
      struct member *members; /* in the order of the text */
      size_t n, room;
      const struct member **by_key; /* [n]; of objects alone */
    };
  };
};

struct parser {
  const char *text, *at, *end;
  const char *source;
};

/* ---- failures ---- */

static int fail(const struct parser *p, const char *why)
{
  int line = 1, column = 1;
  for (const char *c = p->text; c < p->at; c++) {
    column = *c == '\n' ? 1 : column + 1;
    line += *c == '\n';
  }
  return pen_error_set(-PEN_EFORMAT,
                       "%s: not valid JSON at line %d, column %d: %s",
                       p->source, line, column, why);
}

static int no_memory(const struct parser *p)
{
  return pen_error_set(-ENOMEM, "cannot parse %s", p->source);
}

/* ---- characters ---- */

static int peek(const struct parser *p)
{
  return p->at < p->end ? (unsigned char)*p->at : -1;
}

static void skip_space(struct parser *p)
{
  while (p->at < p->end && strchr(" \t\n\r", *p->at) && *p->at)
    p->at++;
}

static bool is_digit(int c) { return c >= '0' && c <= '9'; }

/* Bytes of the UTF-8 sequence at p->at; 0: none that is valid. */
static size_t utf8_length(const struct parser *p)
{
  const unsigned char *c = (const unsigned char *)p->at;
  size_t n = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2
             : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
  if (n > (size_t)(p->end - p->at))
    return 0;
  for (size_t i = 1; i < n; i++)
    if ((c[i] & 0xc0) != 0x80)
      return 0;
  bool overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
  bool surrogate = c[0] == 0xed && c[1] >= 0xa0;
  bool beyond = c[0] == 0xf4 && c[1] >= 0x90;
  return n > 1 && (overlong || surrogate || beyond) ? 0 : n;
}

static size_t put_utf8(uint32_t code, char *out)
{
  if (code < 0x80) {
    out[0] = (char)code;
    return 1;
  }
  size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t i = n; i-- > 1; code >>= 6)
    out[i] = (char)(0x80 | (code & 0x3f));
  out[0] = (char)((0xf00 >> n & 0xff) | code);
  return n;
}

/* ---- strings ---- */

static int take_hex(struct parser *p, uint32_t *ret_code)
{
  uint32_t code = 0;
  for (int i = 0; i < 4; i++, p->at++) {
    int c = peek(p), digit = is_digit(c) ? c - '0'
                             : c >= 'a' && c <= 'f' ? c - 'a' + 10
                             : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0)
      return fail(p, "an escape needs four hexadecimal digits");
    code = code << 4 | (uint32_t)digit;
  }
  *ret_code = code;
  return 0;
}

/* Behind "\u". */
static int take_unicode(struct parser *p, char **out)
{
  uint32_t code = 0, low = 0;
  int rc = take_hex(p, &code);
  if (rc == 0 && code >= 0xd800 && code < 0xdc00) {
    if (p->end - p->at < 2 || p->at[0] != '\\' || p->at[1] != 'u')
      return fail(p, "half of a surrogate pair");
    p->at += 2;
    rc = take_hex(p, &low);
    if (rc == 0 && (low < 0xdc00 || low > 0xdfff))
      return fail(p, "half of a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (rc == 0 && code >= 0xdc00 && code < 0xe000) {
    return fail(p, "half of a surrogate pair");
  }
  if (rc < 0)
    return rc;
  if (code == 0)
    return fail(p, "a character 0 in a string");
  *out += put_utf8(code, *out);
  return 0;
}

static int take_escape(struct parser *p, char **out)
{
  static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
  int c = peek(p);
  const char *found = c > 0 ? strchr(names, c) : NULL;
  if (!found && c != 'u')
    return fail(p, "an unknown escape");
  p->at++;
  if (!found)
    return take_unicode(p, out);
  *(*out)++ = meant[found - names];
  return 0;
}

/* At the opening quote.  What an escape becomes is never longer than it. */
static int take_string(struct parser *p, char **ret_string)
{
  const char *close = ++p->at;
  while (close < p->end && *close != '"')
    close += *close == '\\' ? 2 : 1;
  char *string = malloc((size_t)(close - p->at) + 1), *out = string;
  int rc = string ? 0 : no_memory(p);
  while (rc == 0 && peek(p) != '"') {
    size_t n = p->at < p->end ? utf8_length(p) : 0;
    if (n == 0)
      rc = fail(p, p->at < p->end ? "no UTF-8" : "a string without end");
    else if (peek(p) < 0x20)
      rc = fail(p, "a control character in a string");
    else if (*p->at == '\\')
      p->at++, rc = take_escape(p, &out);
    else
      for (; n; n--)
        *out++ = *p->at++;
  }
  if (rc < 0) {
    free(string);
    return rc;
  }
  p->at++;
  *out = '\0';
  *ret_string = string;
  return 0;
}

/* ---- numbers ---- */

static bool take_digits(struct parser *p)
{
  const char *begin = p->at;
  while (is_digit(peek(p)))
    p->at++;
  return p->at > begin;
}

static int take_real(struct parser *p, const char *begin,
                     struct pen_json_node *node)
{
  size_t n = (size_t)(p->at - begin);
  char *copy = malloc(n + 1); /* the text need not end */
  if (!copy)
    return no_memory(p);
  memcpy(copy, begin, n);
  copy[n] = '\0';
  node->type = PEN_JSON_REAL;
  node->real = strtod(copy, NULL);
  free(copy);
  return isfinite(node->real) ? 0 : fail(p, "a number beyond doubles");
}

static int take_number(struct parser *p, struct pen_json_node *node)
{
  const char *begin = p->at;
  bool negative = peek(p) == '-', whole = true;
  p->at += negative;
  const char *digits = p->at;
  if (!take_digits(p) || (*digits == '0' && p->at > digits + 1))
    return fail(p, "no number");
  const char *after = p->at;
  if (peek(p) == '.') {
    whole = false;
    p->at++;
    if (!take_digits(p))
      return fail(p, "digits are missing behind the point");
  }
  if (peek(p) == 'e' || peek(p) == 'E') {
    whole = false;
    p->at++;
    p->at += peek(p) == '+' || peek(p) == '-';
    if (!take_digits(p))
      return fail(p, "digits of the exponent are missing");
  }
  if (!whole)
    return take_real(p, begin, node);
  int64_t value = 0;
  for (; digits < after; digits++) {
    int64_t digit = *digits - '0';
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, negative ? -digit : digit, &value))
      return fail(p, "an integer beyond 64 bits");
  }
  node->type = PEN_JSON_INT;
  node->integer = value;
  return 0;
}

/* ---- values ---- */

static int take_value(struct parser *p, struct pen_json_node **ret_node);

static int add_member(struct parser *p, struct pen_json_node *node, char *key,
                      struct pen_json_node *value)
{
  if (node->n == node->room) {
    size_t room = node->room ? 2 * node->room : 8;
    struct member *more = realloc(node->members, room * sizeof *more);
    if (!more)
      return no_memory(p);
    node->members = more;
    node->room = room;
  }
  node->members[node->n++] = (struct member){key, value};
  return 0;
}

static int compare_keys(const void *a, const void *b)
{
  const struct member *const *x = a, *const *y = b;
  return strcmp((*x)->key, (*y)->key);
}

static int sort_keys(struct parser *p, struct pen_json_node *node)
{
  node->by_key = malloc((node->n ? node->n : 1) * sizeof *node->by_key);
  if (!node->by_key)
    return no_memory(p);
  for (size_t i = 0; i < node->n; i++)
    node->by_key[i] = &node->members[i];
  qsort(node->by_key, node->n, sizeof *node->by_key, compare_keys);
  for (size_t i = 1; i < node->n; i++)
    if (compare_keys(&node->by_key[i - 1], &node->by_key[i]) == 0)
      return fail(p, "a key is given twice");
  return 0;
}

static int take_key(struct parser *p, char **ret_key)
{
  skip_space(p);
  if (peek(p) != '"')
    return fail(p, "a key is expected");
  int rc = take_string(p, ret_key);
  if (rc < 0)
    return rc;
  skip_space(p);
  if (peek(p) != ':')
    return fail(p, "':' is expected");
  p->at++;
  return 0;
}

/* At the opening bracket, of an object or an array. */
static int take_container(struct parser *p, struct pen_json_node *node)
{
  bool object = peek(p) == '{';
  char closing = object ? '}' : ']';
  node->type = object ? PEN_JSON_OBJECT : PEN_JSON_ARRAY;
  p->at++;
  skip_space(p);
  int rc = 0;
  if (peek(p) == closing) {
    p->at++;
    return object ? sort_keys(p, node) : 0;
  }
  for (;;) {
    char *key = NULL;
    struct pen_json_node *value = NULL;
    if (object)
      rc = take_key(p, &key);
    if (rc == 0)
      rc = take_value(p, &value);
    if (rc == 0)
      rc = add_member(p, node, key, value);
    if (rc < 0) {
      free(key);
      pen_json_tree_free(value);
      return rc;
    }
    skip_space(p);
    int c = peek(p);
    if (c != ',' && c != closing)
      return fail(p, object ? "',' or '}' is expected" : "',' or ']' is expected");
    p->at++;
    if (c == closing)
      return object ? sort_keys(p, node) : 0;
  }
}

static int take_word(struct parser *p, struct pen_json_node *node)
{
  static const struct {
    const char *word;
    enum pen_json_type type;
    bool truth;
  } words[] = {{"null", PEN_JSON_NULL, false}, {"true", PEN_JSON_BOOL, true},
               {"false", PEN_JSON_BOOL, false}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t n = strlen(words[i].word);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, words[i].word, n) != 0)
      continue;
    p->at += n;
    int next = peek(p); /* a letter more is another word */
    if ((next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z'))
      break;
    node->type = words[i].type;
    node->truth = words[i].truth;
    return 0;
  }
  return fail(p, "a value is expected");
}

static int take_value(struct parser *p, struct pen_json_node **ret_node)
{
  struct pen_json_node *node = calloc(1, sizeof *node);
  if (!node)
    return no_memory(p);
  skip_space(p);
  int c = peek(p), rc;
  if (c == '{' || c == '[')
    rc = take_container(p, node);
  else if (c == '-' || is_digit(c))
    rc = take_number(p, node);
  else if (c != '"')
    rc = take_word(p, node);
  else if ((rc = take_string(p, &node->string)) == 0)
    node->type = PEN_JSON_STRING;
  if (rc < 0)
    pen_json_tree_free(node);
  else
    *ret_node = node;
  return rc;
}

/* ---- the tree ---- */

int pen_json_tree_parse(const char *text, size_t n_bytes, const char *source,
                        struct pen_json_node **ret_root)
{
  struct parser p = {text, text, text + n_bytes, source};
  struct pen_json_node *root = NULL;
  int rc = take_value(&p, &root);
  if (rc < 0)
    return rc;
  skip_space(&p);
  if (p.at < p.end) {
    pen_json_tree_free(root);
    return fail(&p, "the end is expected");
  }
  *ret_root = root;
  return 0;
}

static bool is_container(const struct pen_json_node *node)
{
  return node->type == PEN_JSON_OBJECT || node->type == PEN_JSON_ARRAY;
}

void pen_json_tree_free(struct pen_json_node *root)
{
  if (!root)
    return;
  if (root->type == PEN_JSON_STRING)
    free(root->string);
  for (size_t i = 0; is_container(root) && i < root->n; i++) {
    free(root->members[i].key);
    pen_json_tree_free(root->members[i].value);
  }
  if (is_container(root)) {
    free(root->members);
    free(root->by_key);
  }
  free(root);
}

int64_t pen_json_tree_int(const struct pen_json_node *node)
{
  return node->integer;
}

double pen_json_tree_real(const struct pen_json_node *node)
{
  return node->real;
}

bool pen_json_tree_true(const struct pen_json_node *node)
{
  return node->truth;
}

const char *pen_json_tree_string(const struct pen_json_node *node)
{
  return node->string;
}

enum pen_json_type pen_json_type(const struct pen_json_node *node)
{
  return node->type;
}

size_t pen_json_size(const struct pen_json_node *node)
{
  return is_container(node) ? node->n : 0;
}

const struct pen_json_node *pen_json_member(const struct pen_json_node *object,
                                            const char *key)
{
  size_t low = 0, high = object->type == PEN_JSON_OBJECT ? object->n : 0;
  while (low < high) {
    size_t middle = (low + high) / 2;
    int order = strcmp(object->by_key[middle]->key, key);
    if (order == 0)
      return object->by_key[middle]->value;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

const struct pen_json_node *pen_json_item(const struct pen_json_node *array,
                                          size_t i)
{
  return array->type == PEN_JSON_ARRAY && i < array->n ? array->members[i].value
                                                       : NULL;
}

bool pen_json_next(const struct pen_json_node *object, void **iter,
                   const char **ret_key, const struct pen_json_node **ret_node)
{
  if (object->type != PEN_JSON_OBJECT || object->n == 0)
    return false;
  struct member *next = *iter ? (struct member *)*iter + 1 : object->members;
  if (next == object->members + object->n)
    return false;
  *iter = next;
  *ret_key = next->key;
  *ret_node = next->value;
  return true;
}
