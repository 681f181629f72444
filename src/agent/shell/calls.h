/* calls.h - tools as commands inside a shell's sandbox: the worker's side.
 *
 * `verify`, `profile`, `compile` and `inspect` are small scripts on the PATH of the sandbox.  No process there may make
 * a socket, so they use two pipes with names, which the worker made before the root became read-only:
 *
 *     /calls/turn      a file to lock: its holder may call, and the kernel frees the lock when the holder ends
 *     /calls/ask       "<NEWLINE>ID<TAB>WORD<TAB>WORD...<NEWLINE>", at most WW_SHELL_CALL_MAX bytes, written at once
 *     /calls/answer    "ID CODE BYTES<NEWLINE>" and so many bytes
 *
 * A process in the sandbox can do no more with them than the scripts do: the worker reads words, from any process of
 * the sandbox, and all of these belong to one policy.  A process that writes without holding the lock may spoil calls
 * of its own episode.  One call is under way at a time.  Of what has piled up only the newest counts, and only while
 * the lock is held: the call of a killed process is not served.
 *
 * Rejected: descriptors that commands inherit (Python's subprocess closes them), a socket (the filter takes all of
 * them), files to look for (the caller would have to poll).
 */
#pragma once

#include <stddef.h>

enum { WW_SHELL_CALL_MAX = 2048 };

struct ww_shell_calls {
	int ask, answer, turn;
	char id[24]; /* of the call that was taken last */
};

/* Put scripts, pipes and lock under `root`, which will be "/".  -1 and errno. */
int ww_shell_calls_make(const char *root);
/* In the sandbox, before its filter.  -1 and errno. */
int ww_shell_calls_open(struct ww_shell_calls *c);
/* Length of the words of a call that begins now (tabs between them, no newline), 0 where there is none. */
size_t ww_shell_calls_take(struct ww_shell_calls *c, char words[WW_SHELL_CALL_MAX]);
/* Answer the call that was taken last. */
void ww_shell_calls_answer(struct ww_shell_calls *c, unsigned code, const char *text, size_t n);
