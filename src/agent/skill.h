/* skill.h - a skill (agentskills.io): a folder with SKILL.md and what it refers to, which only the policy reads.
 *
 * The body of SKILL.md is part of the first message; the other files are read with the tool `read` under "skill/".
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stdint.h>

struct ww_skill {
	int dirfd;
	char name[65];
	char id[65]; /* content hash of SKILL.md */
	int pack_fd; /* its files for a shell's sandbox (skill_pack.c); read with pread() alone, others share the offset */
	struct ww_str body; /* after the front matter */
};

/* Open the folder; what is wrong with its front matter is a WW_ERR_USAGE that names the file and the rule. */
enum ww_rc ww_skill_open(struct ww_skill *s, const char *dir, struct ww_err *err) WW_MUST_CHECK;
/* The one that comes with the program. */
enum ww_rc ww_skill_open_builtin(struct ww_skill *s, struct ww_err *err) WW_MUST_CHECK;
void ww_skill_close(struct ww_skill *s); /* after ww_skill_open(), whatever that returned */

/* Append a file of the skill, or the names in a folder of it.  `path` is relative to the folder; one that leaves it, a
 * symbolic link and anything that is neither file nor folder is not found. */
enum ww_rc ww_skill_read(
	const struct ww_skill *s, const char *path, struct ww_str *out, int *found, struct ww_err *err) WW_MUST_CHECK;

/* The pack: one record a file, struct ww_skill_packed and then path and bytes.  Files above 1 MiB, and what is beyond
 * 512 files or 8 MiB, are not in it; hidden names, links and whatever is neither file nor folder are never. */
struct ww_skill_packed {
	uint32_t path_bytes, file_bytes;
};
enum { WW_SKILL_PACK_PATH = 512, WW_SKILL_PACK_FILE = 1 << 20 };
enum ww_rc ww_skill_pack(int dirfd, int *pack_fd, struct ww_err *err) WW_MUST_CHECK;
