/* prepare.h - the skill's files in the root of a shell's sandbox. */
#pragma once

/* Unpack a skill (skill.h) under `root`/skill; which says in its pack what there is.  -1 and errno. */
int ww_shell_prepare_skill(const char *root, int pack_fd);
