/* prompt.h: a prompt that comes on standard input, as of `echo text | penstock
 * generate`. */
#ifndef PEN_SRC_CLI_PROMPT_H
#define PEN_SRC_CLI_PROMPT_H

/* Waits for all of it where standard input is a pipe, a socket or a file; *ret_text is
 * the caller's, without the line ends it ends in; NULL where there is nothing, or where
 * it is a terminal or a device.  -PEN_EUSAGE: it is no text, or more than
 * PEN_PROMPT_BYTES_MAX. */
int pen_prompt_read(char **ret_text);
#define PEN_PROMPT_BYTES_MAX (16 << 20)

#endif
