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

/* Followed by n bytes: the command and its NUL, the directory and its NUL, then the environment, each with a NUL; of
 * PUT, a path and its NUL, then the file (the parent cannot write into the tree: where it is root, its user has no
 * number there); of ANSWER what a call prints, and id is its exit code. */
struct ww_shell_ask {
	uint32_t op, id, timeout_ms, n;
};
/* Followed by n_out bytes of output (head and tail of `total` bytes) and n_state bytes: the directory, the environment.
 * With `call` it is not the reply yet: a process in the sandbox calls a tool, n_out bytes are its words (calls.h), and
 * an ANSWER is what comes next.  used_bytes: all processes together used so much when they were killed for it, 0 where
 * they were not; `most` by most_bytes. */
struct ww_shell_reply {
	uint32_t exists, running, timed_out, call;
	int32_t status; /* as waitpid(2) has it */
	uint64_t total, used_bytes, most_bytes;
	char most[16];
	uint32_t n_out, n_state;
};
