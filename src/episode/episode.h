/* episode.h - the record of one run: every message, tool call, solution, verdict and the reward, version 1.
 *
 * An episode is a text file, one JSON object a line, written append-only.  docs/formats/episode.md lists the lines and
 * their members, and what a reader may rely on.  A line is written whole and synced to the disk before the next step of
 * the run begins, so a process that is killed leaves at most one cut last line, which readers ignore and
 * ww_episode_append() removes.  What is in the file has happened; nothing else has. */
#pragma once

#include "episode/message.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define WW_EPISODE_VERSION 1

/* ---- What a line says -------------------------------------------------------------------------------------------- */

struct ww_episode_header {
	char *task_path, *target, *device, *policy, *rule; /* malloc'ed; never NULL once read */
	char *form, *loop, *prompt;                        /* the same; a file without them: "plan", "agent", "full" */
	char task_id[65], started[24];
	char task_signature[40]; /* ww_task_signature(); "": not in the file */
	uint64_t seed;
	json_t *versions;
	json_t *command, *tools, *limits; /* NULL: not in the file */
};

struct ww_episode_file {
	char *path, *text;
};
struct ww_episode_solution {
	char id[65];
	int turn;
	struct ww_episode_file *files;
	size_t n_files;
};

struct ww_episode_verdict {
	char *call_id;
	char solution[65];
	char depth[16];
	int turn;
	double t;
	json_t *verdict;
};

struct ww_episode_lost {
	int turn;
	double t, usd;
	int64_t prompt_tokens, completion_tokens;
	char *why;
};

struct ww_episode_compaction {
	int turn;
	char **call_ids;
	size_t n_calls;
	int64_t bytes;
};

struct ww_episode_end {
	char reason[16], best[65];
	double reward_final, reward_best, seconds;
};

/* One message; finish, tokens, usage and usd of `reply` are set for role ASSISTANT only. */
struct ww_episode_message {
	struct ww_reply reply;
	int turn;
	double t;
};

/* A whole episode in memory.  Arrays are in file order. */
struct ww_episode {
	struct ww_episode_header header;
	struct ww_episode_message *messages;
	size_t n_messages;
	struct ww_episode_solution *solutions;
	size_t n_solutions;
	struct ww_episode_verdict *verdicts;
	size_t n_verdicts;
	struct ww_episode_lost *lost;
	size_t n_lost;
	struct ww_episode_compaction *compactions;
	size_t n_compactions;
	struct ww_episode_end end;
	int ended;             /* an "end" line was there */
	double seconds;        /* of the last line */
	long long whole_bytes; /* length without a cut last line */
};

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Read an episode; a cut last line is left out, any other broken line is an error that names its number.  At most 1
 * GiB. Returns an enum ww_rc. */
int ww_episode_read(const char *path, struct ww_episode *out, struct ww_err *err);
void ww_episode_release(struct ww_episode *e);
/* The solution with this id, or NULL. */
const struct ww_episode_solution *ww_episode_find_solution(const struct ww_episode *e, const char *id);
/* Text of one of its files, or NULL. */
const char *ww_episode_file_text(const struct ww_episode_solution *s, const char *path);

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

struct ww_episode_writer;

/* Start a new file; one that exists is an error.  The header is on the disk when this returns. */
int ww_episode_create(
	const char *path, const struct ww_episode_header *h, struct ww_episode_writer **out, struct ww_err *err);
/* Append to an existing file: it is read into *so_far, and a cut last line is removed.  Fails while another process
 * writes it. */
int ww_episode_append(const char *path, struct ww_episode *so_far, struct ww_episode_writer **out, struct ww_err *err);
void ww_episode_close(struct ww_episode_writer *w);
/* Seconds of the episode: those of earlier processes plus those since this writer was opened. */
double ww_episode_seconds(const struct ww_episode_writer *w);

/* Each of these returns when the line is on the disk.  Where that fails (disk full), the file is cut back to whole
 * lines. */
int ww_episode_add_message(struct ww_episode_writer *w, int turn, const struct ww_reply *r, struct ww_err *err);
/* Not synced: it reaches the disk with the line of its verdict. */
int ww_episode_add_solution(struct ww_episode_writer *w, int turn, const char *id, const struct ww_episode_file *files,
	size_t n_files, struct ww_err *err);
/* `verdict` is borrowed. */
int ww_episode_add_verdict(struct ww_episode_writer *w, int turn, const char *call_id, const char *solution_id,
	const char *depth, json_t *verdict, struct ww_err *err);
int ww_episode_add_lost(struct ww_episode_writer *w, int turn, const struct ww_episode_lost *l, struct ww_err *err);
int ww_episode_add_compaction(
	struct ww_episode_writer *w, int turn, const struct ww_episode_compaction *c, struct ww_err *err);
int ww_episode_add_end(struct ww_episode_writer *w, int turn, const struct ww_episode_end *end, struct ww_err *err);
