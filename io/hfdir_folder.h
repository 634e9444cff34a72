/* hfdir_folder.h: the files of a model's folder beside its tensors: which there may
 * be, and what goes with them when they are copied, replaced or removed. */
#ifndef PEN_IO_HFDIR_FOLDER_H
#define PEN_IO_HFDIR_FOLDER_H

#include <stdbool.h>

/* The one folder in it: chat templates, each a .jinja file, beside the default one. */
#define PEN_HFDIR_TEMPLATES "additional_chat_templates"

/* May PATH be written?  -ENOTDIR where it is a file or would lie in one; -EEXIST where
 * it is not empty and not to be overwritten, or is no model: it has no config.json, or
 * another folder than that of templates. */
int pen_hfdir_check_target(const char *path, bool overwrite);
/* May TMP, under which a killed process may have written, be removed?  -EEXIST where
 * it holds what is of no model: it is somebody's own, which happens to have that name. */
int pen_hfdir_check_leftover(const char *tmp);

/* Copies what of these is there: tokenizer, chat templates, generation config; not
 * config.json.  Files are synced, and the folder in TO; TO itself is not. */
int pen_hfdir_copy_folder(const char *from, const char *to);

/* Removes a model's folder; -ENOTEMPTY where another folder is in it.  Absent is
 * fine. */
int pen_hfdir_remove(const char *path);

#endif
