/* log.h - what the program says on stderr while it works.  One line a message, prefixed "warpwright: "; level by
 * WARPWRIGHT_LOG=error|warn|info|debug (default warn).  Results go to stdout and never through here.  A line of the
 * level debug ends with its thread and the monotonic clock, "[thread 4711, 12.345678 s]", so that what each thread of a
 * batch did can be told apart. */
#pragma once

enum ww_log_level { WW_LOG_ERROR, WW_LOG_WARN, WW_LOG_INFO, WW_LOG_DEBUG };

void ww_log(enum ww_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
