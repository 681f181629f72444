#include "base/log.h"

#include "base/str.h"
#include "base/time.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static enum ww_log_level level_max = WW_LOG_WARN;
static pthread_once_t level_once = PTHREAD_ONCE_INIT;

static void read_level(void)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	const char *v = getenv("WARPWRIGHT_LOG");
	for (int i = 0; v && i < 4; i++)
		if (!strcmp(v, names[i]))
			level_max = (enum ww_log_level)i;
}

static int is_enabled(enum ww_log_level level)
{
	pthread_once(&level_once, read_level);
	return level <= level_max;
}

void ww_log(enum ww_log_level level, const char *fmt, ...)
{
	if (!is_enabled(level))
		return;
	char text[2048];
	ww_auto_str line = WW_STR_INIT(sizeof(text) + 96);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ww_str_adds(&line, "warpwright: ");
	ww_str_add_line(&line, text, sizeof(text)); /* it may quote a task, a policy or a client */
	if (level == WW_LOG_DEBUG)
		ww_str_addf(&line, " [thread %ld, %.6f s]", (long)syscall(SYS_gettid), (double)ww_now_ns() * 1e-9);
	ww_str_addc(&line, '\n');
	if (write(STDERR_FILENO, line.p, line.len) < 0)
		return; /* stderr is closed */
}
