/* unit.h - what every cmocka test needs, in the order that cmocka wants. */
#ifndef WW_TESTS_UNIT_H
#define WW_TESTS_UNIT_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A test program with " * all: what" in its head does more when it is called with "all": MODULE/NAME_all, label slow.
 */
static inline int unit_all(int argc, char **argv) { return argc > 1 && !strcmp(argv[1], "all"); }

#endif
