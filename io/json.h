/* json.h: JSON read with errors that name the file and the path to the key,
 * and written with doubles that read back the same. */
#ifndef PEN_IO_JSON_H
#define PEN_IO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEN_JSON_DEPTH_MAX 64
#define PEN_JSON_FILE_BYTES_MAX ((size_t)256 << 20)

struct pen_json;      /* a parsed document */
struct pen_json_node; /* a value in it; borrowed from the document */

enum pen_json_type {
  PEN_JSON_NULL,
  PEN_JSON_BOOL,
  PEN_JSON_INT,
  PEN_JSON_REAL,
  PEN_JSON_STRING,
  PEN_JSON_ARRAY,
  PEN_JSON_OBJECT,
};

/* Parses strict JSON: UTF-8, no duplicate keys, at most PEN_JSON_DEPTH_MAX
 * levels, integers within 64 bits.  `source` is copied and stands in front of
 * every message about this document.  Errors are -PEN_EFORMAT. */
int pen_json_parse(const char *text, size_t n_bytes, const char *source,
                   struct pen_json **ret_json);

/* The same from a file of at most PEN_JSON_FILE_BYTES_MAX bytes. */
int pen_json_load(const char *path, struct pen_json **ret_json);

/* NULL is fine; sets *json to NULL. */
void pen_json_free(struct pen_json **json);

const struct pen_json_node *pen_json_root(const struct pen_json *json);
enum pen_json_type pen_json_type(const struct pen_json_node *node);
const char *pen_json_source(const struct pen_json *json);

/* Members of an object or items of an array; 0 for anything else. */
size_t pen_json_size(const struct pen_json_node *node);

/* The member, or NULL when absent (a null member is a node of type NULL). */
const struct pen_json_node *pen_json_member(const struct pen_json_node *object,
                                            const char *key);
/* True when the member is there and not null. */
bool pen_json_has(const struct pen_json_node *object, const char *key);

/* Item i of an array, NULL past its end. */
const struct pen_json_node *pen_json_item(const struct pen_json_node *array,
                                          size_t i);

/* Walks an object's members in the order of the file.  Start with iter NULL;
 * returns false after the last. */
bool pen_json_next(const struct pen_json_node *object, void **iter,
                   const char **ret_key, const struct pen_json_node **ret_node);

/* A node as a C value; -PEN_EFORMAT "SOURCE: path.to.key must be an integer, is
 * "x"" otherwise.  Strings are borrowed from the document and hold no NUL.
 * as_double takes integers too; as_size takes integers in [0, SIZE_MAX]. */
int pen_json_as_i64(const struct pen_json *json,
                    const struct pen_json_node *node, int64_t *ret_value);
int pen_json_as_size(const struct pen_json *json,
                     const struct pen_json_node *node, size_t *ret_value);
int pen_json_as_double(const struct pen_json *json,
                       const struct pen_json_node *node, double *ret_value);
int pen_json_as_bool(const struct pen_json *json,
                     const struct pen_json_node *node, bool *ret_value);
int pen_json_as_string(const struct pen_json *json,
                       const struct pen_json_node *node,
                       const char **ret_value);

/* A required member: absent or null is -PEN_EFORMAT as well. */
int pen_json_get_i64(const struct pen_json *json,
                     const struct pen_json_node *object, const char *key,
                     int64_t *ret_value);
int pen_json_get_size(const struct pen_json *json,
                      const struct pen_json_node *object, const char *key,
                      size_t *ret_value);
int pen_json_get_double(const struct pen_json *json,
                        const struct pen_json_node *object, const char *key,
                        double *ret_value);
int pen_json_get_bool(const struct pen_json *json,
                      const struct pen_json_node *object, const char *key,
                      bool *ret_value);
int pen_json_get_string(const struct pen_json *json,
                        const struct pen_json_node *object, const char *key,
                        const char **ret_value);
int pen_json_get_array(const struct pen_json *json,
                       const struct pen_json_node *object, const char *key,
                       const struct pen_json_node **ret_value);
int pen_json_get_object(const struct pen_json *json,
                        const struct pen_json_node *object, const char *key,
                        const struct pen_json_node **ret_value);

/* An optional member: absent or null leaves *value as it is and returns 0. */
int pen_json_opt_i64(const struct pen_json *json,
                     const struct pen_json_node *object, const char *key,
                     int64_t *value);
int pen_json_opt_size(const struct pen_json *json,
                      const struct pen_json_node *object, const char *key,
                      size_t *value);
int pen_json_opt_double(const struct pen_json *json,
                        const struct pen_json_node *object, const char *key,
                        double *value);
int pen_json_opt_bool(const struct pen_json *json,
                      const struct pen_json_node *object, const char *key,
                      bool *value);
int pen_json_opt_string(const struct pen_json *json,
                        const struct pen_json_node *object, const char *key,
                        const char **value);

/* Records `code` with "SOURCE: path.to.node: MESSAGE" (the root has no path);
 * returns the code. */
int pen_json_error(const struct pen_json *json,
                   const struct pen_json_node *node, int code,
                   const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
