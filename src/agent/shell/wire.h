/* wire.h - the messages between the episode and the shell's worker: a fixed head and then bytes, over the worker's
 * socket.
 *
 * The worker is not trusted, since it shares a sandbox with the policy's processes: its replies are read with limits,
 * and the descriptor of its tree is used as any workspace is.
 */
#pragma once

#include <stdint.h>

enum ww_shell_op { WW_SHELL_RUN, WW_SHELL_START, WW_SHELL_LOOK, WW_SHELL_KILL, WW_SHELL_PUT, WW_SHELL_ANSWER };
enum {
	WW_SHELL_STATE_MAX = 64 << 10,
	WW_SHELL_COMMAND_MAX = 64 << 10,
	WW_SHELL_OUT_MAX = 24 << 10,
	WW_SHELL_ANSWER_MAX = 32 << 10
};

/* n bytes follow, by op:
 *   RUN, START   the command, the directory, then each variable of the environment, every one with a NUL
 *   PUT          a path with a NUL, then the file (the parent cannot write it: as root, its uid is not mapped there)
 *   ANSWER       what the call prints; id is its exit code */
struct ww_shell_ask {
	uint32_t op, id, timeout_ms, n;
};
/* n_out bytes of output follow (head and tail of `total` bytes), then n_state bytes: the directory, the environment.
 * With `call` it is not the reply yet: a process in the sandbox calls a tool, n_out bytes are its words (calls.h), and
 * the parent sends an ANSWER next.  used_bytes: memory of all processes when they were killed for it, else 0; `most` is
 * the name of the largest, which used most_bytes. */
struct ww_shell_reply {
	uint32_t exists, running, timed_out, call;
	int32_t status; /* as waitpid(2) has it */
	uint64_t total, used_bytes, most_bytes;
	char most[16];
	uint32_t n_out, n_state;
};
