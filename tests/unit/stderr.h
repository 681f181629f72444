/* stderr.h - what a test's program says on standard error, between two calls. */
#ifndef WW_TESTS_STDERR_H
#define WW_TESTS_STDERR_H

#include "unit.h"

#include <unistd.h>

struct unit_stderr {
	FILE *file;
	int before; /* descriptor of what it was */
};

static inline struct unit_stderr unit_stderr_begin(void)
{
	struct unit_stderr e = { tmpfile(), dup(2) };
	assert_true(e.file && e.before >= 0 && dup2(fileno(e.file), 2) == 2);
	return e;
}

/* Lines that have `part` in them; what was said is said now. */
static inline int unit_stderr_end(struct unit_stderr *e, const char *part)
{
	char line[4096];
	int n = 0;
	assert_int_equal(dup2(e->before, 2), 2);
	rewind(e->file);
	for (; fgets(line, sizeof(line), e->file); n += strstr(line, part) != NULL)
		fputs(line, stderr);
	fclose(e->file);
	close(e->before);
	return n;
}

#endif
